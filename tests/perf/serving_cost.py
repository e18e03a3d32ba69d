"""Figures of serving, as a user's command line meets them. Run as root, with Debian's docker.io installed:

    python tests/perf/serving_cost.py

- plan: of every lane and variant of every recipe, the slowest;
- start: from the command to a running container, and what of it is not Docker's own time: the same calls (the helper
  container that checks the arguments, create, start) made back to back on the same engine;
- fatal: from the fatal line in the engine's log to the end of the command, as a process and in a container;
- watch: a day of `gate --watch` at 10 s in one go against a scripted server, whose /metrics is small. What a real vLLM
  page costs to parse is printed beside it, and the CPU time is held against a day.

It prints and asserts nothing.
"""

from __future__ import annotations

import gzip
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from recipectl.bench.acceptance import parse_metrics  # noqa: E402
from recipectl.commands.context import Chosen  # noqa: E402
from recipectl.commands.previewing import preview  # noqa: E402
from recipectl.commands.watching import look  # noqa: E402
from recipectl.images.docker import DockerEngine  # noqa: E402
from recipectl.images.port import ContainerSpec  # noqa: E402
from recipectl.recipe import catalog  # noqa: E402
from recipectl.recipe.families import FAMILIES  # noqa: E402
from recipectl.serving import helper  # noqa: E402
from recipectl.serving.containers import DEPLOYMENT  # noqa: E402
from recipectl.serving.deployments import Deployment  # noqa: E402
from recipectl.serving.plan import Plan, compose  # noqa: E402
from recipectl.serving.probes import Server  # noqa: E402
from recipectl.serving.process import ProcessRuntime, free_port  # noqa: E402
from recipectl.serving.runtime import Handle  # noqa: E402
from recipectl.serving.watch import Watch  # noqa: E402
from recipectl.settings import load  # noqa: E402
from tests import docker_engine  # noqa: E402
from tests.serving.test_docker_cli import engine_rootfs, in_container  # noqa: E402
from tests.serving.test_plan import order  # noqa: E402

LOOKS = 8640
DAY_S = 86400
RUNS = 5
TINY = ROOT / "recipes" / "tiny-dflash"
SCRIPTED = ROOT / "tests" / "engine" / "scripted_engine.py"
FATAL = "KV cache is needed"  # as the scripted engine logs it


def plans() -> None:
    settings = load()
    slowest, count = (0.0, ""), 0
    for entry in catalog.entries(settings):
        recipe = catalog.load(entry)
        for name in recipe.lanes:
            for variant in (None, *recipe.variants.get(name, {})):
                chosen = Chosen(entry, recipe, name, recipe.lane(name, variant), FAMILIES[name], variant, None)
                begun = time.perf_counter()
                preview(settings, chosen)
                spent = (time.perf_counter() - begun) * 1000
                count += 1
                slowest = max(slowest, (spent, f"{entry.name} {name}" + (f"/{variant}" if variant else "")))
    print(f"plan: slowest of {count} {slowest[0]:.1f} ms ({slowest[1]}); limit 50")


def shop(folder: Path, **env: str) -> tuple[list[str], dict[str, str], Path]:
    """The command line, its environment and its recipe: a copy of tiny-dflash with random weights."""
    recipe = folder / "recipes" / "tiny-dflash"
    made = [sys.executable, ROOT / "tests" / "engine" / "random_pair.py", recipe]
    subprocess.run(made, check=True, capture_output=True)
    for file in TINY.iterdir():
        if file.is_file() and file.name != catalog.LOCK_FILE:
            shutil.copy(file, recipe)
    # The random pair has a tokenizer of its own.
    text = (TINY / "recipe.yaml").read_text()
    kept = [line for line in text.splitlines(keepends=True) if "tokenizer.json:" not in line]
    (recipe / "recipe.yaml").write_text("".join(kept))
    own = {f"RECIPECTL_{n.upper()}": str(folder / n) for n in ("state", "cache", "data")}
    own["RECIPECTL_SETTINGS"] = str(folder / "settings.toml")
    command = [sys.executable, "-m", "recipectl", "--recipes", str(folder / "recipes")]
    return command, {**os.environ, **own, **env}, recipe


def serve(command: list[str], env: dict[str, str], script: str) -> subprocess.Popen[str]:
    argv = [*command, "serve", "tiny-dflash", "--sm", "cpu", "--set", f"env.ENGINE_SCRIPT={script}"]
    return subprocess.Popen(argv, env=env, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def when(check: Callable[[], bool], running: subprocess.Popen[str]) -> float:
    """The moment at which a check comes true. Looks up to a thousand times a second."""
    while not check():
        if running.poll() is not None:
            raise SystemExit(running.stderr.read() if running.stderr else "it ended")
        time.sleep(0.001)
    return time.perf_counter()


def fatal(command: list[str], env: dict[str, str], where: str) -> None:
    state, spent = Path(env["RECIPECTL_STATE"]), []

    def told() -> bool:
        return any(FATAL in f.read_text() for f in state.glob("deployments/*/engine.log"))

    for _ in range(RUNS):
        shutil.rmtree(state / "deployments", ignore_errors=True)
        running = serve(command, env, "fatal-then-hangs")
        begun = when(told, running)
        running.wait()
        spent.append(time.perf_counter() - begun)
    print(f"fatal, {where}: {statistics.median(spent):.2f} s to the command's end, worst {max(spent):.2f}; limit 1")


def start(command: list[str], env: dict[str, str], engine: docker_engine.Engine, image: str) -> None:
    client, spent, own = DockerEngine(engine.host), [], []

    def runs() -> bool:
        return any(c.status == "running" for c in client.containers({DEPLOYMENT: ""}))

    for number in range(RUNS):
        begun = time.perf_counter()
        running = serve(command, env, "hangs-in-boot")
        spent.append(when(runs, running) - begun)
        running.terminate()
        running.wait()
        begun = time.perf_counter()
        helper.run(client, image, ["python3", "-c", helper.CHECK, "serve", "x"])
        script = {"ENGINE_SCRIPT": "hangs-in-boot"}
        box = client.create(ContainerSpec(f"perf-{number}", image, ("600",), entrypoint=("vllm",), env=script))
        client.start(box)
        own.append(time.perf_counter() - begun)
        client.stop(box, 0)
        client.remove(box)
    total, docker = statistics.median(spent), statistics.median(own)
    print(f"start: {total:.2f} s to a container, Docker's own {docker:.2f}; beyond it {total - docker:.2f}, limit 1.5")


def command_lines(folder: Path) -> None:
    command, env, recipe = shop(folder, RECIPECTL_ENGINE_PYTHON=str(SCRIPTED))
    lock = [*command, "lock", "tiny-dflash", "--sm", "cpu"]
    subprocess.run(lock, env=env, cwd=ROOT, check=True, capture_output=True)
    fatal(command, env, "as a process")
    if reason := docker_engine.available():
        print(f"start, and fatal in a container: not measured ({reason})")
        return
    engine = docker_engine.engine()
    docker_engine.import_image(engine, "scripted:1", engine_rootfs())
    with docker_engine.registry(folder / "registry") as found:
        ref = f"{found.address}/scripted:1"
        in_container(recipe, ref, docker_engine.push(engine, "scripted:1", ref))
        env["RECIPECTL_DOCKER_HOST"] = engine.host
        subprocess.run(lock, env=env, cwd=ROOT, check=True, capture_output=True)
        start(command, env, engine, "scripted:1")
        fatal(command, env, "in a container")


def page() -> None:
    raw = gzip.decompress((ROOT / "tests" / "data" / "bench" / "ngram-metrics_11_after_bench.prom.gz").read_bytes())
    begun = time.process_time()
    for _ in range(50):
        parse_metrics(raw.decode(), "smol")
    each = (time.process_time() - begun) / 50
    share = 100 * each * LOOKS / DAY_S
    print(f"watch: a vLLM page of {len(raw) / 1024:.0f} KiB, {each * 1000:.1f} ms = {share:.3f} % of a core at 10 s")


def watch_day(plan: Plan) -> None:
    port = free_port()
    engine = subprocess.Popen([sys.executable, SCRIPTED, "--port", str(port)], stdout=subprocess.DEVNULL)
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
        print(f"watch: a day, {used:.0f} s of CPU = {100 * used / DAY_S:.3f} % of a core (limit 1), {grown:+.0f} KiB")
    finally:
        engine.kill()


if __name__ == "__main__":
    plans()
    with tempfile.TemporaryDirectory() as scratch:
        command_lines(Path(scratch))
    page()
    watch_day(compose(order()))
