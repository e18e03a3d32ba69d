"""Verify a model folder against its lock: offline, every file, our own sha256. The lock alone is believed."""

from __future__ import annotations

import os
import platform
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recipectl.errors import RecipectlError
from recipectl.fsio import HashCache
from recipectl.hub.store import safe_name, shown_name, walk
from recipectl.lockfile import LockedFile, LockedModel
from recipectl.workers import run_all

Kind = Literal["missing", "extra", "size", "changed", "symlink", "unreadable"]


@dataclass(frozen=True)
class Problem:
    """One file that is not as the lock says."""

    kind: Kind
    path: str
    seen: str | None = None
    expected: str | None = None

    def line(self) -> str:
        """`kind path: seen X, expected Y`."""
        facts = [f"seen {self.seen}" if self.seen else "", f"expected {self.expected}" if self.expected else ""]
        text = ", ".join(f for f in facts if f)
        return f"{self.kind} {shown_name(self.path)}" + (f": {text}" if text else "")


def default_jobs(unified_memory: bool) -> int:
    """Hashing threads: one a core, but two where CPU and GPU share memory (page-cache floods have wedged such hosts).

    A lane for unified memory can be pulled on another machine; those machines are all ARM.
    """
    cores = len(os.sched_getaffinity(0))
    return min(2, cores) if unified_memory and platform.machine() in ("aarch64", "arm64") else cores


def verify_model(
    folder: Path,
    locked: LockedModel,
    cache: HashCache,
    full: bool = False,
    jobs: int | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> list[Problem]:
    """Everything that is wrong with a model folder, by file name; empty if it is exactly what the lock names.

    `full` reads every byte; otherwise a file whose device, inode, size, mtime and ctime are unchanged since it was
    hashed is taken at its remembered hash.
    """
    names = {safe_name(f.path) for f in locked.files}
    problems = [Problem("extra", name) for name in walk(folder) if name not in names]

    def check(file: LockedFile) -> Problem | None:
        return _check(folder, file, cache, full, on_bytes)

    # Largest first: a big shard that starts last would leave the other cores idle.
    order = sorted(locked.files, key=lambda f: -f.size)
    problems += [p for p in run_all(order, check, jobs or default_jobs(False)) if p]
    return sorted(problems, key=lambda p: p.path)


def _check(
    folder: Path, file: LockedFile, cache: HashCache, full: bool, on_bytes: Callable[[int], None] | None
) -> Problem | None:
    path = folder / file.path
    try:
        if found := _not_a_real_file(folder, path, file.path):
            return found
        size = path.stat().st_size
        if size != file.size:
            return Problem("size", file.path, f"{size} bytes", f"{file.size} bytes")
        sha = cache.sha256(path, full=full, on_bytes=on_bytes)
    except OSError as err:
        return Problem("unreadable", file.path, err.strerror)
    except RecipectlError as err:
        return Problem("changed", file.path, err.what)
    return None if sha == file.sha256 else Problem("changed", file.path, f"sha256 {sha}", f"sha256 {file.sha256}")


def _not_a_real_file(folder: Path, path: Path, name: str) -> Problem | None:
    """A link is a problem even where it leads to the right bytes: a mount of the folder would not carry them."""
    for part in (*reversed([p for p in path.parents if p.is_relative_to(folder) and p != folder]), path):
        if part.is_symlink():
            broken = "" if part.exists() else " (broken)"
            return Problem("symlink", name, f"a link to {part.readlink()}{broken}", "a real file")
    try:
        mode = path.lstat().st_mode
    except OSError as err:
        return Problem("missing", name, None if isinstance(err, FileNotFoundError) else err.strerror)
    return None if stat.S_ISREG(mode) else Problem("unreadable", name, "not a regular file", "a real file")
