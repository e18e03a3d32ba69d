"""File bodies over HTTP, from any offset. The hub's own library is used for everything but this: it cannot resume
across runs, does not stop on Ctrl-C, refuses files over 50 GB without Xet, and hands out nothing to hash meanwhile.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any
from urllib.parse import quote, urlsplit

import requests
import urllib3

from recipectl.errors import HubError
from recipectl.hub.faults import Where, broken, fault, unreachable
from recipectl.hub.port import Retry

# Content delivery networks cut answers at 50 GB; a longer file is asked for in pieces.
PIECE = 32 << 30


class _Session(requests.Session):
    """Credentials for the hub's own origin alone: on a redirect elsewhere they are dropped, and ~/.netrc is not asked
    for others."""

    def rebuild_auth(self, prepared_request: Any, response: Any) -> None:
        if urlsplit(response.request.url)[:2] != urlsplit(prepared_request.url)[:2]:
            prepared_request.headers.pop("Authorization", None)


class _Bearer(requests.auth.AuthBase):
    """A given token or none at all; being set, it keeps requests from looking into ~/.netrc."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class HttpBody:
    """An answer that is being read."""

    def __init__(self, response: requests.Response, endpoint: str, start: int, total: int | None) -> None:
        self._response, self._endpoint = response, endpoint
        self.start, self.total = start, total

    def read(self, amount: int) -> bytes:
        """Up to `amount` bytes; Retry if the connection is cut, silent for too long, or ends early."""
        try:
            return bytes(self._response.raw.read(amount))
        except (urllib3.exceptions.HTTPError, OSError) as err:
            raise broken(self._endpoint, _reason(err)) from err

    def close(self) -> None:
        """Give the connection back, or drop it if bytes are left."""
        self._response.close()


class Bodies:
    """Opens files of one hub. `idle_s` is how long a silent connection is waited for, in seconds."""

    def __init__(self, endpoint: str, token: str | None, idle_s: float = 30.0, connections: int = 16) -> None:
        self.endpoint, self._idle_s = endpoint, idle_s
        self._session = _Session()
        self._session.auth = _Bearer(token)
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, requests.adapters.HTTPAdapter(pool_maxsize=connections))

    def open(
        self, repo: str, commit: str, path: str, start: int = 0, end: int | None = None, license: str | None = None
    ) -> HttpBody:
        """The bytes of a file from `start` to `end`. Retry for what may pass, HubError for what will not, with the
        `license` if the repository turns out to be gated."""
        url = f"{self.endpoint}/{repo}/resolve/{commit}/{quote(path)}"
        headers = {"Accept-Encoding": "identity", "User-Agent": "recipectl"}
        if start or end is not None:
            headers["Range"] = f"bytes={start}-{end - 1 if end is not None else ''}"
        try:
            response = self._session.get(url, headers=headers, stream=True, timeout=(10, self._idle_s))
        except requests.RequestException as err:
            raise unreachable(self.endpoint, _reason(err)) from err
        try:
            return self._body(response, Where(self.endpoint, repo, commit, path, license), start)
        except BaseException:
            response.close()
            raise

    def _body(self, response: requests.Response, where: Where, start: int) -> HttpBody:
        status, head = response.status_code, response.headers
        if status not in (200, 206):
            raise fault(where, status, head)
        _check_commit(response, where)
        if status == 200:
            length = head.get("Content-Length")
            return HttpBody(response, self.endpoint, 0, int(length) if length and length.isdigit() else None)
        given = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", head.get("Content-Range", ""))
        if not given or int(given[1]) != start:
            seen, expected = head.get("Content-Range"), f"bytes {start}-"
            raise Retry(HubError("the hub answers with another range", on=str(where), seen=seen, expected=expected))
        return HttpBody(response, self.endpoint, start, int(given[3]) if given[3] != "*" else None)


def _check_commit(response: requests.Response, where: Where) -> None:
    """The hub says which commit it serves; another one than asked for is a wrong mirror, not a retry."""
    for answer in (*response.history, response):
        served = answer.headers.get("X-Repo-Commit")
        if served and served != where.ref:
            raise HubError(
                "the hub serves another commit than the one asked for", on=str(where), seen=served, expected=where.ref,
                next_step="use another endpoint (HF_ENDPOINT): this one mixes up commits",
            )  # fmt: skip


def _reason(err: BaseException) -> str:
    """The innermost reason in words: the outer ones repeat addresses and object ids."""
    with contextlib.suppress(AttributeError, IndexError, TypeError):
        while isinstance(err.args[-1], BaseException):
            err = err.args[-1]
    inner = getattr(err, "reason", None)
    if isinstance(inner, BaseException):
        return _reason(inner)
    text = re.sub(r"<[^<>]*object at 0x[0-9a-f]+>[,:]? ?|HTTPS?ConnectionPool\([^)]*\): ?", "", str(err))
    return text if text.startswith(type(err).__name__) else f"{type(err).__name__}: {text}"
