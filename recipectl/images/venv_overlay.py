"""An overlay for the `process` runtime: a patched copy of a package tree, put first on PYTHONPATH. Never in place.

The copy is made of links except along the way to changed files, so it costs no disk and no time. It lies in the cache
under the overlay's input digest and the identity of the package it was made from.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from recipectl.errors import EngineError, PinError
from recipectl.fsio import locked, write_json
from recipectl.images.overlay import Overlay, apply, input_digest, require, sha256

RECORD = "recipectl-overlay.json"
_SKIPPED = {"__pycache__"}
_FIND = "import importlib.util as u, pathlib as p, sys; print(p.Path(u.find_spec(sys.argv[1]).origin).parents[1])"


def prepare(overlay: Overlay, site_packages: Path, cache_dir: Path) -> Path:
    """The folder to put first on PYTHONPATH. Made if it is not there; verified in any case.

    PinError if the package is not the one the overlay is for, or if the copy has been changed since.
    """
    site = site_packages.resolve()
    wanted = require(apply(overlay, lambda path: _read(site / path)))
    digest = input_digest(overlay, None, str(site))
    folder = cache_dir / "venv-overlays" / f"{overlay.name}-{digest.removeprefix('sha256:')[:12]}"
    with locked(folder.with_suffix(".lock"), f"preparing overlay {overlay.name}"):
        if not (folder / RECORD).is_file():
            _make(folder, site, wanted, overlay, digest)
        _verify(folder, site, wanted)
    return folder


def site_of(python: Path, overlay: Overlay) -> Path:
    """The folder from which an interpreter imports the overlay's package, found without importing it."""
    changed = [*overlay.patch_table(), *(entry.file for entry, _ in overlay.added)]
    name = changed[0].split("/", maxsplit=1)[0]
    try:
        done = subprocess.run([python, "-I", "-c", _FIND, name], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as err:
        raise EngineError(
            f"the engine's Python has no package {name}", on=str(python), seen=err,
            next_step="install the engine, or set engine_python in settings.toml",
        ) from err  # fmt: skip
    return Path(done.stdout.strip())


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _make(folder: Path, site: Path, files: dict[str, bytes], overlay: Overlay, digest: str) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for path in sorted(files):
            _open_way(new, site, Path(path).parent)
        for path, data in files.items():
            target = new / path
            target.unlink(missing_ok=True)
            target.write_bytes(data)
        record = {"overlay": overlay.name, "input_digest": digest, "site_packages": str(site),
                  "files": {path: sha256(data) for path, data in files.items()}}  # fmt: skip
        write_json(new / RECORD, record)
        new.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)  # a half-made one of a killed run has no record
        new.replace(folder)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def _open_way(new: Path, site: Path, folder: Path) -> None:
    """Make `folder` and every folder above it a real one, with links to whatever else lies in them."""
    here = Path()
    for part in folder.parts:
        here = here / part
        target, source = new / here, site / here
        if target.is_dir() and not target.is_symlink():
            continue
        target.unlink(missing_ok=True)
        target.mkdir()
        for entry in os.scandir(source) if source.is_dir() else ():
            if entry.name not in _SKIPPED:
                (target / entry.name).symlink_to(entry.path)


def _verify(folder: Path, site: Path, files: dict[str, bytes]) -> None:
    record = json.loads((folder / RECORD).read_text())
    for path, data in files.items():
        seen = _read(folder / path)
        if seen != data or record["files"].get(path) != sha256(data):
            raise PinError(
                "the patched copy of the package was changed", on=str(folder / path),
                seen="absent" if seen is None else sha256(seen), expected=sha256(data),
                next_step=f"remove {folder}: it is made anew",
            )  # fmt: skip
    strangers = [p for p in _real_files(folder) if p not in files and p != RECORD]
    if strangers:
        raise PinError(
            "the patched copy of the package has files that nobody put there", on=str(folder),
            seen=", ".join(strangers[:5]), next_step=f"remove {folder}: it is made anew",
        )  # fmt: skip
    broken = [p for p in folder.rglob("*") if p.is_symlink() and not p.readlink().is_relative_to(site)]
    if broken:
        raise PinError(
            "the patched copy links outside of its package", on=str(broken[0]), expected=f"below {site}",
            next_step=f"remove {folder}: it is made anew",
        )  # fmt: skip


def _real_files(folder: Path) -> list[str]:
    return [
        str(p.relative_to(folder))
        for p in folder.rglob("*")
        if p.is_file() and not p.is_symlink() and "__pycache__" not in p.parts
    ]
