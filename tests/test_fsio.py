"""Atomic writes, locks and remembered hashes, against the real file system and real processes."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recipectl.errors import UsageError
from recipectl.fsio import HashCache, locked, sha256_file, write_atomic

HOLDER = """
import sys, time
from pathlib import Path
from recipectl.fsio import locked
with locked(Path(sys.argv[1]), "pull of x"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_write_atomic_replaces_the_whole_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file.json"
    write_atomic(target, "old")
    write_atomic(target, b"new", mode=0o600)
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in target.parent.iterdir()] == ["file.json"]


def test_write_atomic_keeps_the_old_file_when_the_disk_refuses(tmp_path: Path) -> None:
    target = tmp_path / "file"
    write_atomic(target, "old")
    limited = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));"
        "from recipectl.fsio import write_atomic; from pathlib import Path;"
        "write_atomic(Path(sys.argv[1]), b'x' * 5000)"
    )
    run = subprocess.run([sys.executable, "-c", limited, str(target)], capture_output=True, text=True, check=False)
    assert run.returncode != 0 and "File too large" in run.stderr
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_lock_names_its_holder_and_dies_with_it(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "pull.lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(UsageError) as refused, locked(path, "pull of y", wait_s=0):
            pass
        assert f"pid {holder.pid}, pull of x" in (refused.value.seen or "")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with locked(path, "pull of y", wait_s=2):
            assert f"pid {os.getpid()}" in path.read_text()
    finally:
        holder.kill()
        holder.wait()


def test_sha256_equals_the_library(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    data = os.urandom(9 << 20)
    path.write_bytes(data)
    seen: list[int] = []
    assert sha256_file(path, seen.append) == hashlib.sha256(data).hexdigest()
    assert sum(seen) == len(data)


def test_hash_cache_sees_an_edit_that_keeps_size_and_mtime(tmp_path: Path) -> None:
    path, store = tmp_path / "weights", tmp_path / "hashes.json"
    path.write_bytes(b"a" * 100)
    before = path.stat()
    cache = HashCache(store)
    first = cache.sha256(path)
    cache.save()
    assert HashCache(store).get(path) == first
    time.sleep(0.02)
    path.write_bytes(b"b" * 100)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert HashCache(store).get(path) is None
    assert HashCache(store).sha256(path) == hashlib.sha256(b"b" * 100).hexdigest()


def test_a_damaged_hash_cache_is_dropped(tmp_path: Path) -> None:
    store = tmp_path / "hashes.json"
    store.write_text('{"1:2:3":')
    path = tmp_path / "f"
    path.write_text("x")
    assert HashCache(store).sha256(path) == hashlib.sha256(b"x").hexdigest()


def test_full_reads_the_bytes_whatever_is_remembered(tmp_path: Path) -> None:
    path, store = tmp_path / "f", tmp_path / "hashes.json"
    path.write_text("x")
    cache = HashCache(store)
    cache.sha256(path)
    cache.save()
    store.write_text(store.read_text().replace(hashlib.sha256(b"x").hexdigest(), "0" * 64))
    poisoned = HashCache(store)
    assert poisoned.sha256(path) == "0" * 64
    assert poisoned.sha256(path, full=True) == hashlib.sha256(b"x").hexdigest()
