"""A Docker engine and a registry of the tests' own: private socket, private folder, nothing of the machine's engine.

Debian packages: docker.io iptables docker-registry. One engine serves a whole test session (`engine()`); tests label or
name what they make. `base_image` makes a small image with this machine's own Python, so no registry is needed.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import io
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import requests

from .conftest import need

START_S = 60.0


@dataclass(frozen=True)
class Engine:
    """A running dockerd. `host` is what DOCKER_HOST or `docker_host` takes."""

    host: str
    folder: Path
    log: Path

    def client(self) -> Any:
        """A docker SDK client of this engine."""
        import docker

        return docker.DockerClient(base_url=self.host, timeout=120)


@contextlib.contextmanager
def dockerd(folder: Path, *extra: str, nsenter: str | None = None) -> Iterator[Engine]:
    """Start a dockerd whose data, sockets and log lie in `folder`, and stop it with everything in it.

    `nsenter` names a network namespace (/run/netns/NAME) to run in; `extra` are further dockerd flags, such as
    `--bridge=none --iptables=false` there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sock, log = folder / "docker.sock", folder / "dockerd.log"
    command = ["dockerd", "--data-root", str(folder / "data"), "--exec-root", str(folder / "exec"),
               "--pidfile", str(folder / "docker.pid"), "-H", f"unix://{sock}", *extra]  # fmt: skip
    if nsenter:
        command = ["nsenter", f"--net=/run/netns/{nsenter}", *command]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        _wait_for_socket(process, sock, log)
        yield Engine(f"unix://{sock}", folder, log)
    finally:
        _stop(process, folder)


def _wait_for_socket(process: subprocess.Popen[bytes], sock: Path, log: Path) -> None:
    import docker

    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"dockerd ended with {process.returncode}:\n{log.read_text()[-2000:]}")
        with contextlib.suppress(docker.errors.DockerException, OSError):
            client = docker.DockerClient(base_url=f"unix://{sock}", timeout=5)
            client.ping()
            client.close()
            return
        time.sleep(0.1)
    raise RuntimeError(f"dockerd did not come up in {START_S} s:\n{log.read_text()[-2000:]}")


def _stop(process: subprocess.Popen[bytes], folder: Path) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
    for line in reversed(Path("/proc/mounts").read_text().splitlines()):
        if (mount := line.split()[1]).startswith(str(folder)):
            subprocess.run(["umount", "-l", mount], check=False)
    shutil.rmtree(folder, ignore_errors=True)


def available() -> str | None:
    """Why no engine can be started here; None if one can."""
    if not shutil.which("dockerd"):
        return "dockerd is not installed (apt-get install docker.io iptables)"
    if os.geteuid() != 0:
        return "dockerd needs root"
    return None


@functools.cache
def engine() -> Engine:
    """The session's engine, started on first use and stopped at exit. Skips (or fails, under CI) without one."""
    if reason := available():
        need("docker", reason)
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    folder = Path(tempfile.mkdtemp(prefix="recipectl-docker-"))
    return stack.enter_context(dockerd(folder, "--storage-driver=overlay2"))


@dataclass
class Registry:
    """A running registry on loopback; the engine takes loopback registries without TLS."""

    address: str
    folder: Path
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """End it, keeping its data."""
        self.process.terminate()
        self.process.wait(10)


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def registry(folder: Path) -> Iterator[Registry]:
    """A real docker-registry with its data in `folder`. Deletes are allowed, so tags and digests can go away."""
    if not shutil.which("docker-registry"):
        need("docker", "docker-registry is not installed")
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.yml"
    config.write_text(
        f"version: 0.1\nstorage:\n  delete:\n    enabled: true\n  filesystem:\n    rootdirectory: {folder}/data\n"
        f"http:\n  addr: 127.0.0.1:{port}\n"
    )
    with (folder / "log").open("wb") as out:
        process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=out, stderr=out)
    found = Registry(f"127.0.0.1:{port}", folder, process)
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{found.address}/v2/", timeout=1):
                break
            time.sleep(0.05)
        yield found
    finally:
        if process.poll() is None:
            found.stop()


def python_rootfs(extra: dict[str, bytes] | None = None) -> bytes:
    """A root file system as a tar: this machine's Python with its standard library, its shared libraries, `extra`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        add_python(tar)
        for path, data in (extra or {}).items():
            info = tarfile.TarInfo(path.lstrip("/"))
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


# lscpu: the CPU engine of vLLM asks it for cores and memory nodes.
_TOOLS = ("/bin/sh", "/bin/cat", "/usr/bin/lscpu")


def add_python(tar: tarfile.TarFile, *more: Path) -> None:
    """Add the interpreter, its library and every shared library that these and `more` load."""
    base = Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = base / "lib" / version
    skip = re.compile(r"/(site-packages|test|tests|idlelib|ensurepip|tkinter|turtledemo|__pycache__|config-[^/]*)(/|$)")
    interpreter = base / "bin" / version
    tar.add(interpreter, arcname=str(interpreter).lstrip("/"))
    tar.add(library, arcname=str(library).lstrip("/"), filter=lambda i: None if skip.search("/" + i.name) else i)
    binaries = [interpreter, *(library / "lib-dynload").glob("*.so"), *map(Path, _TOOLS), *more]
    for tool in _TOOLS:
        tar.add(Path(tool).resolve(), arcname=tool.lstrip("/"))
    packaged = {p.parent for p in more}
    for shared in sorted(_shared_libraries(binaries)):
        if Path(shared).parent not in packaged:  # what packages bring themselves comes with them
            tar.add(Path(shared).resolve(), arcname=shared.lstrip("/"))
    for name in ("python3", "python"):
        link = tarfile.TarInfo(f"usr/local/bin/{name}")
        link.type, link.linkname = tarfile.SYMTYPE, str(interpreter)
        tar.addfile(link)
    tmp = tarfile.TarInfo("tmp")
    tmp.type, tmp.mode = tarfile.DIRTYPE, 0o1777
    tar.addfile(tmp)


def _shared_libraries(binaries: list[Path]) -> set[str]:
    found: set[str] = set()
    for start in range(0, len(binaries), 64):
        listed = subprocess.run(
            ["ldd", *map(str, binaries[start : start + 64])], capture_output=True, text=True, check=False
        )
        found |= {os.path.normpath(p) for p in re.findall(r"(?:=> )?(/\S+\.so\S*) \(0x", listed.stdout)}
    return found


def import_image(engine_: Engine, name: str, rootfs: bytes) -> str:
    """Import a root file system as an image; its id."""
    client = engine_.client()
    try:
        repository, _, tag = name.partition(":")
        client.api.import_image_from_data(
            rootfs, repository=repository, tag=tag or "latest", changes=["ENV PATH=/usr/local/bin:/usr/bin:/bin"]
        )
        return str(client.images.get(name).id)
    finally:
        client.close()


def push(engine_: Engine, name: str, target: str) -> str:
    """Tag an image as `target` (address/name:tag), push it; the manifest digest."""
    client = engine_.client()
    try:
        repository, _, tag = target.rpartition(":")
        client.images.get(name).tag(repository, tag)
        lines = list(client.api.push(repository, tag=tag, stream=True, decode=True))
        failed = [line["error"] for line in lines if "error" in line]
        if failed:
            raise RuntimeError(f"push of {target} failed: {failed}")
        return str(next(line["aux"]["Digest"] for line in lines if "aux" in line))
    finally:
        client.close()


def publish(address: str, name: str, rootfs: Path, env: Sequence[str] = ()) -> str:
    """Put a root file system into a registry as `name`, one layer that nobody compresses; the manifest digest.

    An engine's own push compresses: 3.5 GB took it three minutes.
    """
    with rootfs.open("rb") as file:
        layer = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        _upload(address, name, layer, file)
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    config = json.dumps({"architecture": arch, "os": "linux", "config": {"Env": list(env)},
                         "rootfs": {"type": "layers", "diff_ids": [layer]}}).encode()  # fmt: skip
    about = "sha256:" + hashlib.sha256(config).hexdigest()
    _upload(address, name, about, io.BytesIO(config))
    kind = "application/vnd.docker."
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": kind + "distribution.manifest.v2+json",
        "config": {"mediaType": kind + "container.image.v1+json", "size": len(config), "digest": about},
        "layers": [{"mediaType": kind + "image.rootfs.diff.tar", "size": rootfs.stat().st_size, "digest": layer}],
    })  # fmt: skip
    put = requests.put(f"http://{address}/v2/{name}/manifests/1", data=manifest,
                       headers={"Content-Type": kind + "distribution.manifest.v2+json"}, timeout=60)  # fmt: skip
    put.raise_for_status()
    return put.headers["Docker-Content-Digest"]


def _upload(address: str, name: str, digest: str, data: IO[bytes]) -> None:
    begun = requests.post(f"http://{address}/v2/{name}/blobs/uploads/", timeout=60)
    begun.raise_for_status()
    where = begun.headers["Location"]
    requests.put(f"{where}{'&' if '?' in where else '?'}digest={digest}", data=data, timeout=600).raise_for_status()
