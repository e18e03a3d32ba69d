"""One server over two hosts: worker first over ssh, parity, an image that is carried, a killed rank, a stop that looks
at both."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from recipectl.errors import EngineError, PinError
from recipectl.images import carry
from recipectl.images.docker import DockerEngine
from recipectl.images.port import ImageInfo
from tests.docker_engine import import_image, python_rootfs
from tests.serving.test_docker_cli import in_container
from tests.serving.two_hosts import FAR, HEAD, NETNS_B, REF, REGISTRY, REPOSITORY, SSH_PORT, Hosts, dockerd, sh

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]


class Pair:
    """A locked recipe for two nodes."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self.hosts, self.folder = hosts, folder
        in_container(folder, REF, hosts.digest, nodes=2, network="host")
        done = self("lock", "tiny-dflash", "--sm", "cpu")
        assert done.returncode == 0, done.stderr

    def __call__(self, *argv: str):  # type: ignore[no-untyped-def]
        return self.hosts.recipectl("--recipes", str(self.folder.parent), *argv)

    def serve(self, script: str = "healthy", *more: str, far: str | None = None):  # type: ignore[no-untyped-def]
        return self("serve", "tiny-dflash", "--sm", "cpu", "--set", f"env.ENGINE_SCRIPT={script}", "--hosts",
                    f"local,{far or self.hosts.far}", *more)  # fmt: skip


@pytest.fixture
def pair(hosts: Hosts, recipe_folder: Path) -> Iterator[Pair]:
    made = Pair(hosts, recipe_folder)
    yield made
    made("stop", "--all", "--force")
    assert hosts.containers() == {"a": [], "b": []}


def test_two_hosts_serve_one_model_and_stop_on_both(pair: Pair) -> None:
    done = pair.serve("healthy", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"fabric: head address {HEAD}" in done.stderr
    assert f"VLLM_HOST_IP={FAR}, GLOO_SOCKET_IFNAME=fab1" in done.stderr
    found = pair.hosts.containers()
    assert [len(found["a"]), len(found["b"])] == [1, 1]
    clients = {"a": pair.hosts.a.client(), "b": pair.hosts.b.client()}
    head = clients["a"].containers.get(found["a"][0]).attrs
    worker = clients["b"].containers.get(found["b"][0]).attrs
    assert worker["Created"] < head["Created"], "the worker starts first"
    assert "--headless" in worker["Args"] and "--headless" not in head["Args"]
    for attrs, own in ((head, HEAD), (worker, FAR)):
        words = " ".join(attrs["Args"])
        assert f"--master-addr {HEAD}" in words and "--nnodes 2" in words
        assert f"VLLM_HOST_IP={own}" in attrs["Config"]["Env"]
    assert pair("gate").returncode == 0
    assert "Starting to load" in pair("logs", "--rank", "1").stdout

    clients["b"].containers.get(found["b"][0]).kill()
    state = json.loads(pair("status", "--json").stdout)["deployments"][0]
    assert state["state"] == "broken" and "rank 1 is gone" in state["why"]
    failed = pair("gate")
    assert failed.returncode == 7 and "rank 1" in failed.stderr, failed.stderr
    stopped = pair("stop")
    assert stopped.returncode == 0, stopped.stderr
    assert pair.hosts.containers() == {"a": [], "b": []}
    for client in clients.values():
        client.close()


def test_a_corrupted_model_on_the_far_host_is_refused_before_anything_starts(pair: Pair, tmp_path: Path) -> None:
    here = pair.folder / "target"
    there = tmp_path / "bad-target"
    shutil.copytree(here, there)
    raw = bytearray((there / "model.safetensors").read_bytes())
    raw[-5] ^= 0xFF
    (there / "model.safetensors").write_bytes(raw)
    pair.hosts.other_root(here, there)
    try:
        done = pair.serve()
    finally:
        pair.hosts.same_root(here)
    assert done.returncode == 4, done.stderr
    assert f"{pair.hosts.far}: target/model.safetensors has sha256" in done.stderr
    assert pair.hosts.containers() == {"a": [], "b": []}


def test_one_rank_that_dies_tears_down_all_with_its_cause_on_top(pair: Pair) -> None:
    done = pair.serve("dies-in-boot-on-worker")
    assert done.returncode == 7, done.stderr
    first = done.stderr[done.stderr.index("error[") :].splitlines()
    assert "rank 1" in first[0] and "not compiled into this build" in first[1]
    assert pair.hosts.containers() == {"a": [], "b": []}


def test_hosts_out_of_reach_and_keys_refused_say_so(pair: Pair) -> None:
    nobody = pair.serve(far=f"ssh://root@{FAR}:{SSH_PORT + 1}")
    assert nobody.returncode == 7 and f"{FAR}:{SSH_PORT + 1}" in nobody.stderr, nobody.stderr
    config = pair.hosts.folder / "ssh_config"
    text = config.read_text()
    config.write_text(text.replace("/user\n", "/stranger\n"))
    try:
        refused = pair.serve()
    finally:
        config.write_text(text)
    assert refused.returncode == 7 and "Permission denied (publickey" in refused.stderr, refused.stderr
    one = pair("serve", "tiny-dflash", "--sm", "cpu", "--hosts", "local")
    assert one.returncode == 2 and "runs on 2 machine(s)" in one.stderr
    assert pair.hosts.containers() == {"a": [], "b": []}


def test_doctor_looks_at_every_host(pair: Pair) -> None:
    done = pair("doctor", "tiny-dflash", "--sm", "cpu", "--hosts", f"local,{pair.hosts.far}", "--json")
    rows = {r["what"]: r for r in json.loads(done.stdout)["rows"]}
    assert rows[f"engine of {pair.hosts.far}"]["verdict"] == "OK"
    assert FAR in rows[f"network of {pair.hosts.far}"]["seen"] and HEAD in rows["network of local"]["seen"]
    assert rows[f"clock of {pair.hosts.far}"]["verdict"] == "OK"


@pytest.fixture
def bare(hosts: Hosts) -> Iterator[None]:
    """Host b without any image; afterwards it has the pinned one again."""
    hosts.drop_images_of_b()
    yield
    hosts.drop_images_of_b()
    hosts.pull(hosts.b)


def test_an_image_that_the_far_host_lacks_is_carried_if_the_user_says_so(pair: Pair, bare: None) -> None:
    refused = pair.serve()
    assert refused.returncode == 4, refused.stderr
    assert f"{pair.hosts.far} does not have the image of local" in refused.stderr
    assert "recipectl serve --carry-image" in refused.stderr
    assert pair.serve("healthy", "--carry-image", "--dry-run").returncode == 4, "a dry run changes no host"
    rows = json.loads(
        pair("doctor", "tiny-dflash", "--sm", "cpu", "--hosts", f"local,{pair.hosts.far}", "--json").stdout
    )
    assert "--carry-image" in next(r["fix"] for r in rows["rows"] if r["what"] == f"host {pair.hosts.far}")
    assert pair.hosts.images_of_b() == {}

    done = pair.serve("healthy", "--carry-image", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"image carried to {pair.hosts.far}" in done.stderr
    head, worker = pair.hosts.inspected("a"), pair.hosts.inspected("b")
    assert worker["Image"] == head["Image"] == worker["Config"]["Image"], "by id: a loaded image has no digest"
    assert [len(tags) for tags in pair.hosts.images_of_b().values()] == [1]
    assert pair("stop").returncode == 0

    again = pair.serve("healthy")
    assert again.returncode == 0 and "carried" not in again.stderr, again.stderr
    assert pair("stop").returncode == 0


def test_a_far_disk_that_the_image_fills_is_told_with_its_host(pair: Pair) -> None:
    folder = pair.hosts.folder / "small"
    (folder / "data").mkdir(parents=True)
    sh("mount", "-t", "tmpfs", "-o", "size=24m", "small", str(folder / "data"))
    with dockerd(folder, NETNS_B) as (small, _):
        done = pair.serve("healthy", "--carry-image", far=small.host)
        client = small.client()
        assert client.images.list(all=True) == []
        client.close()
    assert done.returncode == 7, done.stderr
    assert f"not carried to {small.host}: could not load the image: the engine's disk is full" in done.stderr
    assert pair.hosts.containers() == {"a": [], "b": []}


class Wrong(DockerEngine):
    """An engine that sends another image than it was asked for."""

    other = ""

    def save(self, image_id: str) -> Iterator[bytes]:
        return super().save(self.other)


@pytest.fixture
def engines(hosts: Hosts) -> Iterator[tuple[Wrong, DockerEngine]]:
    a, b = Wrong(hosts.a.host), DockerEngine(hosts.b.host)
    yield a, b
    a.close()
    b.close()


def sent(hosts: Hosts, engine: DockerEngine) -> ImageInfo:
    found = engine.image(f"{REGISTRY}/{REPOSITORY}@{hosts.digest}")
    assert found is not None
    return found


def test_a_transfer_that_breaks_off_leaves_nothing(
    hosts: Hosts, engines: tuple[Wrong, DockerEngine], bare: None
) -> None:
    a, b = engines
    image = sent(hosts, a)
    a.other = image.id
    moved = 0

    def interrupt(size: int) -> None:
        nonlocal moved
        moved += size
        if moved > 10 << 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry.carry(a, b, image, interrupt)
    assert hosts.images_of_b() == {} and carry.find(b, image) is None
    assert carry.carry(a, b, image, lambda _size: None).layers == image.layers, "the next one is not in its way"


def test_an_image_for_another_kind_of_machine_is_not_sent(
    hosts: Hosts, engines: tuple[Wrong, DockerEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = engines
    monkeypatch.setattr(b, "platform", lambda: "linux/riscv64")
    with pytest.raises(EngineError, match="does not run on that machine's platform"):
        carry.carry(a, b, sent(hosts, a), lambda _size: None)


def test_an_archive_of_another_image_gets_no_name(
    hosts: Hosts, engines: tuple[Wrong, DockerEngine], bare: None
) -> None:
    a, b = engines
    a.other = import_image(hosts.a, "other:1", python_rootfs({"/differs": b"1"}))
    with pytest.raises(PinError, match="not the one that was sent"):
        carry.carry(a, b, sent(hosts, a), lambda _size: None)
    assert hosts.images_of_b() == {}
