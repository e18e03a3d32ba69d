"""Files done safely: atomic writes, locks that die with their holder, hashing that spares the page cache."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import mmap
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from recipectl import pagecache
from recipectl.errors import RecipectlError, UsageError

CHUNK = 1 << 20
# What is mapped at a time: each hashing thread holds this much, and reads as much ahead.
_WINDOW = 4 << 20
_MADV_POPULATE_READ = 22  # Linux 5.14; the mmap module has no name for it


def write_atomic(path: Path, data: bytes | str, *, mode: int = 0o644) -> None:
    """Write a whole file or nothing: a temporary file in the same folder, fsync, rename, fsync of the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = data.encode() if isinstance(data, str) else data
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(fd, "wb") as out:
            out.write(raw)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    except BaseException as err:
        temporary.unlink(missing_ok=True)
        if isinstance(err, OSError) and err.filename is None:
            err.filename = str(path)  # a write that finds no room names no file
        raise
    with contextlib.suppress(OSError):  # some network file systems cannot sync a folder; the rename stands anyway
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_json(path: Path, value: object, *, mode: int = 0o644) -> None:
    """A JSON document, indented and sorted, written atomically."""
    write_atomic(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, default=str) + "\n", mode=mode)


@contextlib.contextmanager
def locked(
    path: Path, doing: str, *, wait_s: float | None = None, notice: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Hold an advisory lock; the kernel frees it when the holder dies.

    `wait_s` None waits for ever, 0 fails at once. The lock file names its holder, so that whoever waits can say for
    whom. Correctness must not hang on it alone: flock does nothing on some network file systems.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as handle:
        deadline = None if wait_s is None else time.monotonic() + wait_s
        told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                handle.seek(0)
                holder = handle.read().strip() or "another process"
                if deadline is not None and time.monotonic() >= deadline:
                    raise UsageError(
                        f"{doing} is already under way",
                        on=str(path),
                        seen=f"held by {holder}",
                        next_step="wait for it, or stop it, then try again",
                    ) from None
                if notice and not told:
                    notice(f"waiting for {holder}")
                    told = True
                time.sleep(0.1)
        handle.seek(0)
        handle.truncate()
        handle.write(f"pid {os.getpid()}, {doing}, since {time.strftime('%Y-%m-%d %H:%M:%S')}")
        handle.flush()
        try:
            yield
        finally:
            handle.seek(0)
            handle.truncate()
            handle.flush()
            fcntl.flock(handle, fcntl.LOCK_UN)


def sha256_file(path: Path, on_bytes: Callable[[int], None] | None = None) -> str:
    """sha256 of a file in hex. What is read is dropped from the page cache again: a full cache has wedged UMA hosts. A
    file that lay there whole before stays: dropping it would cost the engine that loads it a second read.

    The file is mapped where the system can say that a page cannot be read (Linux 5.14), which spares a copy: 0.98 of a
    bare sha256 instead of 0.91. A plain mapping would end the process with SIGBUS on a bad disk.
    """
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as handle:
        fd, size = handle.fileno(), os.fstat(handle.fileno()).st_size
        drop = not pagecache.holds_whole(fd, size)
        at = _hash_mapped(fd, size, drop, digest.update, on_bytes)
        handle.seek(at)
        buffer = memoryview(bytearray(CHUNK if at < size else 1))
        while n := handle.readinto(buffer):
            digest.update(buffer[:n])
            if drop:
                os.posix_fadvise(fd, at, n, os.POSIX_FADV_DONTNEED)
            at += n
            if on_bytes:
                on_bytes(n)
    return digest.hexdigest()


def _hash_mapped(
    fd: int, size: int, drop: bool, update: Callable[[memoryview], None], on_bytes: Callable[[int], None] | None
) -> int:
    """Hash a file through a mapping and return how far that went: 0 where the kernel or the file system cannot.

    OSError for pages that cannot be read.
    """
    try:
        mapped = mmap.mmap(fd, size, prot=mmap.PROT_READ)
        mapped.madvise(_MADV_POPULATE_READ, 0, 1)
    except (OSError, ValueError):  # an empty file; an older kernel; a file system without mappings
        return 0
    with mapped, memoryview(mapped) as view:
        for at in range(0, size, _WINDOW):
            length = min(_WINDOW, size - at)
            os.posix_fadvise(fd, at + length, _WINDOW, os.POSIX_FADV_WILLNEED)
            try:
                mapped.madvise(_MADV_POPULATE_READ, at, length)
            except OSError as err:  # "bad address" is how the kernel puts a page that it cannot bring
                raise OSError(errno.EIO, f"cannot be read at bytes {at} to {at + length}") from err
            update(view[at : at + length])
            mapped.madvise(mmap.MADV_DONTNEED, at, length)
            if drop:
                os.posix_fadvise(fd, at, length, os.POSIX_FADV_DONTNEED)
            if on_bytes:
                on_bytes(length)
    return size


def identity(path: Path) -> tuple[int, int, int, int, int]:
    """What must be unchanged for a remembered hash to hold: device, inode, size, mtime and ctime in ns.

    ctime cannot be set by a user, so a file edited with its mtime kept is still seen.
    """
    st = path.stat()
    return (st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns)


def remembered(path: Path) -> dict[str, str]:
    """Texts by name from a JSON file that only ever saves time: one that is damaged or not there is empty."""
    try:
        loaded = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return {k: v for k, v in loaded.items() if isinstance(v, str)} if isinstance(loaded, dict) else {}


class HashCache:
    """Remembered sha256 by file identity, kept as one JSON file in the state directory.

    A damaged cache file is dropped: it is only ever a saving of time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = remembered(path)
        self._dirty = False

    @staticmethod
    def _key(path: Path) -> str:
        return ":".join(map(str, identity(path)))

    def get(self, path: Path) -> str | None:
        """The remembered hash of a file that has not changed since, or None."""
        return self._known.get(self._key(path))

    def sha256(self, path: Path, *, full: bool = False, on_bytes: Callable[[int], None] | None = None) -> str:
        """The hash of a file, remembered or computed. `full` always reads the bytes.

        Raises RecipectlError if the file changed while it was read.
        """
        key = self._key(path)
        if not full and (known := self._known.get(key)):
            if on_bytes:
                on_bytes(path.stat().st_size)
            return known
        value = sha256_file(path, on_bytes)
        if self._key(path) != key:
            raise RecipectlError(
                "a file changed while it was hashed", on=str(path), next_step="stop what writes to it, try again"
            )
        self._known[key] = value
        self._dirty = True
        return value

    def remember(self, path: Path, sha256: str) -> None:
        """Keep a hash that was computed while the file was written. Call it after the last rename: that sets ctime."""
        self._known[self._key(path)] = sha256
        self._dirty = True

    def save(self) -> None:
        """Write the cache back if it has learned anything. Where that is not possible, the next run hashes again."""
        if self._dirty:
            with contextlib.suppress(OSError):
                write_json(self._path, dict(self._known))  # a copy: a thread that was given up may still add to it
            self._dirty = False
