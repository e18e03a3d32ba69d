"""serve, gate, status, logs and stop with real containers on a real Docker engine: the scripted engine inside."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.docker_engine import Engine, add_python, engine, import_image, push, registry
from tests.serving.conftest import SCRIPTED
from tests.serving.test_serve_cli import until

pytestmark = pytest.mark.docker


def engine_rootfs() -> bytes:
    """A root file system whose `vllm` is the scripted engine."""
    out = io.BytesIO()
    text = SCRIPTED.read_bytes().replace(b"#!/usr/bin/env python3", b"#!/usr/local/bin/python3", 1)
    with tarfile.open(fileobj=out, mode="w") as tar:
        add_python(tar)
        info = tarfile.TarInfo("usr/local/bin/vllm")
        info.size, info.mode = len(text), 0o755
        tar.addfile(info, io.BytesIO(text))
    return out.getvalue()


@dataclass
class Yard:
    """A Docker engine that has the scripted engine as an image, by digest."""

    engine: Engine
    ref: str
    digest: str


@pytest.fixture(scope="session")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    running = engine()
    import_image(running, "scripted:1", engine_rootfs())
    with registry(tmp_path_factory.mktemp("scripted-registry")) as found:
        ref = f"{found.address}/scripted:1"
        yield Yard(running, ref, push(running, "scripted:1", ref))


def in_container(folder: Path, ref: str, digest: str, *, nodes: int = 1, network: str = "bridge") -> None:
    """Turn the copied recipe into one that runs in containers."""
    file = folder / "recipe.yaml"
    text = (
        file.read_text()
        .split("    variants:\n")[0]
        .replace(  # an overlay goes with a process or with its own image
            "      runtime: process\n",
            f"      runtime: docker\n      image: {{ref: '{ref}', digest: '{digest}'}}\n",
        )
    )
    more = f"    container: {{gpus: none, network: {network}}}\n    caches: [{{name: jit, path: /jit}}]\n"
    if nodes > 1:
        more += f"    nodes: {nodes}\n    parallel: {{tensor: {nodes}}}\n"
        more += "    per_rank_env: [VLLM_HOST_IP, GLOO_SOCKET_IFNAME]\n"
    file.write_text(text.replace("    status: measured\n", "    status: measured\n" + more))


class Shop:
    """A locked container recipe and a command line on it."""

    def __init__(self, cli: Cli, folder: Path, yard: Yard) -> None:
        self._cli, self.folder, self.yard = cli, folder, yard
        done = self("lock", "tiny-dflash", "--sm", "cpu")
        assert done.returncode == 0, done.stderr

    def __call__(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return self._cli("--recipes", str(self.folder.parent), *argv, timeout=120)

    def serve(self, script: str = "healthy", *more: str) -> subprocess.CompletedProcess[str]:
        return self("serve", "tiny-dflash", "--sm", "cpu", "--set", f"env.ENGINE_SCRIPT={script}", *more)

    def containers(self) -> list[str]:
        client = self.yard.engine.client()
        try:
            return [c.name for c in client.containers.list(all=True, filters={"label": "io.recipectl.deployment"})]
        finally:
            client.close()


@pytest.fixture
def shop(cli: Cli, recipe_folder: Path, yard: Yard, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setenv("RECIPECTL_DOCKER_HOST", yard.engine.host)
    in_container(recipe_folder, yard.ref, yard.digest)
    made = Shop(cli, recipe_folder, yard)
    yield made
    made("stop", "--all", "--force")
    assert made.containers() == []


def inspected(shop: Shop) -> dict[str, object]:
    client = shop.yard.engine.client()
    try:
        found: dict[str, object] = client.containers.get(shop.containers()[0]).attrs
        return found
    finally:
        client.close()


def test_a_container_is_proven_looked_at_and_stopped(shop: Shop) -> None:
    done = shop.serve("hot-fault", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert "FAIL" not in {g["verdict"] for g in answer["gates"]}
    found = inspected(shop)
    host, config = found["HostConfig"], found["Config"]
    assert isinstance(host, dict) and isinstance(config, dict)
    assert not host["Privileged"] and host["CapDrop"] == ["ALL"] and host["RestartPolicy"]["Name"] == "no"
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert {b["HostIp"] for ports in host["PortBindings"].values() for b in ports} == {"127.0.0.1"}
    binds = {b.split(":")[1]: b.split(":")[2] for b in host["Binds"]}
    assert binds == {"/models/target": "ro", "/models/drafter": "ro", "/jit": "rw"}
    assert config["Labels"]["io.recipectl.rank"] == "0" and config["Labels"]["io.recipectl.recipe"] == "tiny-dflash"
    assert config["Labels"]["io.recipectl.lock.digest"].startswith("sha256:")
    assert "HF_HUB_OFFLINE=1" in config["Env"] and not [e for e in config["Env"] if "TOKEN" in e]
    assert shop("gate").returncode == 0
    assert json.loads(shop("status", "--json").stdout)["deployments"][0]["state"] == "ready"
    assert "startup complete" in shop("logs", "-n", "1").stdout
    assert "nothing of it is left" in shop("stop").stdout
    assert shop.containers() == []


@pytest.mark.parametrize(
    ("script", "code", "says"),
    [
        ("dies-in-boot", 7, "not compiled into this build"),
        ("fatal-then-hangs", 7, "does not hold one request"),
        ("dies-on-request", 7, "rejection_sample_method synthetic"),
        ("wrong-model", 8, "serves another model"),
        ("frozen-counter", 8, "did not move"),
        ("garbage", 8, "U+FFFD"),
    ],
)
def test_a_false_server_in_a_container_leaves_no_container(shop: Shop, script: str, code: int, says: str) -> None:
    done = shop.serve(script)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert shop.containers() == []


def test_exposed_with_a_key_that_is_in_no_argv_log_or_receipt(shop: Shop) -> None:
    done = shop.serve("healthy", "--expose", "0.0.0.0", "--json")
    assert done.returncode == 0, done.stderr
    url = json.loads(done.stdout)["url"]
    keys = list(Path(os.environ["RECIPECTL_STATE"]).glob("keys/*.key"))
    assert len(keys) == 1 and stat.S_IMODE(keys[0].stat().st_mode) == 0o600
    key = keys[0].read_text().strip()
    assert {g["gate"]: g["verdict"] for g in json.loads(done.stdout)["gates"]}["unauthorized"] == "PASS"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{url}/v1/models")
    asked = urllib.request.Request(f"{url}/v1/models", headers={"Authorization": f"Bearer {key}"})
    assert urllib.request.urlopen(asked).status == 200
    assert key not in done.stdout + done.stderr
    for file in Path(os.environ["RECIPECTL_STATE"]).rglob("*"):
        assert not file.is_file() or file == keys[0] or key not in file.read_text(errors="replace"), file
    assert shop("gate").returncode == 0
    found = inspected(shop)
    assert key not in json.dumps([found["Args"], found["HostConfig"], found["Path"]])


def test_exposed_without_a_working_key_is_refused_and_stopped(shop: Shop) -> None:
    done = shop.serve("open-without-key", "--expose", "0.0.0.0")
    assert done.returncode == 8 and "a call without the API key is answered" in done.stderr
    assert shop.containers() == []


def test_a_foreign_container_on_the_port_is_named_and_not_touched(shop: Shop) -> None:
    client = shop.yard.engine.client()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    foreign = client.containers.run("scripted:1", ["python3", "-m", "http.server", "80"], detach=True,
                                    ports={"80": ("127.0.0.1", port)})  # fmt: skip
    try:
        until(lambda: socket.create_connection(("127.0.0.1", port), 1) and True)
        done = shop.serve("healthy", "--port", str(port))
        assert done.returncode == 2 and f"port {port} is in use" in done.stderr
        foreign.reload()
        assert foreign.status == "running"
        assert shop("stop", "--all").returncode == 0
        foreign.reload()
        assert foreign.status == "running"
    finally:
        foreign.remove(force=True)
        client.close()


def test_ctrl_c_during_the_boot_removes_the_container(shop: Shop) -> None:
    root = str(shop.folder.parent)
    argv = [sys.executable, "-m", "recipectl", "--recipes", root, "serve", "tiny-dflash", "--sm", "cpu",
            "--set", "env.ENGINE_SCRIPT=hangs-in-boot"]  # fmt: skip
    command = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(shop.containers)
    time.sleep(0.5)
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=60)
    assert command.returncode == 130 and "nothing is left running" in err, err
    assert shop.containers() == []


def test_an_image_that_is_not_there(shop: Shop) -> None:
    file = shop.folder / "recipe.yaml"
    file.write_text(file.read_text().replace(shop.yard.digest, "sha256:" + "0" * 64))
    assert shop("lock", "tiny-dflash", "--sm", "cpu").returncode == 0
    done = shop.serve()
    assert done.returncode == 4 and "recipectl pull" in done.stderr
    assert shop.containers() == []


def test_dry_run_prints_the_docker_line_and_starts_nothing(shop: Shop) -> None:
    done = shop.serve("healthy", "--dry-run", "--port", "8123")
    assert done.returncode == 0, done.stderr
    for part in ("docker run", "--cap-drop ALL", "--publish 127.0.0.1:8123:8123", "/models/drafter:ro", "gates: alive"):
        assert part in done.stdout
    assert shop.containers() == []


def test_an_engine_that_does_not_answer(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECIPECTL_DOCKER_HOST", "unix:///nonexistent/docker.sock")
    done = shop.serve()
    assert done.returncode == 7, done.stderr
    monkeypatch.setenv("RECIPECTL_DOCKER_HOST", shop.yard.engine.host)
