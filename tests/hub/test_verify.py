"""`verify`: every way in which a tree can differ from its lock is named; an unchanged tree is not read twice."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from recipectl import fsio
from recipectl.fsio import HashCache, sha256_file
from recipectl.hub.store import safe_name
from recipectl.hub.verify import verify_model
from recipectl.lockfile import LockedFile, LockedModel, tree_digest
from recipectl.workers import run_all
from tests.hub.models import noise
from tests.hub.pair import Pair

# sha256 of the three bodies, from `printf one | sha256sum` and so on.
ONE = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
TWO = "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3"
THREE = "8b5b9db0c13db24256c829aa364aa90c6d2eba318b9232a4ab9313b954d3555f"

KERNEL = tuple(int(n) for n in os.uname().release.split("-")[0].split(".")[:2])


@pytest.fixture
def tree(tmp_path: Path) -> tuple[Path, LockedModel]:
    folder = tmp_path / "tree"
    (folder / "sub").mkdir(parents=True)
    shas = {"a.txt": ONE, "b.txt": TWO, "sub/c.txt": THREE}
    for name, body in (("a.txt", "one"), ("b.txt", "two"), ("sub/c.txt", "three")):
        (folder / name).write_text(body)
    files = tuple(LockedFile(path=n, size=(folder / n).stat().st_size, sha256=s) for n, s in shas.items())
    return folder, LockedModel(role="target", path="tree", tree=tree_digest(shas), files=files)


def problems(tree: tuple[Path, LockedModel], **kwargs: bool) -> list[str]:
    folder, locked = tree
    return [p.line() for p in verify_model(folder, locked, HashCache(folder.parent / "hashes.json"), **kwargs)]


def test_a_tree_as_locked(tree: tuple[Path, LockedModel]) -> None:
    assert problems(tree) == []


def test_each_difference_is_named(tree: tuple[Path, LockedModel]) -> None:
    folder, _ = tree
    (folder / "a.txt").write_text("ONE")
    (folder / "b.txt").unlink()
    (folder / "b.txt").symlink_to("gone")
    (folder / "sub" / "c.txt").write_text("three!")
    (folder / "x.py").write_text("import os")
    assert [line.split(":")[0] for line in problems(tree)] == [
        "changed a.txt", "symlink b.txt", "size sub/c.txt", "extra x.py",
    ]  # fmt: skip
    assert "(broken)" in problems(tree)[1]
    assert f"expected sha256 {ONE}" in problems(tree)[0]


def test_missing_file_and_missing_folder(tree: tuple[Path, LockedModel]) -> None:
    folder, locked = tree
    (folder / "b.txt").unlink()
    assert problems(tree) == ["missing b.txt"]
    gone = (folder.parent / "nowhere", locked)
    assert problems(gone) == ["missing a.txt", "missing b.txt", "missing sub/c.txt"]


def test_a_link_to_the_right_bytes_is_still_a_problem(tree: tuple[Path, LockedModel]) -> None:
    folder, _ = tree
    (folder / "a.txt").rename(folder.parent / "outside")
    (folder / "a.txt").symlink_to(folder.parent / "outside")
    (folder / "sub").rename(folder.parent / "elsewhere")
    (folder / "sub").symlink_to(folder.parent / "elsewhere")
    assert [line.split(":")[0] for line in problems(tree)] == ["symlink a.txt", "extra sub", "symlink sub/c.txt"]


def test_something_that_is_no_file(tree: tuple[Path, LockedModel]) -> None:
    folder, _ = tree
    (folder / "a.txt").unlink()
    os.mkfifo(folder / "a.txt")
    assert problems(tree) == ["unreadable a.txt: seen not a regular file, expected a real file"]


def test_an_edit_with_its_mtime_kept_is_seen(tree: tuple[Path, LockedModel]) -> None:
    folder, locked = tree
    cache = HashCache(folder.parent / "hashes.json")
    assert verify_model(folder, locked, cache) == []
    before = (folder / "a.txt").stat()
    (folder / "a.txt").write_text("ONE")
    os.utime(folder / "a.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [p.kind for p in verify_model(folder, locked, cache)] == ["changed"]


def test_full_ignores_what_was_remembered(tree: tuple[Path, LockedModel]) -> None:
    folder, locked = tree
    cache = HashCache(folder.parent / "hashes.json")
    (folder / "a.txt").write_text("ONE")
    cache.remember(folder / "a.txt", ONE)  # as a rotten disk would: the bytes changed, nothing else did
    assert verify_model(folder, locked, cache) == []
    assert [p.kind for p in verify_model(folder, locked, cache, full=True)] == ["changed"]


@pytest.mark.parametrize("before", [0.0, 0.5])
def test_pages_that_hashing_brought_into_the_cache_are_dropped(tmp_path: Path, before: float) -> None:
    """A flooded page cache has wedged unified-memory hosts; the kernel's own count of resident pages shows it."""
    path = _weights(tmp_path, before)
    HashCache(tmp_path / "hashes.json").sha256(path)
    assert _resident(path) < 0.1


@pytest.mark.skipif(KERNEL < (6, 5), reason="before Linux 6.5 nothing tells what is cached, and all is dropped")
def test_a_file_that_lay_whole_in_the_cache_stays_there(tmp_path: Path) -> None:
    path = _weights(tmp_path, 1.0)
    HashCache(tmp_path / "hashes.json").sha256(path)
    assert _resident(path) > 0.9


def _weights(folder: Path, cached: float) -> Path:
    """A file of 32 MiB of which this share, from its start, lies in the page cache."""
    path = folder / "weights"
    path.write_bytes(noise(32 << 20))
    with path.open("rb", buffering=0) as handle:
        os.fsync(handle.fileno())
        kept = int(cached * (32 << 20))
        os.posix_fadvise(handle.fileno(), kept, 0, os.POSIX_FADV_DONTNEED)
    assert abs(_resident(path) - cached) < 0.1
    return path


def _resident(path: Path) -> float:
    """Share of a file in the page cache, from mincore(2)."""
    import ctypes
    import mmap

    with path.open("rb") as handle:
        view = mmap.mmap(handle.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
        pages = (len(view) + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        buffer = ctypes.c_char.from_buffer(view)
        found = (ctypes.c_ubyte * pages)()
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mincore(ctypes.c_void_p(ctypes.addressof(buffer)), ctypes.c_size_t(len(view)), found) == 0
        share = sum(b & 1 for b in found) / pages
        del buffer
        view.close()
    return share


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../b", "a\\b", "a\nb", "", "./a", "a//b", "."])
def test_names_that_lead_out(name: str) -> None:
    from recipectl.errors import PinError

    with pytest.raises(PinError):
        safe_name(name)


def test_command_line_names_model_and_file(pair: Pair) -> None:
    assert pair.pull().returncode == 0
    (pair.model(pair.drafter) / "config.json").write_bytes(b"{}")
    done = pair.run("verify", "pair", "--sm", "cpu", HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 4
    assert "drafter: size config.json: seen 2 bytes" in done.stderr
    assert "recipectl pull pair --sm cpu" in done.stderr


def test_what_may_not_be_read_is_named_and_never_passed_by(pair: Pair) -> None:
    """Closed to this user; an engine in a container may be root and read it."""
    assert pair.pull().returncode == 0
    folder = pair.model(pair.target)
    (folder / "closed").mkdir()
    (folder / "closed" / "modeling.py").write_text("import os")
    (folder / "closed").chmod(0)
    (folder / "config.json").chmod(0)
    bare = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"] if os.geteuid() == 0 else []
    argv = [*bare, sys.executable, "-m", "recipectl", "verify", "pair", "--sm", "cpu"]
    done = subprocess.run(argv, cwd=pair.folder, env=pair.env, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "target: extra closed\n" in done.stderr
    assert "target: unreadable config.json: seen Permission denied" in done.stderr
    folder.chmod(0)
    done = subprocess.run(argv, cwd=pair.folder, env=pair.env, capture_output=True, text=True, check=False)
    folder.chmod(0o755)
    (folder / "closed").chmod(0o755)
    assert done.returncode == 4 and "target: unreadable tokenizer.json: seen Permission denied" in done.stderr


def test_names_do_not_speak_to_the_terminal(pair: Pair) -> None:
    assert pair.pull().returncode == 0
    (pair.model(pair.target) / "red\n\x1b[31mname").write_text("x")
    done = pair.run("verify", "pair", "--sm", "cpu")
    assert done.returncode == 4 and "extra 'red\\n\\x1b[31mname'\n" in done.stderr
    again = pair.pull()
    assert again.returncode == 0 and "\x1b" not in again.stderr and "red\\n" in again.stderr


def test_workers_give_results_in_order_and_stop_at_the_first_error() -> None:
    assert run_all([3, 1, 2], lambda n: n * 10, 2) == [30, 10, 20]
    stop, started = threading.Event(), []

    def work(n: int) -> int:
        started.append(n)
        if n == 0:
            raise ValueError("first")
        while not stop.wait(0.01):
            pass
        return n

    begin = time.monotonic()
    with pytest.raises(ValueError, match="first"):
        run_all(list(range(100)), work, 4, stop)
    assert time.monotonic() - begin < 5 and stop.is_set() and len(started) < 10


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, (9 << 20) + 5])
def test_hashes_at_every_edge_of_the_window(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against hashlib on the same bytes, mapped and, where the kernel cannot map, read."""
    body, path = noise(size), tmp_path / "x"
    path.write_bytes(body)
    seen: list[int] = []
    assert sha256_file(path, seen.append) == hashlib.sha256(body).hexdigest()
    assert sum(seen) == size
    monkeypatch.setattr(fsio, "_MADV_POPULATE_READ", 9999)  # a kernel before 5.14 answers EINVAL
    assert sha256_file(path) == hashlib.sha256(body).hexdigest()
