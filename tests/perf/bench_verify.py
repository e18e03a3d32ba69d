"""Verify: throughput on a multi-file tree in the page cache, time of a second verify, peak memory.

    python tests/perf/bench_verify.py [--gb 4] [--rounds 3] [--dir DIR]

The tree must fit the page cache beside everything else; it is written once, read twice to warm it, and removed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from recipectl.fsio import sha256_file
from recipectl.hub.verify import default_jobs
from recipectl.lockfile import LockedFile, LockedModel, tree_digest
from recipectl.workers import run_all

BLOCK = 4 << 20


def bare_rate(threads: int, seconds: float = 2.0) -> tuple[float, float]:
    """Bytes of sha256 that this many threads do in a second, together, from buffers in their caches: of wall time,
    and of the CPU time that they got."""
    data, done = os.urandom(1 << 20), [0] * threads

    def work(index: int) -> None:
        digest = hashlib.sha256()
        while time.perf_counter() - start < seconds:
            digest.update(data)
            done[index] += len(data)

    start, cpu = time.perf_counter(), time.process_time()
    run_all(range(threads), work, threads)
    return sum(done) / (time.perf_counter() - start), sum(done) / (time.process_time() - cpu)


def make_tree(folder: Path, sizes: list[int]) -> LockedModel:
    """Files of these sizes with their lock."""
    block, files = os.urandom(BLOCK), []
    for index, size in enumerate(sizes):
        path, digest = folder / f"model-{index:05}.safetensors", hashlib.sha256()
        with path.open("wb") as out:
            left = size
            while left:
                piece = block[: min(BLOCK, left)]
                out.write(piece)
                digest.update(piece)
                left -= len(piece)
        files.append(LockedFile(path=path.name, size=size, sha256=digest.hexdigest()))
    os.sync()  # dirty pages would be written out on our time
    tree = tree_digest({f.path: f.sha256 for f in files})
    return LockedModel(role="target", path="x", tree=tree, files=tuple(files))


def warm(folder: Path) -> None:
    """Bring the tree into the page cache whole: before Linux 6.5 verify drops what it read."""
    for path in folder.iterdir():
        with path.open("rb", buffering=0) as handle:
            while handle.read(BLOCK):
                pass


CHILD = """
import resource, sys, time
from pathlib import Path
from recipectl.fsio import HashCache
from recipectl.hub.verify import verify_model
from recipectl.lockfile import LockedModel
folder, lock, hashes = map(Path, sys.argv[1:])
locked = LockedModel.model_validate_json(lock.read_text())
start, cpu = time.perf_counter(), time.process_time()
cache = HashCache(hashes)
problems = verify_model(folder, locked, cache)
cache.save()
print(time.perf_counter() - start, time.process_time() - cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
sys.exit(bool(problems))
"""


def verify(folder: Path, locked: LockedModel, hashes: Path) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak memory (bytes) of one verify in a process of its own."""
    lock = hashes.with_suffix(".lock")
    lock.write_text(locked.model_dump_json())
    argv = [sys.executable, "-c", CHILD, str(folder), str(lock), str(hashes)]
    wall, cpu, peak = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    return float(wall), float(cpu), float(peak)


def throughput(base: Path, size: int, rounds: int) -> None:
    """Verify a tree of `size` bytes from the page cache, against bare sha256 on one core and on all of them.

    On a machine with nothing else to do, all cores do `cores` times what one does. On a busy one they do not: run this
    at a real-time priority there (`chrt -r 10`), or look at the share of what they do at that moment.
    """
    folder, cores = base / "tree", default_jobs(False)
    folder.mkdir()
    locked = make_tree(folder, [size // 16] * 12 + [size // 64] * 16)
    ideal, fair, peaks = [], [], []
    for index in range(rounds):
        warm(folder)
        one, _ = bare_rate(1)
        before, _ = bare_rate(cores)
        wall, _, peak = verify(folder, locked, base / f"hashes-{index}.json")
        after, _ = bare_rate(cores)
        ideal.append(locked.size / wall / (cores * one))
        fair.append(locked.size / wall / ((before + after) / 2))
        peaks.append(peak)
        print(f"verify {locked.size / wall / 1e9:.2f} GB/s; bare sha256 on one core {one / 1e9:.2f}, on {cores} before "
              f"{before / 1e9:.2f}, after {after / 1e9:.2f}; load {os.getloadavg()[0]:.1f}")  # fmt: skip
    print(f"share of {cores} cores x one-core rate: median {statistics.median(ideal):.2f} (to reach: 0.9)")
    print(f"share of bare sha256 on {cores} cores at that moment: median {statistics.median(fair):.2f}")
    print(f"peak memory: {max(peaks) / 1e6:.0f} MB (to stay under: 100)")


def one_thread(base: Path) -> None:
    """CPU time of hashing 1 GB from the page cache against the same bytes from a buffer: what reading costs."""
    folder = base / "one"
    folder.mkdir()
    make_tree(folder, [1 << 30])
    path = next(folder.iterdir())
    shares = []
    for _ in range(5):
        warm(folder)
        _, bare = bare_rate(1, 1.0)
        cpu = time.process_time()
        sha256_file(path)
        shares.append((1 << 30) / (time.process_time() - cpu) / bare)
    print(
        f"one thread, of its CPU time: median {statistics.median(shares):.2f} of a bare sha256, best {max(shares):.2f}"
    )


def unchanged(base: Path) -> None:
    """The second verify of 200 unchanged files."""
    folder = base / "tree"
    folder.mkdir()
    locked = make_tree(folder, [100_000] * 200)
    first, *_ = verify(folder, locked, base / "hashes.json")
    again = [verify(folder, locked, base / "hashes.json")[0] for _ in range(5)]
    print(f"200 files: first {first:.3f} s, unchanged again {statistics.median(again):.3f} s (to stay under: 0.2)")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gb", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as base:
        throughput(Path(base), int(args.gb * 1e9), args.rounds)
        one_thread(Path(base))
    with tempfile.TemporaryDirectory(dir=args.dir) as base:
        unchanged(Path(base))


if __name__ == "__main__":
    main()
