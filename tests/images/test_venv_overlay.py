"""An overlay on a Python environment: a patched copy first on the path, the environment itself untouched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recipectl.errors import PinError
from recipectl.images.overlay import sha256
from recipectl.images.overlay_files import load
from recipectl.images.venv_overlay import prepare
from recipectl.settings import Settings

from .conftest import FIRST_NEW, FIRST_PY, write_overlay, write_package


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_overlay(tmp_path)
    return write_package(tmp_path / "site")


def ask(program: str, *path: Path) -> str:
    env = {"PYTHONPATH": ":".join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    ).stdout.strip()


def tree(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): sha256(p.read_bytes()) for p in folder.rglob("*") if p.is_file()}


def test_python_uses_the_patched_copy(settings: Settings, site: Path, tmp_path: Path) -> None:
    before = tree(site)
    first = prepare(load(settings, "toy-overlay"), site, tmp_path / "cache")
    program = (
        "import toy.first, toy.added, toy.second, toy.sub; print(toy.first.x21, toy.second.answer(), toy.sub.__name__)"
    )
    assert ask(program, first, site) == "2100 41 toy.sub"
    assert ask("import toy.first; print(toy.first.x21)", site) == "21"
    assert tree(site) == before
    # Metadata is still found where the distribution lies.
    assert ask("from importlib.metadata import version; print(version('toy'))", first, site) == "1.0"


def test_it_is_made_once(settings: Settings, site: Path, tmp_path: Path) -> None:
    toy = load(settings, "toy-overlay")
    first = prepare(toy, site, tmp_path / "cache")
    made = (first / "toy/first.py").stat().st_ino
    assert prepare(toy, site, tmp_path / "cache") == first
    assert (first / "toy/first.py").stat().st_ino == made


def test_only_changed_files_take_room(settings: Settings, site: Path, tmp_path: Path) -> None:
    first = prepare(load(settings, "toy-overlay"), site, tmp_path / "cache")
    real = sorted(str(p.relative_to(first)) for p in first.rglob("*") if p.is_file() and not p.is_symlink())
    assert real == ["recipectl-overlay.json", "toy/added.py", "toy/first.py"]
    assert (first / "toy/second.py").resolve() == site / "toy/second.py"


def test_a_copy_that_was_changed_is_refused(settings: Settings, site: Path, tmp_path: Path) -> None:
    toy = load(settings, "toy-overlay")
    first = prepare(toy, site, tmp_path / "cache")
    (first / "toy/first.py").write_text(FIRST_NEW + "evil = 1\n")
    with pytest.raises(PinError, match="was changed"):
        prepare(toy, site, tmp_path / "cache")
    (first / "toy/first.py").write_text(FIRST_NEW)
    (first / "toy/sitecustomize.py").write_text("evil = 1\n")
    with pytest.raises(PinError, match="nobody put there"):
        prepare(toy, site, tmp_path / "cache")
    (first / "toy/sitecustomize.py").unlink()
    (first / "toy/second.py").unlink()
    (first / "toy/second.py").symlink_to(tmp_path / "elsewhere.py")
    with pytest.raises(PinError, match="links outside"):
        prepare(toy, site, tmp_path / "cache")


def test_an_upgraded_package_is_refused_not_reused(settings: Settings, site: Path, tmp_path: Path) -> None:
    toy = load(settings, "toy-overlay")
    prepare(toy, site, tmp_path / "cache")
    (site / "toy/first.py").write_text(FIRST_PY + "# 1.1\n")
    with pytest.raises(PinError, match="not the one that the patch was made for"):
        prepare(toy, site, tmp_path / "cache")


def test_a_half_made_copy_is_made_anew(settings: Settings, site: Path, tmp_path: Path) -> None:
    toy = load(settings, "toy-overlay")
    first = prepare(toy, site, tmp_path / "cache")
    (first / "recipectl-overlay.json").unlink()
    (first / "toy/first.py").write_text("half")
    assert (prepare(toy, site, tmp_path / "cache") / "toy/first.py").read_text() == FIRST_NEW


def test_another_environment_gets_its_own_copy(settings: Settings, site: Path, tmp_path: Path) -> None:
    toy = load(settings, "toy-overlay")
    other = write_package(tmp_path / "other")
    assert prepare(toy, site, tmp_path / "cache") != prepare(toy, other, tmp_path / "cache")
