"""What is watched and told of a host that is not this one, on real engines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from recipectl.errors import EngineError
from recipectl.images.docker import DockerEngine
from recipectl.images.port import Mount
from recipectl.serving import deployments, launch
from recipectl.serving.containers import Place
from recipectl.serving.docker import DockerRuntime
from recipectl.serving.memory import Floor, available
from recipectl.serving.plan import Plan, compose
from recipectl.settings import Settings
from tests.serving.test_plan import changed, order, tiny
from tests.serving.test_two_hosts import Pair, pair  # noqa: F401
from tests.serving.two_hosts import Hosts

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]
GIB = 1 << 30


def two_ranks(hosts: Hosts, meminfo: Path, floor: float) -> Plan:
    """A plan of an engine that never gets ready; rank 1 sees `meminfo` as its host's, as lxcfs would do it."""
    lane = tiny().lane("cpu")
    lane = changed(
        lane, nodes=2, parallel={"tensor": 2}, container={"gpus": "none", "network": "host"},
        engine={**lane.engine.model_dump(), "runtime": "docker", "overlay": None},
        env={"ENGINE_SCRIPT": "hangs-in-boot"}, gates={**lane.gates.model_dump(), "memory_floor_gib": floor},
    )  # fmt: skip
    place = Place(f"{hosts.ref.rpartition(':')[0]}@{hosts.digest}", "key", {}, str(meminfo.parent))
    plan = compose(order(lane, id=f"far-{time.time_ns()}", hosts=("a", "b"), places=(place, place), program=("vllm",)))
    head, worker = plan.ranks
    assert worker.container is not None
    starved = replace(worker.container, mounts=(Mount(str(meminfo), "/proc/meminfo"),))
    return replace(plan, ranks=(head, replace(worker, container=starved)))


@pytest.fixture
def runtime(hosts: Hosts) -> Iterator[DockerRuntime]:
    urls = {"a": hosts.a.host, "b": hosts.b.host}
    yield DockerRuntime(lambda host: DockerEngine(urls[host]))


def test_a_far_host_that_runs_out_of_memory_ends_the_boot(
    hosts: Hosts, runtime: DockerRuntime, settings: Settings, tmp_path: Path
) -> None:
    floor_gib = 0.001  # this machine has more; the far one is told to have less once it boots
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 125829120 kB\nMemAvailable: 83886080 kB\n")
    plan = two_ranks(hosts, meminfo, floor_gib)
    deployment = deployments.create(settings, plan, "2026-11-30T00:00:00Z")
    told: list[str] = []
    floor = Floor(plan, {"b"}, runtime.engine, told.append)
    boot = launch.Launch(runtime, deployment, lambda: False, lambda _line: None, told.append, floor)
    low: list[float] = []

    def starve(_line: str) -> None:
        if not low and floor._left:
            meminfo.write_text("MemTotal: 125829120 kB\nMemAvailable: 512 kB\n")
            low.append(time.monotonic())

    boot._show = starve
    try:
        boot.start()
        with pytest.raises(EngineError, match=r"b has 0\.0 GiB of memory left, the floor is 0\.0 GiB"):
            boot.wait()
        assert time.monotonic() - low[0] < 3.0
    finally:
        floor.end()
        assert launch.teardown(runtime, boot.deployment, force=True) == []
    assert not told


def test_the_memory_of_a_container_is_that_of_its_host(hosts: Hosts, runtime: DockerRuntime, tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(Path("/proc/meminfo").read_text())
    plan = two_ranks(hosts, meminfo, 0.0)
    handle = runtime.start(plan, plan.ranks[0], tmp_path)
    try:
        text = runtime.engine("a").execute(
            handle.container or "", ("python3", "-c", "print(open('/proc/meminfo').read())")
        )
        assert abs(available(text) - psutil.virtual_memory().available) < GIB
    finally:
        assert runtime.stop(plan, [handle], grace_s=1, force=True) == []


def test_a_host_whose_memory_cannot_be_read_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recipectl.serving.memory.EVERY_S", 0.001)

    def refused(_host: str) -> DockerEngine:
        raise EngineError("the engine does not answer")

    from recipectl.serving.runtime import Handle

    told: list[str] = []
    lane = tiny().lane("cpu")
    plan = replace(compose(order(lane)), gates=lane.gates.model_copy(update={"memory_floor_gib": 0.001}))
    floor = Floor(plan, {"ssh://b"}, refused, told.append)
    deadline = time.monotonic() + 5
    while not told and time.monotonic() < deadline:
        assert floor([Handle(0, "local"), Handle(1, "ssh://b", container="c")]) is None
        time.sleep(0.01)
    time.sleep(0.2)
    floor.end()
    assert told == ["the memory of ssh://b cannot be read, its floor is not watched: the engine does not answer"]
