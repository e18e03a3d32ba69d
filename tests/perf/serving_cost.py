"""Figures of serving: a plan, and a day of `gate --watch` in one go. Run: python tests/perf/serving_cost.py

A day at 10 s is 8,640 looks; they are made back to back against a scripted server, whose /metrics is small. What a real
vLLM page costs to parse is printed beside it, and the CPU time is held against a day.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from recipectl.bench.acceptance import parse_metrics  # noqa: E402
from recipectl.commands.watching import look  # noqa: E402
from recipectl.serving.deployments import Deployment  # noqa: E402
from recipectl.serving.plan import Plan, compose  # noqa: E402
from recipectl.serving.probes import Server  # noqa: E402
from recipectl.serving.process import ProcessRuntime, free_port  # noqa: E402
from recipectl.serving.runtime import Handle  # noqa: E402
from recipectl.serving.watch import Watch  # noqa: E402
from tests.serving.test_plan import order  # noqa: E402

LOOKS = 8640
DAY_S = 86400


def plan_time() -> Plan:
    begun = time.perf_counter()
    for _ in range(100):
        plan = compose(order())
    print(f"a plan: {(time.perf_counter() - begun) * 10:.2f} ms (limit 50)")
    return plan


def page_time() -> None:
    raw = gzip.decompress((ROOT / "tests" / "data" / "bench" / "ngram-metrics_11_after_bench.prom.gz").read_bytes())
    begun = time.process_time()
    for _ in range(50):
        parse_metrics(raw.decode(), "smol")
    each = (time.process_time() - begun) / 50
    share = 100 * each * LOOKS / DAY_S
    print(f"a vLLM page of {len(raw) / 1024:.0f} KiB: {each * 1000:.1f} ms to parse = {share:.3f} % of a core at 10 s")


def watch_day(plan: Plan) -> None:
    port = free_port()
    engine = subprocess.Popen([sys.executable, ROOT / "tests" / "engine" / "scripted_engine.py", "--port", str(port)],
                              stdout=subprocess.DEVNULL)  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    while True:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=1)
            break
        except OSError:
            time.sleep(0.05)
    me = psutil.Process()
    handle = Handle(0, "local", engine.pid, psutil.Process(engine.pid).create_time())
    deployment = Deployment(Path(), plan, "ready", "now", (handle,))
    server, watch = Server(url, "m"), Watch()
    runtime = ProcessRuntime(Path(sys.executable), Path(), os.environ)
    try:
        for _ in range(200):
            watch.feed(look(server, runtime, deployment))
        memory, cpu = me.memory_info().rss, time.process_time()
        for _ in range(LOOKS):
            assert watch.feed(look(server, runtime, deployment)) is None
        used = time.process_time() - cpu
        grown = (me.memory_info().rss - memory) / 1024
        print(f"a day of gate --watch: {used:.0f} s of CPU = {100 * used / DAY_S:.3f} % of a core, {grown:+.0f} KiB")
    finally:
        engine.kill()


if __name__ == "__main__":
    page_time()
    watch_day(plan_time())
