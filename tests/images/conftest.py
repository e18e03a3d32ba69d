"""A toy package with an overlay on it, as folders and as a base image in a registry of the tests' own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from recipectl.images.docker import DockerEngine
from tests.docker_engine import Engine, Registry, engine, import_image, push, python_rootfs, registry

SITE = "/opt/site"
SECOND = "def answer() -> int:\n    return 41\n"
DIST = "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n"


def sha(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


FIRST_PY = "# toy\n" + "".join(f"x{n} = {n}\n" for n in range(1, 41))
FIRST_NEW = FIRST_PY.replace("x21 = 21\n", "x21 = 2100\n")
FIRST_PATCH = """--- a/toy/first.py
+++ b/toy/first.py
@@ -19,7 +19,7 @@
 x18 = 18
 x19 = 19
 x20 = 20
-x21 = 21
+x21 = 2100
 x22 = 22
 x23 = 23
 x24 = 24
"""
ADDED = "ADDED = True\n"
CHECK = """import sys
sys.path.insert(0, '/opt/site')
import toy.first, toy.added
print('toy says', toy.first.x21)
"""


def manifest(**changes: Any) -> dict[str, Any]:
    """The toy overlay's manifest; `changes` replace top-level keys."""
    base = {
        "schema": 1, "name": "toy-overlay", "summary": "changes one line of the toy package", "license": "Apache-2.0",
        "sources": [{"title": "the toy package of these tests", "where": "tests/images"}],
        "base": {"distribution": ["toy"], "version": "1.0", "site_packages": SITE,
                 "image": {"ref": "127.0.0.1:1/base:1", "digest": "sha256:" + "0" * 64}},
        "families": ["cpu"],
        "patches": [{"file": "toy/first.py", "patch": "first.patch", "before": sha(FIRST_PY), "after": sha(FIRST_NEW),
                     "why": "the tests want another number"}],
        "files": [{"file": "toy/added.py", "source": "added.py", "sha256": sha(ADDED), "why": "the check imports it"}],
        "checks": [{"kind": "script", "source": "check.py", "expect": "toy says 2100", "why": "the number is used"}],
    }  # fmt: skip
    return {**base, **changes}


def write_overlay(root: Path, sources: dict[str, str] | None = None, /, **changes: Any) -> Path:
    """Write the toy overlay below `root`/overlays; its folder."""
    data = manifest(**changes)
    folder = root / "overlays" / data["name"]
    texts = {"first.patch": FIRST_PATCH, "added.py": ADDED, "check.py": CHECK, **(sources or {})}
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "overlay.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    return folder


def write_package(root: Path) -> Path:
    """The toy package unpacked below `root`; the folder to put on PYTHONPATH."""
    (root / "toy").mkdir(parents=True)
    (root / "toy" / "__init__.py").write_text("")
    (root / "toy" / "first.py").write_text(FIRST_PY)
    (root / "toy" / "second.py").write_text(SECOND)
    (root / "toy" / "sub").mkdir()
    (root / "toy" / "sub" / "__init__.py").write_text("")
    (root / "toy-1.0.dist-info").mkdir()
    (root / "toy-1.0.dist-info" / "METADATA").write_text(DIST)
    return root


@dataclass
class Bench:
    """A real engine, a real registry, and a base image in it."""

    engine: Engine
    registry: Registry
    docker: DockerEngine
    ref: str
    digest: str

    def base(self) -> dict[str, Any]:
        """`base` of a manifest that builds on the image."""
        return {"distribution": ["toy"], "version": "1.0", "site_packages": SITE,
                "image": {"ref": self.ref, "digest": self.digest}}  # fmt: skip

    def names(self) -> set[str]:
        """Every image name of the engine that an overlay build could have given."""
        client = self.engine.client()
        try:
            return {t for i in client.images.list() for t in i.tags if t.startswith("recipectl/")}
        finally:
            client.close()


@pytest.fixture(scope="session")
def _session_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    running = engine()
    site = SITE.lstrip("/")
    rootfs = python_rootfs({
        f"{site}/toy/__init__.py": b"", f"{site}/toy/first.py": FIRST_PY.encode(),
        f"{site}/toy/second.py": SECOND.encode(), f"{site}/toy-1.0.dist-info/METADATA": DIST.encode(),
    })  # fmt: skip
    import_image(running, "toybase:1", rootfs)
    with registry(tmp_path_factory.mktemp("registry")) as found:
        ref = f"{found.address}/toybase:1"
        digest = push(running, "toybase:1", ref)
        docker = DockerEngine(running.host)
        yield Bench(running, found, docker, ref, digest)
        docker.close()


@pytest.fixture
def bench(_session_bench: Bench) -> Bench:
    """The session's engine and registry, without names of earlier builds."""
    for name in _session_bench.names():
        _session_bench.docker.untag(name)
    return _session_bench
