"""Pull over loopback, hashing and fsync included, beside the hub library's own download of the same tree.

    python -m tests.perf.bench_pull [--gb 1] [--rounds 5]

Both are whole processes against the test hub of tests/hub, which runs in a process of its own; rounds alternate.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from tests.hub import models
from tests.hub.pair import NC_ND, make_pair
from tests.hub.testhub import TestHub

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = """
import sys
from huggingface_hub import snapshot_download
snapshot_download(sys.argv[1], revision=sys.argv[2], cache_dir=sys.argv[3], endpoint=sys.argv[4], token=False,
                  ignore_patterns=["*.bin"])
"""


def big_target(size: int, files: int = 8) -> dict[str, bytes]:
    """A target of `size` bytes in shards."""
    small = models.target()
    shapes = {f"model-{i:05}.safetensors": {f"layer.{i}.weight": (size // files // 2,)} for i in range(files)}
    kept = {n: b for n, b in small.items() if n in ("README.md", "config.json", "tokenizer.json")}
    return kept | {n: models.safetensors(s, n) for n, s in shapes.items()}


def serve(size: int, folder: Path, to: Connection) -> None:
    """The hub, until the other end closes."""
    with TestHub() as hub:
        pair = make_pair(hub, folder, dict(os.environ))
        pair.target.commit(big_target(size))
        pair.write()
        to.send((hub.endpoint, pair.target.refs["main"], pair.env))
        to.recv()


def timed(argv: list[str], env: dict[str, str], cwd: Path) -> float:
    """Wall seconds of a process."""
    start = time.perf_counter()
    done = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    assert done.returncode == 0, done.stderr
    return seconds


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    here, there = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory() as base:
        folder, size = Path(base), int(args.gb * 1e9)
        server = multiprocessing.Process(target=serve, args=(size, folder, there), daemon=True)
        server.start()
        endpoint, commit, env = here.recv()
        env |= {"HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONPATH": str(ROOT), "RECIPECTL_HUB_TIMEOUT_S": "60"}
        recipectl = [sys.executable, "-m", "recipectl"]
        timed([*recipectl, "lock", "pair"], env, folder)
        pull = [*recipectl, "pull", "pair", "--sm", "cpu", "--only", "target", "--accept-license", NC_ND]
        library = [sys.executable, "-c", LIBRARY, "acme/Target", commit, str(folder / "hf"), endpoint]
        ours, theirs = [], []
        for _ in range(args.rounds):
            theirs.append(timed(library, env, folder))
            ours.append(timed(pull, env, folder))
            print(f"hub library {theirs[-1]:.2f} s, recipectl pull {ours[-1]:.2f} s; load {os.getloadavg()[0]:.1f}")
            for used in ("hf", "cache", "state"):
                shutil.rmtree(folder / used, ignore_errors=True)
        ratio = statistics.median(o / t for o, t in zip(ours, theirs, strict=True))
        print(f"{args.gb:g} GB: median {statistics.median(ours):.2f} s against {statistics.median(theirs):.2f} s")
        print(f"median ratio {ratio:.2f} (to reach: at most 1.15)")
        here.send("stop")
        server.join(5)


if __name__ == "__main__":
    main()
