"""What a hub's answer means, as our errors: one table for metadata and for bodies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recipectl.errors import HubError
from recipectl.hub.port import Retry


@dataclass(frozen=True)
class Where:
    """What was asked of which hub. `license` is what the hub said about the repository, where that is known."""

    endpoint: str
    repo: str
    ref: str | None = None
    path: str | None = None
    license: str | None = None

    def __str__(self) -> str:
        ref = f"@{self.ref}" if self.ref else ""
        path = f"/{self.path}" if self.path else ""
        return f"{self.repo}{ref}{path} at {self.endpoint}"


def fault(where: Where, status: int, headers: Mapping[str, str], message: str | None = None) -> HubError | Retry:
    """The error for an HTTP status and the hub's X-Error-Code. Retry for what may pass (429, 5xx)."""
    code, message = headers.get("X-Error-Code"), message or headers.get("X-Error-Message")
    seen = f"HTTP {status}" + (f" {code}" if code else "") + (f": {message}" if message else "")
    if status == 429:
        return _limited(where, seen, headers.get("Retry-After"))
    if status >= 500:
        step = "try again later: what is here stays, and models that are complete are served without the hub"
        return Retry(HubError("the hub is failing", on=str(where), seen=seen, next_step=step))
    if code == "GatedRepo" or (status == 403 and code is None):
        return _gated(where, seen, anonymous=status == 401)
    what, step = _refusal(where, status, code)
    return HubError(what, on=str(where), seen=seen, next_step=step)


def broken(endpoint: str, reason: object) -> Retry:
    """A body that stopped before its end: cut, or silent for too long."""
    step = "check the network, then run it again: it goes on where it stopped"
    return Retry(HubError("the connection to the hub broke", on=endpoint, seen=reason, next_step=step))


def unreachable(endpoint: str, reason: object) -> Retry:
    """Nobody answers."""
    step = "check the network and HF_ENDPOINT; what is here stays, and complete models are served without the hub"
    return Retry(HubError("the hub cannot be reached", on=endpoint, seen=reason, next_step=step))


def _refusal(where: Where, status: int, code: str | None) -> tuple[str, str]:
    page = f"{where.endpoint}/{where.repo}"
    if code == "RevisionNotFound":
        return (
            f"{where.repo} has no revision {where.ref}",
            f"give a commit that {page}/commits/main lists as `revision`; if the recipe names a branch or tag, "
            "`recipectl lock --update all` follows it",
        )
    if code == "EntryNotFound":
        step = f"the lock names it: look at {page}/tree/{where.ref}, then `recipectl lock --update all`"
        return f"{where.repo} has no file {where.path} at this commit", step
    if status in (401, 404):
        what = f"{where.repo} does not exist, or is private and the token does not reach it"
        return what, f"check the name at {page}; for a private one set HF_TOKEN to a token that may read it"
    return "the hub refused", f"look at {page}"


def _gated(where: Where, seen: str, *, anonymous: bool) -> HubError:
    page = f"{where.endpoint}/{where.repo}"
    token = "then set HF_TOKEN to a token of that account"
    step = f"ask for access at {page}, {token}" if anonymous else f"the token's account has no access: ask at {page}"
    license_ = f"license: {where.license or 'not stated by the hub'}"
    return HubError(f"{where.repo} is gated", on=str(where), seen=seen, details=[license_], next_step=step)


def _limited(where: Where, seen: str, after: str | None) -> Retry:
    seen += f", retry after {after} s" if after else ""
    step = "wait, then run it again: what is here stays; a token in HF_TOKEN raises the limit"
    error = HubError("the hub limits the rate of requests", on=str(where), seen=seen, next_step=step)
    return Retry(error, float(after) if after and after.isdigit() else None)
