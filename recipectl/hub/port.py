"""What recipectl asks of a model hub. `hf` answers for the Hugging Face hub and whatever speaks its API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from recipectl.errors import HubError


@dataclass(frozen=True)
class Resolved:
    """What a ref of a repository means now. The license is the hub's own reading of the card, shown where the card
    itself cannot be read."""

    commit: str
    gated: bool
    license: str | None


@dataclass(frozen=True)
class RemoteFile:
    """One file at a commit: size in bytes; `sha256` where the hub knows it (LFS), else `blob_id`, git's sha1 of it."""

    path: str
    size: int
    blob_id: str | None
    sha256: str | None


class Retry(Exception):
    """The hub failed in a way that may pass: a cut, a stall, 429, 5xx. `error` is what to raise when patience ends."""

    def __init__(self, error: HubError, wait_s: float | None = None) -> None:
        super().__init__(error.what)
        self.error = error
        self.wait_s = wait_s


class Body(Protocol):
    """Bytes of a file, from `start` on. `total` is the size of the whole file, if the hub says it."""

    start: int
    total: int | None

    def read(self, amount: int) -> bytes:
        """Up to `amount` bytes, none at the end. Raises Retry if the connection is cut or silent."""
        ...

    def close(self) -> None: ...


class Hub(Protocol):
    """A model hub. HubError for what will not get better by waiting, Retry for what may."""

    endpoint: str

    def resolve(self, repo: str, ref: str) -> Resolved: ...

    def files(self, repo: str, commit: str) -> list[RemoteFile]: ...

    def open(self, repo: str, commit: str, path: str, start: int = 0, end: int | None = None) -> Body:
        """The bytes `start` to `end` (not included; None is the end of the file). A hub that ignores the range gives
        a body that starts at 0."""
        ...
