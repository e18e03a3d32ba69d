"""A hub with one recipe on it, and an ssh server, each real and this test's own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import need
from tests.hub.pair import Pair, make_pair
from tests.hub.testhub import TestHub


@pytest.fixture
def hub() -> Iterator[TestHub]:
    with TestHub() as running:
        yield running


@pytest.fixture
def pair(hub: TestHub, tmp_path: Path) -> Pair:
    return make_pair(hub, tmp_path, dict(os.environ))


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
