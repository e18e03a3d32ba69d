"""What is watched and told of a host that is not this one, on real engines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from recipectl.errors import EngineError
from recipectl.images.docker import DockerEngine
from recipectl.images.port import Mount
from recipectl.serving import deployments, launch, tunnel
from recipectl.serving.containers import Place
from recipectl.serving.docker import DockerRuntime
from recipectl.serving.memory import Floor, available
from recipectl.serving.plan import Plan, compose
from recipectl.settings import Settings
from tests.conftest import need
from tests.serving.test_plan import changed, order, tiny
from tests.serving.test_two_hosts import Pair, pair  # noqa: F401
from tests.serving.two_hosts import NETNS_A, NETNS_B, SSH_PORT, Hosts

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


def rows(two: Pair) -> dict[str, dict[str, str]]:
    done = two("doctor", "tiny-dflash", "--sm", "cpu", "--hosts", f"local,{two.hosts.far}", "--json")
    return {r["what"]: r for r in json.loads(done.stdout)["rows"]}


def test_doctor_says_of_a_far_host_what_it_says_of_this_one(pair: Pair) -> None:  # noqa: F811
    far = pair.hosts.far
    there = rows(pair)
    # Both hosts are this machine, and have its memory.
    assert there[f"memory of {far}"]["seen"].split(" of ")[1] == there["memory"]["seen"].split(" of ")[1]
    assert "open files" in there[f"limits of {far}"]["seen"]
    assert "GiB free" in there[f"disk of {os.environ['RECIPECTL_CACHE']} of {far}"]["seen"]
    assert there[f"stale ranks of {far}"]["seen"] == "none"
    read = subprocess.run(["dmesg"], capture_output=True, check=False).returncode == 0
    assert ("may not be read" in there[f"kernel messages of {far}"]["seen"]) == (not read)


def test_doctor_finds_a_rank_that_is_left_and_a_disk_that_is_full_on_a_far_host(pair: Pair) -> None:  # noqa: F811
    far, cache = pair.hosts.far, Path(os.environ["RECIPECTL_CACHE"])
    (cache / "hosts").mkdir(parents=True, exist_ok=True)
    other = f"nsenter --mount=/proc/{pair.hosts.b_pid}/ns/mnt".split()
    client = pair.hosts.b.client()
    image = f"{pair.hosts.ref.rpartition(':')[0]}@{pair.hosts.digest}"
    left = client.containers.create(image, ["x"], labels={"io.recipectl.deployment": "of-nobody"}, network_mode="host")
    subprocess.run([*other, "mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", cache / "hosts"], check=True)
    try:
        there = rows(pair)
    finally:
        subprocess.run([*other, "umount", cache / "hosts"], check=True)
        left.remove(force=True)
        client.close()
    assert there[f"disk of {cache} of {far}"]["verdict"] == "FAIL"
    stale = there[f"stale ranks of {far}"]
    assert stale["verdict"] == "WARN" and left.name in stale["seen"] and there["stale ranks"]["verdict"] == "OK"


@contextmanager
def fish(hosts: Hosts, folder: Path) -> Iterator[str]:
    """A second ssh server on host b at which root's login shell is fish; how to reach its engine through it."""
    shell = shutil.which("fish") or need("fish", "fish is not installed")
    port = SSH_PORT + 7
    lines = [line.rpartition(":")[0] + f":{shell}" if line.startswith("root:") else line
             for line in Path("/etc/passwd").read_text().splitlines()]  # fmt: skip
    (folder / "passwd").write_text("\n".join(lines) + "\n")
    config = (hosts.folder / "sshd_config").read_text().replace(f"Port {SSH_PORT}\n", f"Port {port}\n")
    (folder / "sshd_config").write_text(config.replace("sshd.pid", "sshd-fish.pid"))
    known = hosts.folder / "known"
    before = known.read_text()
    known.write_text(before + before.replace(f":{SSH_PORT} ", f":{port} "))
    # Its own mount namespace: no other program of this machine sees that passwd.
    script = f"mount --bind {folder}/passwd /etc/passwd && exec nsenter --net=/run/netns/{NETNS_B} "
    script += f"/usr/sbin/sshd -D -e -f {folder}/sshd_config"
    server = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
                              stderr=(folder / "log").open("wb"))  # fmt: skip
    try:
        time.sleep(1)
        assert server.poll() is None, (folder / "log").read_text()
        yield hosts.far.replace(f":{SSH_PORT}", f":{port}")
    finally:
        server.terminate()
        server.wait()
        known.write_text(before)


def test_a_far_host_whose_login_shell_is_fish(pair: Pair, tmp_path: Path) -> None:  # noqa: F811
    with fish(pair.hosts, tmp_path) as far:
        netns = ["nsenter", f"--net=/run/netns/{NETNS_A}"]
        ask = [*netns, *tunnel.command_on(far), "echo shell=$FISH_VERSION"]
        said = subprocess.run(ask, env={**os.environ, **pair.hosts.env}, capture_output=True, text=True, check=True)
        assert said.stdout.startswith("shell=3") or said.stdout.startswith("shell=4"), said
        done = pair.serve("healthy", far=far)
        assert done.returncode == 0, done.stderr
        found = pair.hosts.containers()
        assert [len(found["a"]), len(found["b"])] == [1, 1]
        stopped = pair("stop")
        assert stopped.returncode == 0 and pair.hosts.containers() == {"a": [], "b": []}, stopped.stderr


def test_a_drafter_of_ones_own_must_be_the_same_on_every_host(pair: Pair, tmp_path: Path) -> None:  # noqa: F811
    own, other = tmp_path / "own", tmp_path / "other"
    shutil.copytree(pair.folder / "drafter", own)
    shutil.copytree(pair.folder / "drafter", other)
    (other / "config.json").write_text((other / "config.json").read_text() + " ")
    pair.hosts.other_root(own, other)
    try:
        refused = pair.serve("healthy", "--drafter", str(own))
    finally:
        pair.hosts.same_root(own)
    assert refused.returncode == 4, refused.stderr
    assert f"{pair.hosts.far}: drafter/config.json has sha256" in refused.stderr
    assert f"{own} must hold the same files on every host: `pull --hosts` does not copy it" in refused.stderr
    assert pair.hosts.containers() == {"a": [], "b": []}

    done = pair.serve("healthy", "--drafter", str(own), "--json")
    assert done.returncode == 0, done.stderr
    for host in ("a", "b"):
        box = pair.hosts.inspected(host)
        assert f"{own}:/models/drafter:ro" in box["HostConfig"]["Binds"]
        assert f"unqualified: drafter {own}" in box["Config"]["Labels"]["io.recipectl.departures"]
