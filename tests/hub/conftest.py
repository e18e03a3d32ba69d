"""A hub with one recipe on it, and an ssh server, each real and this test's own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import need
from tests.hub import models
from tests.hub.testhub import Repo, TestHub

NC_ND = "CC-BY-NC-ND-4.0"


@pytest.fixture
def hub() -> Iterator[TestHub]:
    with TestHub() as running:
        yield running


@dataclass
class Pair:
    """A recipe of a target and a drafter on the hub, in a folder of its own, and a command line that uses them."""

    hub: TestHub
    folder: Path
    target: Repo
    drafter: Repo
    env: dict[str, str]

    @property
    def recipe(self) -> Path:
        return self.folder / "recipes" / "pair" / "recipe.yaml"

    @property
    def lock(self) -> Path:
        return self.recipe.with_name("recipe.lock.yaml")

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def model(self, repo: Repo, ref: str = "main") -> Path:
        return self.cache / "models" / repo.name.replace("/", "--") / repo.refs[ref]

    def write(self, *, target_ref: str | None = None, drafter_ref: str | None = None, **kwargs: str) -> None:
        """The recipe, at full commits where no ref is given."""
        at = (f"{self.target.name}@{target_ref or self.target.refs['main']}",
              f"{self.drafter.name}@{drafter_ref or self.drafter.refs['main']}")  # fmt: skip
        self.recipe.parent.mkdir(parents=True, exist_ok=True)
        self.recipe.write_text(models.recipe("pair", *at, **kwargs))

    def start(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "recipectl", *argv], cwd=self.folder, env={**self.env, **env}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        """As a user without a terminal runs it."""
        process = self.start(*argv, **env)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def pull(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        return self.run("pull", "pair", "--sm", "cpu", "--accept-license", NC_ND, *argv, **env)

    def files(self, repo: Repo) -> dict[str, bytes]:
        """What lies in the model's folder."""
        folder = self.model(repo)
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    def wanted(self, repo: Repo) -> dict[str, bytes]:
        """What the lock should have brought: all but what no pattern asks for."""
        return {n: b for n, b in repo.commits[repo.refs["main"]].items() if not n.endswith(".bin")}


@pytest.fixture
def pair(hub: TestHub, tmp_path: Path) -> Pair:
    target, drafter = (
        hub.repo("acme/Target", card={"license": "mit"}),
        hub.repo("acme/Drafter", card={"license": NC_ND}),
    )
    target.commit(models.target())
    drafter.commit(models.drafter())
    env = {
        **os.environ, "HF_ENDPOINT": hub.endpoint, "PYTHONPATH": str(Path(__file__).parents[2]),
        "RECIPECTL_CACHE": str(tmp_path / "cache"), "RECIPECTL_STATE": str(tmp_path / "state"),
        "RECIPECTL_HUB_TIMEOUT_S": "2", "RECIPECTL_HUB_RETRIES": "2",
    }  # fmt: skip
    made = Pair(hub, tmp_path, target, drafter, env)
    made.write()
    return made


@dataclass
class Ssh:
    """An ssh server on loopback. `bin` holds an `ssh` that knows its key: put it first on PATH."""

    port: int
    bin: Path

    @property
    def host(self) -> str:
        return f"ssh://127.0.0.1:{self.port}"


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[Ssh]:
    server, client = shutil.which("sshd", path="/usr/sbin:/usr/bin:/usr/local/sbin"), shutil.which("ssh")
    if server is None or client is None:
        need("ssh", "openssh-server and openssh-client are not installed")
    assert server and client
    base = tmp_path / "ssh"
    base.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(base / name)], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shutil.copy(base / "user.pub", base / "authorized")
    (base / "known").write_text(f"[127.0.0.1]:{port} {(base / 'host.pub').read_text()}")
    (base / "sshd").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {base}/host\nAuthorizedKeysFile {base}/authorized\n"
        f"PidFile {base}/pid\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
    )
    (base / "client").write_text(f"IdentityFile {base}/user\nIdentitiesOnly yes\nUserKnownHostsFile {base}/known\n")
    (base / "bin").mkdir()
    wrapper = base / "bin" / "ssh"
    wrapper.write_text(f'#!/bin/sh\nexec {client} -F {base}/client "$@"\n')
    wrapper.chmod(0o755)
    Path("/run/sshd").mkdir(exist_ok=True)
    process = subprocess.Popen([server, "-D", "-e", "-f", str(base / "sshd")], stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield Ssh(port, base / "bin")
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int) -> None:
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("sshd does not listen")
