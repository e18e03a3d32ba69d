"""Build: an overlay of ten files on a local base, and the same again with nothing changed.

    python tests/perf/bench_build.py [--rounds 3]

Starts its own Docker engine and registry (root, docker.io, docker-registry), like the tests. Limits of issue 5: rebuild
under 1 s as a whole command line; ten files under 25 s, of which recipectl's own time under 2 s.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tests.docker_engine import available, dockerd, import_image, push, python_rootfs, registry  # noqa: E402

FILES = 10
SITE = "/opt/site"


def source(number: int) -> str:
    """A module of 400 lines, about the size of those that overlays patch."""
    return "".join(f"value_{number}_{line} = {line}\n" for line in range(400))


def write(work: Path, ref: str, digest: str, run: int) -> None:
    """A recipe and an overlay that patches FILES files. `run` makes every round's overlay another one."""
    folder = work / "overlays" / "ten"
    folder.mkdir(parents=True, exist_ok=True)
    patches = []
    for n in range(FILES):
        old = source(n)
        new = old.replace(f"value_{n}_200 = 200\n", f"value_{n}_200 = {run}\n")
        context = [f" value_{n}_{i} = {i}" for i in (197, 198, 199)]
        after = [f" value_{n}_{i} = {i}" for i in (201, 202, 203)]
        change = [f"-value_{n}_200 = 200", f"+value_{n}_200 = {run}"]
        lines = [f"--- a/m{n}.py", f"+++ b/m{n}.py", "@@ -198,7 +198,7 @@", *context, *change, *after]
        (folder / f"{n}.patch").write_text("\n".join(lines) + "\n")
        patches.append({"file": f"m{n}.py", "patch": f"{n}.patch", "before": sha(old), "after": sha(new),
                        "why": "a file of the benchmark"})  # fmt: skip
    check = f"import sys; sys.path.insert(0, '{SITE}'); import m0; print('value', m0.value_0_200)"
    (folder / "check.py").write_text(check)
    manifest = {
        "schema": 1, "name": "ten", "summary": "ten patched files", "license": "Apache-2.0", "families": ["cpu"],
        "sources": [{"title": "bench", "where": "tests/perf/bench_build.py"}], "patches": patches,
        "base": {"distribution": ["ten"], "version": "1", "site_packages": SITE,
                 "image": {"ref": ref, "digest": digest}},
        "checks": [{"kind": "script", "source": "check.py", "expect": f"value {run}", "why": "the new value is used"}],
    }  # fmt: skip
    (folder / "overlay.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def recipe(work: Path) -> None:
    """A recipe with one lane that names the overlay, and a target of two small files."""
    folder = work / "recipes" / "ten"
    (folder / "target").mkdir(parents=True)
    config = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 8}
    (folder / "target" / "config.json").write_text(json.dumps(config))
    (folder / "target" / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    (folder / "recipe.yaml").write_text(yaml.safe_dump({
        "schema": 1, "name": "ten", "summary": "ten patched files, measured",
        "provenance": {"sources": [{"title": "bench", "where": "tests/perf/bench_build.py"}]},
        "models": {"target": {"role": "target", "path": "target", "license": "Apache-2.0"}},
        "lanes": {"cpu": {"summary": "bench", "target": "target", "speculative": {"method": "ngram", "k": 1},
                          "engine": {"name": "vllm-cpu", "overlay": "ten"}, "container": {"gpus": "none"}}},
    }))  # fmt: skip


def command(work: Path, env: dict[str, str], *argv: str) -> tuple[float, float, dict[str, Any]]:
    """Wall seconds and CPU seconds of a whole command line, and its answer."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = (sys.executable, "-m", "recipectl", "--recipes", "recipes", *argv, "--json")
    done = subprocess.run(argv, cwd=work, env=env, capture_output=True, text=True, check=False)
    took, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return took, cpu, json.loads(done.stdout)


def main() -> None:
    """Print one table; exit 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    if reason := available():
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory(prefix="bench-build-") as scratch:
        work = Path(scratch)
        with dockerd(work / "docker", "--storage-driver=overlay2") as engine, registry(work / "registry") as found:
            base = python_rootfs({f"{SITE}/m{n}.py": source(n).encode() for n in range(FILES)})
            import_image(engine, "tenbase:1", base)
            ref = f"{found.address}/tenbase:1"
            digest = push(engine, "tenbase:1", ref)
            recipe(work)
            folders = {f"RECIPECTL_{n}": str(work / n.lower()) for n in ("CACHE", "STATE", "DATA")}
            env = {**os.environ, **folders, "RECIPECTL_DOCKER_HOST": engine.host, "PYTHONPATH": str(ROOT),
                   "RECIPECTL_SETTINGS": str(work / "none")}  # fmt: skip
            fresh, again, own, cpus, digests = [], [], [], [], []
            for run in range(rounds):
                write(work, ref, digest, run + 1000)
                command(work, env, "lock", "ten")
                took, _, answer = command(work, env, "build", "ten", "--sm", "cpu")
                fresh.append(took)
                engine_s = sum(v for k, v in answer["seconds"].items() if k not in ("own", "total"))
                own.append(took - engine_s)
                took, cpu, second = command(work, env, "build", "ten", "--sm", "cpu")
                assert second["reused"] and second["input_digest"] == answer["input_digest"]
                again.append(took)
                cpus.append(cpu)
                digests.append(answer["input_digest"])
    rows = [("ten files on a local base", fresh, 25.0), ("of which recipectl itself", own, 2.0),
            ("again, nothing changed", again, 1.0)]  # fmt: skip
    missed = False
    for name, values, limit in rows:
        middle = statistics.median(values)
        missed |= middle >= limit
        print(f"{name:28} {middle:7.2f} s (min {min(values):.2f}, max {max(values):.2f}; limit {limit:.0f} s)")
    print(f"{'  its CPU time':28} {statistics.median(cpus):7.2f} s")
    load = os.getloadavg()[0]
    machine = f"load {load:.1f} on {os.cpu_count()} cores"
    print(f"{rounds} rounds, {len(set(digests))} input digests of {rounds} overlays, {machine}")
    sys.exit(missed)


if __name__ == "__main__":
    main()
