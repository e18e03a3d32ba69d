"""The Docker adapter against a real engine and a real registry: what goes wrong is said, and said correctly."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from recipectl.errors import EngineError, HubError
from recipectl.images import buildx
from recipectl.images.docker import DockerEngine, translate
from recipectl.images.port import ContainerSpec
from tests.conftest import need
from tests.docker_engine import free_port, import_image, push, registry

from .conftest import Bench

pytestmark = pytest.mark.docker
GONE = "sha256:" + "e" * 64


def test_engine_not_running(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="does not answer") as caught:
        DockerEngine(f"unix://{tmp_path}/docker.sock")
    assert caught.value.exit_code == 7
    assert "systemctl start docker" in str(caught.value.next_step)


def test_socket_that_nobody_serves(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(tmp_path / "docker.sock"))
    with pytest.raises(EngineError, match="does not answer"):
        DockerEngine(f"unix://{tmp_path}/docker.sock")


def test_no_permission_on_the_socket(bench: Bench, tmp_path: Path) -> None:
    """Another user, as on a machine whose account is not in the group `docker`. A child: a uid cannot be taken back."""
    if os.geteuid() != 0:
        need("root", "only root can become another user")
    sock = bench.engine.host.removeprefix("unix://")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        try:
            DockerEngine(f"unix://{sock}")
            said = "connected"
        except EngineError as err:
            said = f"{err.what} | {err.next_step}"
        os.write(writing, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    said = os.read(reading, 4096).decode()
    os.close(reading)
    assert said.startswith("no permission to talk to the Docker engine | add your user to the group `docker`")


def test_an_engine_that_hangs(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "docker.sock"))
        silent.listen()
        with pytest.raises(EngineError, match="does not answer"):
            DockerEngine(f"unix://{tmp_path}/docker.sock", timeout_s=1)


def test_resolve_a_tag_without_pulling(bench: Bench) -> None:
    found = bench.docker.resolve(bench.ref)
    assert found.digest == bench.digest
    assert found.platforms == (bench.docker.platform(),)


def test_a_tag_that_was_pushed_again_means_another_digest(bench: Bench) -> None:
    """What happened to the base tag of the GB300 lane. The lock keeps what it saw; a new resolution shows the move."""
    import_image(bench.engine, "moved:1", _rootfs(b"one"))
    first = push(bench.engine, "moved:1", bench.ref.replace("toybase:1", "moving:1"))
    assert bench.docker.resolve(bench.ref.replace("toybase:1", "moving:1")).digest == first
    import_image(bench.engine, "moved:2", _rootfs(b"two"))
    second = push(bench.engine, "moved:2", bench.ref.replace("toybase:1", "moving:1"))
    assert second != first
    assert bench.docker.resolve(bench.ref.replace("toybase:1", "moving:1")).digest == second
    # The old digest is still there to be pulled, which is what a pin is for.
    repository = bench.ref.replace("toybase:1", "moving")
    assert bench.docker.pull(repository, first, None).digests


def _rootfs(data: bytes) -> bytes:
    import io
    import tarfile

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("data")
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_pull_shows_bytes_and_ends_with_the_image(bench: Bench) -> None:
    blob = os.urandom(3 << 20)
    import_image(bench.engine, "pulled:1", _rootfs(blob))
    ref = bench.ref.replace("toybase:1", "pulled:1")
    digest = push(bench.engine, "pulled:1", ref)
    client = bench.engine.client()
    try:
        for name in ("pulled:1", ref):
            client.images.remove(name)
    finally:
        client.close()
    seen: list[tuple[int, int, str]] = []
    found = bench.docker.pull(
        ref.rsplit(":", 1)[0], digest, None, lambda done, total, line: seen.append((done, total, line))
    )
    assert any(digest in d for d in found.digests)
    assert max(total for _, total, _ in seen) > 3 << 20
    assert any("Pull complete" in line for _, _, line in seen)


def test_pull_of_what_is_not_there(bench: Bench) -> None:
    with pytest.raises(HubError, match="the registry does not have it") as caught:
        bench.docker.pull(bench.ref.rsplit(":", 1)[0], GONE, None)
    assert "recipectl lock --update all" in str(caught.value.next_step)
    with pytest.raises(HubError):
        bench.docker.resolve(bench.ref.replace("toybase", "nothing"))


def test_a_registry_that_dies_during_the_pull(bench: Bench, tmp_path: Path) -> None:
    import_image(bench.engine, "dying:1", _rootfs(os.urandom(2 << 20)))
    with registry(tmp_path / "second") as second:
        ref = f"{second.address}/dying:1"
        digest = push(bench.engine, "dying:1", ref)
        client = bench.engine.client()
        try:
            client.images.remove(ref)
            client.images.remove("dying:1")
        finally:
            client.close()
        second.stop()
        with pytest.raises(HubError, match="its registry cannot be reached"):
            bench.docker.pull(f"{second.address}/dying", digest, None)
        with pytest.raises(HubError, match="its registry cannot be reached"):
            bench.docker.resolve(ref)


def test_a_layer_that_is_damaged_in_the_registry(bench: Bench) -> None:
    """The engine checks each layer against its digest; the SDK's convenience method would swallow the error."""
    blob = os.urandom(1 << 20)
    import_image(bench.engine, "damaged:1", _rootfs(blob))
    ref = bench.ref.replace("toybase:1", "damaged:1")
    digest = push(bench.engine, "damaged:1", ref)
    client = bench.engine.client()
    try:
        client.images.remove(ref)
        client.images.remove("damaged:1")
    finally:
        client.close()
    blobs = sorted(bench.registry.folder.glob("data/docker/registry/v2/blobs/**/data"), key=lambda p: p.stat().st_mtime)
    layer = next(p for p in reversed(blobs) if p.stat().st_size >= 1 << 20)
    raw = bytearray(layer.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    layer.write_bytes(raw)
    with pytest.raises((HubError, EngineError)) as caught:
        bench.docker.pull(ref.rsplit(":", 1)[0], digest, None)
    assert "could not pull the image" in caught.value.what
    assert bench.docker.image(f"{ref.rsplit(':', 1)[0]}@{digest}") is None


def test_containers_live_and_die(bench: Bench) -> None:
    spec = ContainerSpec(
        "recipectl-test-box", "toybase:1", ("-c", "import time\nprint('up', flush=True)\ntime.sleep(600)"),
        entrypoint=("python3",), labels={"io.recipectl.test": "box"}, env={"A": "1"},
    )  # fmt: skip
    box = bench.docker.create(spec)
    try:
        bench.docker.start(box)
        (found,) = bench.docker.containers({"io.recipectl.test": "box"})
        assert (found.id, found.name, found.status, found.exit_code) == (box, "recipectl-test-box", "running", None)
        log = bench.docker.logs(box, follow=True)
        assert b"up" in next(log)
        raw = bench.docker.api.inspect_container(box)["HostConfig"]
        assert raw["CapDrop"] == ["ALL"]
        assert raw["Privileged"] is False
        assert raw["RestartPolicy"]["Name"] in ("no", "")
        assert "no-new-privileges:true" in raw["SecurityOpt"]
        with pytest.raises(EngineError, match="could not create the container"):
            bench.docker.create(spec)
        bench.docker.stop(box, timeout_s=1)
        ended = bench.docker.container(box)
        assert ended is not None and ended.status == "exited" and ended.exit_code in (137, 143)
        bench.docker.stop(box)  # twice is fine
        bench.docker.signal(box, "SIGTERM")
    finally:
        bench.docker.remove(box)
    assert bench.docker.container(box) is None
    bench.docker.remove(box)
    bench.docker.stop(box)


def test_ports_and_mounts(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "hello.txt").write_text("from the host")
    from recipectl.images.port import Mount

    port = free_port()
    server = ("-c", "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000, bind='0.0.0.0')")
    spec = ContainerSpec(
        "recipectl-test-ports", "toybase:1", server, entrypoint=("python3",), ports={8000: ("127.0.0.1", port)},
        mounts=(Mount(str(tmp_path), "/data"),), labels={"io.recipectl.test": "ports"},
    )  # fmt: skip
    box = bench.docker.create(spec)
    try:
        bench.docker.start(box)
        raw = bench.docker.api.inspect_container(box)
        assert raw["HostConfig"]["PortBindings"] == {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(port)}]}
        assert [m["RW"] for m in raw["Mounts"]] == [False]
    finally:
        bench.docker.stop(box, timeout_s=0)
        bench.docker.remove(box)


def test_a_gpu_without_the_nvidia_runtime(bench: Bench) -> None:
    """Creation succeeds and the start fails, with words that name nothing a user can act on."""
    box = bench.docker.create(ContainerSpec("recipectl-test-gpu", "toybase:1", ("true",), gpus=("GPU-1234",)))
    try:
        with pytest.raises(EngineError, match="cannot give containers a GPU") as caught:
            bench.docker.start(box)
        assert "nvidia-container-toolkit" in str(caught.value.next_step)
    finally:
        bench.docker.remove(box)


def test_containers_are_never_listed_without_a_label(bench: Bench) -> None:
    with pytest.raises(EngineError, match="only ever listed by label"):
        bench.docker.containers({})


@pytest.mark.parametrize(
    ("message", "kind", "says"),
    [
        ("write /x: no space left on device", EngineError, "disk is full"),
        ('Get "https://r/v2/": dial tcp: lookup r: no such host', HubError, "cannot be reached"),
        ("manifest for r/x@sha256:1 not found: manifest unknown", HubError, "does not have it"),
        ("pull access denied for x, repository does not exist or may require 'docker login'", HubError, "refuses"),
        ("something new", EngineError, "could not pull the image"),
    ],
)  # fmt: skip
def test_what_engines_say_about_pulls(message: str, kind: type[Exception], says: str) -> None:
    error = translate(message, "pull the image", "r/x")
    assert isinstance(error, kind)
    assert says in error.what


SHIM = """#!/bin/sh
# A stand-in for a Docker CLI with buildx, on the real engine's own builder: it takes our argv as buildx would.
[ "$1 $2" = "buildx version" ] && { echo "github.com/docker/buildx v0"; exit 0; }
host=$2; echo "$@" >> "%(log)s"; shift 4
while [ $# -gt 0 ]; do case $1 in
  --iidfile) iid=$2; shift 2;; --build-arg) args="$args --build-arg $2"; shift 2;;
  --builder|--platform) shift 2;; -) shift;; *) shift;; esac; done
exec %(docker)s --host "$host" build --network=none $args --iidfile "$iid" -
"""


@pytest.fixture
def shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A `docker` first on PATH that has buildx. No real buildx exists on the machines that these tests run on."""
    folder, log = tmp_path / "bin", tmp_path / "argv.log"
    folder.mkdir()
    tool = folder / "docker"
    real = "/usr/bin/docker" if Path("/usr/bin/docker").exists() else "/usr/local/bin/docker"
    tool.write_text(SHIM % {"log": log, "docker": real})
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    buildx.available.cache_clear()
    yield log
    buildx.available.cache_clear()


def _context(dockerfile: str) -> bytes:
    import io
    import tarfile

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("Dockerfile")
        info.size = len(dockerfile)
        tar.addfile(info, io.BytesIO(dockerfile.encode()))
    return out.getvalue()


def test_buildx_is_used_where_the_cli_has_it(bench: Bench, shim: Path) -> None:
    said: list[str] = []
    text = "FROM toybase:1\nARG X\nLABEL x=${X}\n"
    built = bench.docker.build(_context(text), {"X": "7"}, None, lambda d, t, line: said.append(line))
    image = bench.docker.image(built)
    assert image is not None and image.labels["x"] == "7" and image.tags == ()
    argv = shim.read_text()
    for flag in (
        "--load",
        "--network=none",
        "--provenance=false",
        "--builder default",
        "--build-arg X=7",
        "--progress=plain",
    ):
        assert flag in argv
    assert "7" not in " ".join(os.environ) and said


def test_a_failing_buildx_is_quoted(bench: Bench, shim: Path) -> None:
    with pytest.raises(EngineError, match="docker buildx failed") as caught:
        bench.docker.build(_context("FROM toybase:1\nCOPY nothing /\n"), {}, None)
    assert any("nothing" in line for line in caught.value.details)


def test_the_classic_builders_words(bench: Bench) -> None:
    with pytest.raises(EngineError, match="could not build the image") as caught:
        bench.docker.build(_context("FROM toybase:1\nCOPY nothing /\n"), {}, None)
    assert "nothing" in str(caught.value.seen)


def test_checks_run_side_by_side(bench: Bench) -> None:
    out: list[str] = []
    threads = [
        threading.Thread(
            target=lambda n=n: out.append(
                bench.docker.run_check("toybase:1", ["python3", "-c", f"print({n})"], 30).output
            )
        )  # type: ignore[misc]
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(int(o) for o in out) == [0, 1, 2, 3]
