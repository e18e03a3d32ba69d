"""Two hosts on one machine: two network namespaces, a Docker engine in each, a real ssh server in the second.

The second engine has a mount namespace of its own, so a test can give it another model root under the same path.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker

from tests.conftest import ROOT, need
from tests.docker_engine import Engine, _stop, _wait_for_socket, available, publish, registry

HEAD, FAR = "10.77.0.1", "10.77.0.2"
SSH_PORT = 2222
REGISTRY, REPOSITORY = "127.0.0.1:5017", "engine"
REF = f"{REGISTRY}/{REPOSITORY}:1"
# Of this process alone: another run of the tests may hold two hosts of its own.
NETNS_A, NETNS_B = f"rct{os.getpid()}a", f"rct{os.getpid()}b"


def sh(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


@dataclass
class Hosts:
    """Both engines, and how to run a command line on the first host."""

    a: Engine
    b: Engine
    digest: str
    far: str
    b_pid: int
    folder: Path
    ref: str = REF
    env: dict[str, str] = field(default_factory=dict)

    def recipectl(self, *argv: str, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        """A command line of a user who sits at host a."""
        return subprocess.run(
            ["nsenter", f"--net=/run/netns/{NETNS_A}", sys.executable, "-m", "recipectl", *argv],
            env={**os.environ, **self.env}, capture_output=True, text=True, timeout=timeout, check=False, cwd=ROOT,
        )  # fmt: skip

    def pull(self, engine: Engine) -> None:
        """Fetch the image by digest from the registry that both hosts see."""
        client = engine.client()
        until = time.monotonic() + 20
        while True:
            try:
                client.images.pull(f"{REGISTRY}/{REPOSITORY}", tag=self.digest)
                break
            except docker.errors.APIError:  # the registry has only just been started
                if time.monotonic() > until:
                    raise
            time.sleep(0.2)
        client.close()

    def images_of_b(self) -> dict[str, list[str]]:
        """Every image of host b by id, with its tags."""
        client = self.b.client()
        found = {i.id: i.tags for i in client.images.list(all=True)}
        client.close()
        return found

    def drop_images_of_b(self) -> None:
        """Remove every image of host b."""
        client = self.b.client()
        for image in client.images.list(all=True):
            client.images.remove(image.id, force=True)
        client.close()

    def inspected(self, host: str) -> Any:
        """What the engine of host a or b says of the one container of ours there."""
        client = {"a": self.a, "b": self.b}[host].client()
        found = client.api.inspect_container(self.containers()[host][0])
        client.close()
        return found

    def other_root(self, here: Path, there: Path) -> None:
        """Let host b see `there` under the path `here`."""
        sh("nsenter", f"--mount=/proc/{self.b_pid}/ns/mnt", "mount", "--bind", str(there), str(here))

    def same_root(self, here: Path) -> None:
        """Undo `other_root`."""
        sh("nsenter", f"--mount=/proc/{self.b_pid}/ns/mnt", "umount", str(here))

    def containers(self) -> dict[str, list[str]]:
        """The labelled containers of both engines by host."""
        out = {}
        for name, engine in (("a", self.a), ("b", self.b)):
            client = engine.client()
            found = client.containers.list(all=True, filters={"label": "io.recipectl.deployment"})
            out[name] = [c.name for c in found]
            client.close()
        return out


@contextlib.contextmanager
def namespaces() -> Iterator[None]:
    """Two network namespaces, joined by a pair of interfaces."""
    try:
        sh("ip", "netns", "add", NETNS_A)
        sh("ip", "netns", "add", NETNS_B)
        sh("ip", "link", "add", "fab0", "netns", NETNS_A, "type", "veth", "peer", "name", "fab1", "netns", NETNS_B)
        for name, link, address in ((NETNS_A, "fab0", HEAD), (NETNS_B, "fab1", FAR)):
            sh("ip", "-n", name, "addr", "add", f"{address}/24", "dev", link)
            sh("ip", "-n", name, "link", "set", link, "up")
            sh("ip", "-n", name, "link", "set", "lo", "up")
        yield
    finally:
        for name in (NETNS_A, NETNS_B):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@contextlib.contextmanager
def dockerd(folder: Path, netns: str) -> Iterator[tuple[Engine, int]]:
    """An engine in a network and a mount namespace of its own; its pid."""
    folder.mkdir(parents=True, exist_ok=True)
    sock, log = folder / "docker.sock", folder / "dockerd.log"
    command = ["unshare", "--mount", "--propagation", "private", "nsenter", f"--net=/run/netns/{netns}", "dockerd",
               "--data-root", str(folder / "data"), "--exec-root", str(folder / "exec"), "--pidfile",
               str(folder / "docker.pid"), "-H", f"unix://{sock}", "--bridge=none", "--iptables=false",
               "--storage-driver=overlay2"]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        _wait_for_socket(process, sock, log)
        yield Engine(f"unix://{sock}", folder, log), process.pid
    finally:
        _stop(process, folder)


@contextlib.contextmanager
def registries(folder: Path) -> Iterator[None]:
    """The registry of `folder`, seen from both namespaces at the same loopback address: two servers over one store."""
    config = folder / "registry.yml"
    config.write_text(
        f"version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {folder}/registry/data\nhttp:\n  addr: {REGISTRY}\n"
    )
    with contextlib.ExitStack() as stack:
        for name in (NETNS_A, NETNS_B):
            serve = ["nsenter", f"--net=/run/netns/{name}", "docker-registry", "serve", str(config)]
            process = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        yield


@contextlib.contextmanager
def ssh_server(folder: Path) -> Iterator[dict[str, str]]:
    """sshd on host b, and the environment in which `ssh` trusts it and is trusted. The login shell is the machine's."""
    Path("/run/sshd").mkdir(exist_ok=True)  # sshd wants it for its privilege separation
    for key in ("host", "user", "stranger"):
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key))
    shutil.copy(folder / "user.pub", folder / "authorized")
    config = folder / "sshd_config"
    config.write_text(
        f"Port {SSH_PORT}\nListenAddress {FAR}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        f"StrictModes no\nUsePAM no\nPasswordAuthentication no\nPidFile {folder}/sshd.pid\nPermitRootLogin yes\n"
    )
    host_key = " ".join((folder / "host.pub").read_text().split()[:2])
    (folder / "known").write_text(f"[{FAR}]:{SSH_PORT} {host_key}\n")
    (folder / "ssh_config").write_text(
        f"Host *\n  IdentityFile {folder}/user\n  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known\n"
        "  StrictHostKeyChecking yes\n  BatchMode yes\n"
    )
    tools = folder / "bin"
    tools.mkdir()
    (tools / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/ssh_config "$@"\n')
    (tools / "ssh").chmod(0o755)
    serve = ["nsenter", f"--net=/run/netns/{NETNS_B}", "/usr/sbin/sshd", "-D", "-e", "-f", str(config)]
    with (folder / "sshd.log").open("wb") as out:
        process = subprocess.Popen(serve, stdout=out, stderr=out)
    time.sleep(0.5)
    assert process.poll() is None, (folder / "sshd.log").read_text()
    try:
        yield {"PATH": f"{tools}:{os.environ['PATH']}"}
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def two_hosts(
    write: Callable[[Path], object], environment: Sequence[str], *, far_has_it: bool = True
) -> Iterator[Hosts]:
    """Everything up; both engines, or the first alone, have by digest an image of the root file system that `write`
    writes as a tar to a path."""
    if reason := available():
        need("netns", reason)
    for tool in ("ip", "nsenter", "/usr/sbin/sshd", "docker-registry"):
        if not shutil.which(tool):
            need("netns", f"{tool} is not installed")
    folder = Path(tempfile.mkdtemp(prefix="rct2-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.enter_context(namespaces())
        a, _ = stack.enter_context(dockerd(folder / "a", NETNS_A))
        b, b_pid = stack.enter_context(dockerd(folder / "b", NETNS_B))
        rootfs = folder / "rootfs.tar"
        write(rootfs)
        with registry(folder / "registry") as found:
            digest = publish(found.address, REPOSITORY, rootfs, environment)
        rootfs.unlink()
        stack.enter_context(registries(folder))
        env = stack.enter_context(ssh_server(folder)) | {"RECIPECTL_DOCKER_HOST": a.host}
        far = f"ssh://root@{FAR}:{SSH_PORT}{b.host.removeprefix('unix://')}"
        hosts = Hosts(a, b, digest, far, b_pid, folder, env=env)
        for engine in (a, b) if far_has_it else (a,):
            hosts.pull(engine)
        yield hosts
