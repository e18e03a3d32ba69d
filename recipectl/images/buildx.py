"""Builds through `docker buildx`, where that CLI plugin is present: the SDK has no BuildKit (docker-py issue 2230)."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from recipectl.errors import EngineError
from recipectl.images.port import Progress


@functools.cache
def available() -> bool:
    """Whether the Docker CLI of this machine has buildx."""
    if not shutil.which("docker"):
        return False
    try:
        return (
            subprocess.run(["docker", "buildx", "version"], capture_output=True, timeout=20, check=False).returncode
            == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def command(host: str, build_args: Mapping[str, str], platform: str | None, id_file: Path) -> list[str]:
    """The exact argv. The `default` builder is the engine's own, which sees local images and needs no network."""
    argv = ["docker", "--host", host, "buildx", "build", "--builder", "default", "--load", "--provenance=false",
            "--network=none", "--pull=false", "--progress=plain", "--iidfile", str(id_file)]  # fmt: skip
    argv += ["--platform", platform] if platform else []
    for key, value in sorted(build_args.items()):
        argv += ["--build-arg", f"{key}={value}"]
    return [*argv, "-"]


def build(
    host: str, context: bytes, build_args: Mapping[str, str], platform: str | None, progress: Progress | None
) -> str:
    """Build a context from stdin; the image's id. EngineError with the last lines that buildx said."""
    with tempfile.TemporaryDirectory(prefix="recipectl-buildx-") as scratch:
        id_file = Path(scratch) / "id"
        argv = command(host, build_args, platform, id_file)
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            said = _talk(process, context, progress)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        if process.returncode != 0 or not id_file.is_file():
            raise EngineError(
                "docker buildx failed", on=" ".join(argv), seen=f"exit code {process.returncode}", details=said[-15:],
                next_step="docker buildx ls; docker system df",
            )  # fmt: skip
        return id_file.read_text().strip()


def _talk(process: subprocess.Popen[bytes], context: bytes, progress: Progress | None) -> list[str]:
    """Feed stdin while reading stdout, so that neither side waits for the other."""
    assert process.stdin is not None and process.stdout is not None
    feeder = threading.Thread(target=_feed, args=(process, context), daemon=True)
    feeder.start()
    said: list[str] = []
    for raw in process.stdout:
        line = raw.decode("utf-8", "replace").rstrip()
        said.append(line)
        if progress:
            progress(0, 0, line)
    feeder.join()
    process.wait()
    return said


def _feed(process: subprocess.Popen[bytes], context: bytes) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(context)
        process.stdin.close()
    except BrokenPipeError:
        return  # buildx ended early; its exit code says why
