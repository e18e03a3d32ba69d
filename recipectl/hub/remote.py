"""What a lock needs to know about a hub repository, without its weights: commit, files with sha256, license, facts."""

from __future__ import annotations

import fnmatch
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from recipectl.errors import HubError, PinError
from recipectl.hub.card import card_license
from recipectl.hub.port import Hub, RemoteFile, Resolved, Retry
from recipectl.hub.safetensors import Header, header_length, parse_header
from recipectl.lockfile import LockedFile
from recipectl.recipe.model import Model
from recipectl.workers import run_all

T = TypeVar("T")
# Files that the hub keeps in git itself; anything larger it keeps as LFS, with a sha256.
SMALL = 64 << 20
# One request brings most headers whole; the rest is asked for again.
HEADER_GUESS = 1 << 20
PARALLEL = 8


def patiently(call: Callable[[], T], retries: int) -> T:
    """Call until it answers, at most `retries` times, waiting 1, 2, 4 ... s or as long as the hub asks (up to 60 s)."""
    for attempt in range(retries):
        try:
            return call()
        except Retry as again:
            if attempt == retries - 1:
                raise again.error from again
            time.sleep(min(again.wait_s if again.wait_s is not None else 2.0**attempt, 60.0))
    raise AssertionError("retries is at least 1")


@dataclass(frozen=True)
class Repository:
    """One repository of a hub at one commit."""

    hub: Hub
    repo: str
    resolved: Resolved
    retries: int
    _small: dict[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def commit(self) -> str:
        return self.resolved.commit

    def files(self) -> list[RemoteFile]:
        """Everything at the commit."""
        return patiently(lambda: self.hub.files(self.repo, self.commit), self.retries)

    def small(self, path: str) -> bytes:
        """A whole small file, read once. HubError if it has more than `SMALL` bytes."""
        if path not in self._small:
            self._small[path] = self.read(path, 0, None)
        return self._small[path]

    def read(self, path: str, start: int, end: int | None) -> bytes:
        """Bytes `start` to `end` of a file; None is the end of a small file."""
        return patiently(lambda: self._read(path, start, end), self.retries)

    def locked_file(self, file: RemoteFile) -> LockedFile:
        """The file with its sha256: the hub's own for LFS, else computed from the body and held against git's id."""
        if file.sha256 is not None:
            return LockedFile(path=file.path, size=file.size, sha256=file.sha256)
        body = self.small(file.path)
        git = hashlib.sha1(b"blob %d\0" % len(body) + body, usedforsecurity=False).hexdigest()
        if len(body) != file.size or (file.blob_id and git != file.blob_id):
            raise PinError(
                "the hub serves other bytes than its listing names",
                on=f"{self.repo}/{file.path} at {self.hub.endpoint}",
                seen=f"{len(body)} bytes, git {git}", expected=f"{file.size} bytes, git {file.blob_id}",
                next_step="use another endpoint (HF_ENDPOINT)",
            )  # fmt: skip
        return LockedFile(path=file.path, size=file.size, sha256=hashlib.sha256(body).hexdigest(), blob_id=file.blob_id)

    def header(self, file: LockedFile) -> Header:
        """The checked safetensors header of a file, from its first bytes."""
        raw = self.read(file.path, 0, min(HEADER_GUESS, file.size))
        length = header_length(raw[:8], file.path, file.size)
        if 8 + length > len(raw):
            raw += self.read(file.path, len(raw), 8 + length)
        return parse_header(raw[8 : 8 + length], file.path, file.size - 8 - length)

    def headers(self, files: list[LockedFile]) -> dict[str, Header]:
        """Headers of all safetensors files."""
        weights = [f for f in files if f.path.endswith(".safetensors")]
        return dict(zip([f.path for f in weights], run_all(weights, self.header, PARALLEL), strict=True))

    def license(self, files: list[RemoteFile]) -> str | None:
        """What the card says at this commit."""
        if not any(f.path == "README.md" for f in files):
            return None
        return card_license(self.small("README.md").decode(errors="replace"), f"{self.repo}@{self.commit}/README.md")

    def _read(self, path: str, start: int, end: int | None) -> bytes:
        body = self.hub.open(self.repo, self.commit, path, start, end)
        try:
            skip, out = start - body.start, bytearray()
            wanted = skip + ((end - start) if end is not None else SMALL + 1)
            while len(out) < wanted and (piece := body.read(min(1 << 20, wanted - len(out)))):
                out += piece
        finally:
            body.close()
        if end is None and len(out) > skip + SMALL:
            raise HubError(
                "a file that should be small is not", on=f"{self.repo}/{path}", expected=f"up to {SMALL} bytes"
            )
        return bytes(out[skip:])


def wanted(files: list[RemoteFile], model: Model) -> list[RemoteFile]:
    """The files that the recipe asks for: its patterns (`*` also matches `/`, as on the hub), and all it names."""
    rules = model.files
    named = {*rules.required, *rules.roles, *rules.sha256, *(model.remote_code.files if model.remote_code else ())}
    return [f for f in files if f.path in named or any(fnmatch.fnmatchcase(f.path, p) for p in rules.allow)]
