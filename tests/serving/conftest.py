"""A recipe folder with a seeded random pair, and an engine whose behaviour a test scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.conftest import ROOT

if TYPE_CHECKING:
    from tests.serving.two_hosts import Hosts

RANDOM_PAIR = ROOT / "tests" / "engine" / "random_pair.py"
SCRIPTED = ROOT / "tests" / "engine" / "scripted_engine.py"


@pytest.fixture(scope="session")
def random_pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with target/ and drafter/ of random weights. Made by torch in a process of its own."""
    folder = tmp_path_factory.mktemp("pair")
    subprocess.run([sys.executable, RANDOM_PAIR, folder], check=True, capture_output=True)
    return folder


@pytest.fixture
def recipe_folder(random_pair: Path, tmp_path: Path) -> Path:
    """A recipes folder with a copy of tiny-dflash on the random pair, not locked yet."""
    folder = tmp_path / "recipes" / "tiny-dflash"
    shutil.copytree(random_pair, folder)
    for file in (ROOT / "recipes" / "tiny-dflash").iterdir():
        # What stands beside the recipe belongs to it; the lock is of the trained pair.
        if file.is_file() and file.name != "recipe.lock.yaml":
            shutil.copy(file, folder)
    recipe = folder / "recipe.yaml"
    # The random pair has a tokenizer of its own.
    kept = [line for line in recipe.read_text().splitlines(keepends=True) if "tokenizer.json:" not in line]
    recipe.write_text("".join(kept))
    return folder


@pytest.fixture(scope="session")
def hosts() -> Iterator[Hosts]:
    """Two hosts whose engines have the scripted image, for every module that asks."""
    from tests.serving.test_docker_cli import engine_rootfs
    from tests.serving.two_hosts import two_hosts

    with two_hosts(lambda tar: tar.write_bytes(engine_rootfs()), ["PATH=/usr/local/bin:/usr/bin:/bin"]) as found:
        yield found


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the scripted engine the engine of this test's command lines."""
    monkeypatch.setenv("RECIPECTL_ENGINE_PYTHON", str(SCRIPTED))
    return SCRIPTED


def marked(deployment_part: str) -> list[psutil.Process]:
    """Every process of this machine whose deployment mark holds a text."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and deployment_part in process.environ().get(
                "RECIPECTL_DEPLOYMENT", ""
            ):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def random_weights(folder: Path) -> None:
    """Declare in the recipe that its models are random."""
    file = folder / "recipe.yaml"
    text = file.read_text()
    for role in ("target", "drafter"):
        text = text.replace(f"    path: {role}\n", f"    path: {role}\n    random_weights: true\n")
    file.write_text(text)


def state_of(env: dict[str, str] | None = None) -> Path:
    """The state folder of this test."""
    return Path((env or dict(os.environ))["RECIPECTL_STATE"])
