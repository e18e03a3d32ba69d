"""One file from the hub to its place: resumed, hashed while it comes in, put there only if it is what the lock says.

An unfinished file lies under `partial/` by the sha256 it is to have. Its bytes are never trusted: a later run hashes
them again before it goes on behind them, so a rotten start is found at the end like any other wrong byte.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from recipectl.console import Progress
from recipectl.errors import HubError, PinError, UsageError
from recipectl.fsio import HashCache
from recipectl.hub.bodies import PIECE
from recipectl.hub.port import Hub, Retry
from recipectl.lockfile import LockedFile

BLOCK = 1 << 20
# Written pages are pushed out and dropped at this distance: unified-memory hosts need them for the weights.
FLUSH = 256 << 20


class Stopped(Exception):
    """Another worker failed, or Ctrl-C: this one gives up, its part stays."""


@dataclass(frozen=True)
class Source:
    """A repository of a hub at a commit, and how often in a row it may fail."""

    hub: Hub
    repo: str
    commit: str
    retries: int


@dataclass(frozen=True)
class Store:
    """Where files go: the model's folder, and the cache's folders for parts and for what turned out wrong."""

    folder: Path
    parts: Path
    quarantine: Path

    def reject(self, path: Path, name: str) -> Path:
        """Move a body with wrong bytes out of the way. It takes the place of the one before: a shard has 50 GB."""
        return self._move(path, name, lambda target: target.is_file() and not target.is_symlink())

    def put_aside(self, path: Path, name: str) -> Path:
        """Move what somebody else put here out of the way, beside whatever was moved earlier: nothing is lost."""
        return self._move(path, name, lambda target: False)

    def _move(self, path: Path, name: str, may_replace: Callable[[Path], bool]) -> Path:
        for number in itertools.count(1):
            root = self.quarantine if number == 1 else self.quarantine.with_name(f"{self.quarantine.name}-{number}")
            target = root / name
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):  # a file was moved here, and now a folder of its name
                continue
            if not os.path.lexists(target) or may_replace(target):
                path.replace(target)
                return target
        raise AssertionError("the count has no end")


class Fetcher:
    """Fetches files of one model. Used from several threads at once."""

    def __init__(
        self, source: Source, store: Store, cache: HashCache, stop: threading.Event, notice: Callable[[str], None]
    ) -> None:
        self._source, self._store, self._cache, self._stop, self._notice = source, store, cache, stop, notice

    def fetch(self, file: LockedFile, shown: Progress) -> None:
        """Bring one file into the model's folder.

        A body with the right size and wrong bytes is quarantined and fetched once more; then PinError with the hashes.
        HubError when the hub fails for good or the disk is full.
        """
        hashes: list[str] = []
        while len(hashes) < 2:
            with _disk_errors(file.path), self._part(file) as (part, fd):
                if part is None:  # another process brought it meanwhile
                    return
                hashes.append(self._body(file, fd, shown))
                if hashes[-1] == file.sha256:
                    return self._publish(file, part, fd)
                kept = self._store.reject(part, file.path)
            self._notice(f"{file.path}: sha256 {hashes[-1]}, not {file.sha256}; kept as {kept}")
            shown.advance(-file.size)
        raise self._corrupt(file, *hashes)

    @contextlib.contextmanager
    def _part(self, file: LockedFile) -> Iterator[tuple[Path | None, int]]:
        """The part, locked against other processes; None if the file came into its place while this one waited."""
        part = self._store.parts / f"{file.sha256}.part"
        part.parent.mkdir(parents=True, exist_ok=True)
        while True:
            fd = os.open(part, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                self._lock(fd)
                if _is_same(fd, part):
                    there = self._store.folder / file.path
                    yield (None if there.is_file() and there.stat().st_size == file.size else part), fd
                    return
            finally:
                os.close(fd)

    def _lock(self, fd: int) -> None:
        while True:
            try:
                return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self._stop.wait(0.2):
                    raise Stopped from None

    def _body(self, file: LockedFile, fd: int, shown: Progress) -> str:
        """Fill the part to its full size and return its sha256."""
        digest = hashlib.sha256()
        at = self._resume(file, fd, digest.update, shown)
        failures = 0
        while at < file.size:
            before = at
            try:
                at = self._read(file, fd, at, digest.update, shown)
            except _Restarted:
                shown.advance(-at)
                digest, at = hashlib.sha256(), 0
            except _Cut as cut:
                at, failures = cut.at, (1 if cut.at > before else failures + 1)
                self._wait(file, cut.retry, failures)
        return digest.hexdigest()

    def _resume(self, file: LockedFile, fd: int, update: Callable[[bytes], None], shown: Progress) -> int:
        """Hash what an earlier run left and return how much that is."""
        os.lseek(fd, 0, os.SEEK_SET)
        if os.fstat(fd).st_size > file.size:
            os.ftruncate(fd, 0)
        at = 0
        while block := os.read(fd, BLOCK):
            update(block)
            at += len(block)
            shown.advance(len(block))
            self._check_stop()
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return at

    def _read(self, file: LockedFile, fd: int, at: int, update: Callable[[bytes], None], shown: Progress) -> int:
        """One answer of the hub, written and hashed. Returns where the part ends now; _Cut says the same on failure."""
        source = self._source
        end = at + PIECE if file.size - at > PIECE else None
        try:
            body = source.hub.open(source.repo, source.commit, file.path, at, end)
        except Retry as retry:
            raise _Cut(at, retry) from retry
        try:
            if body.total is not None and body.total != file.size:
                raise self._other_size(file, body.total)
            if body.start != at:  # the hub ignores ranges
                os.ftruncate(fd, 0)
                os.lseek(fd, 0, os.SEEK_SET)
                raise _Restarted
            limit, flushed = (end or file.size), at
            while at < limit:
                try:
                    block = body.read(min(BLOCK, limit - at))
                except Retry as retry:
                    raise _Cut(at, retry) from retry
                if not block:
                    raise _Cut(at, Retry(self._short(file, at)))
                _write(fd, block)
                update(block)
                at += len(block)
                shown.advance(len(block))
                self._check_stop()
                if at - flushed >= FLUSH:
                    os.fdatasync(fd)
                    os.posix_fadvise(fd, flushed, at - flushed, os.POSIX_FADV_DONTNEED)
                    flushed = at
            if limit == file.size and body.total is None and body.read(1):
                raise self._other_size(file, f"more than {file.size}")
            return at
        finally:
            body.close()

    def _publish(self, file: LockedFile, part: Path, fd: int) -> None:
        """Into the model's folder, durable before it is remembered as verified."""
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        target = self._store.folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        part.replace(target)
        self._cache.remember(target, file.sha256)

    def _wait(self, file: LockedFile, retry: Retry, failures: int) -> None:
        if failures >= self._source.retries:
            raise retry.error from retry
        wait = min(retry.wait_s if retry.wait_s is not None else 2.0 ** (failures - 1), 60.0)
        self._notice(f"{file.path}: {retry.error.what} ({retry.error.seen}); again in {wait:.0f} s")
        if self._stop.wait(wait):
            raise Stopped

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Stopped

    def _on(self, file: LockedFile) -> str:
        return f"{self._source.repo}@{self._source.commit}/{file.path} at {self._source.hub.endpoint}"

    def _short(self, file: LockedFile, at: int) -> HubError:
        return HubError(
            "the hub ends a file too early", on=self._on(file), seen=f"{at} bytes", expected=f"{file.size} bytes"
        )

    def _other_size(self, file: LockedFile, seen: object) -> PinError:
        return PinError(
            "the hub serves a file of another size than the lock names", on=self._on(file), seen=f"{seen} bytes",
            expected=f"{file.size} bytes", next_step="use another endpoint (HF_ENDPOINT): this one does not serve it",
        )  # fmt: skip

    def _corrupt(self, file: LockedFile, first: str, second: str) -> PinError:
        return PinError(
            "the hub serves other bytes than the lock names, twice", on=self._on(file),
            seen=f"sha256 {first}, then {second}", expected=f"sha256 {file.sha256}",
            details=[f"the bytes are kept under {self._store.quarantine}"],
            next_step="use another endpoint (HF_ENDPOINT), or check this machine's memory and disk if the two differ",
        )  # fmt: skip


class _Cut(Exception):
    def __init__(self, at: int, retry: Retry) -> None:
        super().__init__()
        self.at, self.retry = at, retry


class _Restarted(Exception):
    """The hub ignored the range: the part is empty again."""


def _is_same(fd: int, path: Path) -> bool:
    """Whether the open file still is the one at that path: its last holder may have moved it into place."""
    try:
        at_path = path.stat()
    except FileNotFoundError:
        return False
    opened = os.fstat(fd)
    return (at_path.st_dev, at_path.st_ino) == (opened.st_dev, opened.st_ino)


def _write(fd: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(fd, view) :]


@contextlib.contextmanager
def _disk_errors(name: str) -> Iterator[None]:
    """A full disk and a folder that cannot be written are the user's to mend, not bugs."""
    try:
        yield
    except OSError as err:
        raise disk_error(err, name) from err


def two_disks(folder: str) -> UsageError:
    """The error for a folder of the cache that is a link to another disk, or a mount of its own."""
    return UsageError(
        "the folders of the cache lie on different disks", on=folder,
        expected="one file system: a finished file is moved into its place, not copied",
        next_step="set RECIPECTL_CACHE to a folder on the large disk, instead of linking or mounting one inside of it",
    )  # fmt: skip


def disk_error(err: OSError, on: str) -> HubError | UsageError:
    """The error for an OSError of the cache folder."""
    if err.errno in (errno.ENOSPC, errno.EDQUOT):
        return HubError(
            "the disk is full", on=str(err.filename or on), seen=err.strerror,
            next_step="make room, or set RECIPECTL_CACHE to another disk; what is here stays and is gone on with",
        )  # fmt: skip
    if err.errno == errno.EXDEV:
        return two_disks(str(err.filename2 or err.filename or on))
    return UsageError(
        "the cache cannot be written", on=str(err.filename or on), seen=err.strerror,
        next_step="set RECIPECTL_CACHE to a folder that you may write",
    )  # fmt: skip
