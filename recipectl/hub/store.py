"""Where the files of a locked model lie. Always a folder of real files: nothing in it points elsewhere, so a read-only
mount of it is whole, and the folder that holds the hub token is never part of it."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Protocol

from recipectl.errors import PinError
from recipectl.lockfile import LockedModel
from recipectl.recipe.model import Given, Model
from recipectl.settings import Settings


class Beside(Protocol):
    """Anything that knows its recipe file (a catalog entry)."""

    @property
    def file(self) -> Path: ...


def local_dir(entry: Beside, path: str) -> Path:
    """The folder of a `path` model: beside the recipe, and inside that folder. PinError for a path that leads out."""
    base = entry.file.parent.resolve()
    folder = (base / path).resolve()
    if not folder.is_relative_to(base):
        raise PinError("a model path leads out of the recipe's folder", on=path, seen=folder, expected=f"inside {base}")
    return folder


def path_dir(entry: Beside, model: Model) -> Path:
    """The folder of a model that is not the hub's: beside the recipe, or where the command line said."""
    assert model.path is not None
    return Path(model.path) if isinstance(model, Given) else local_dir(entry, model.path)


def hub_dir(settings: Settings, repo: str, commit: str) -> Path:
    """The folder of a hub model at one commit."""
    return settings.cache_dir / "models" / repo.replace("/", "--") / commit


def model_dir(settings: Settings, entry: Beside, model: Model, locked: LockedModel) -> Path:
    """The folder of real files that belongs to a locked model. It may not exist yet."""
    if model.path is not None:
        return path_dir(entry, model)
    assert locked.repo is not None and locked.commit is not None
    return hub_dir(settings, locked.repo, locked.commit)


def safe_name(name: str) -> str:
    """A file name of a model tree, unchanged, if it stays inside the tree. PinError otherwise.

    Names come from a hub or from a lock: neither is trusted with `..`, absolute paths, backslashes or control bytes.
    """
    parts = PurePosixPath(name).parts
    bad = not parts or name.startswith("/") or ".." in parts or "\\" in name or not name.isprintable()
    if bad or str(PurePosixPath(name)) != name:
        raise PinError(
            "a file name would lead out of the model's folder", on=repr(name), expected="a plain relative name"
        )
    return name


def shown_name(name: str) -> str:
    """A name of whatever lies on a disk, for a terminal: escape sequences and line breaks as they are written."""
    return name if name.isprintable() else repr(name)


def walk(folder: Path) -> list[str]:
    """Every file and symlink under a folder, relative, sorted; folders that are symlinks or cannot be read are listed,
    not entered."""
    out: list[str] = []

    def closed(err: OSError) -> None:
        if err.filename != str(folder):
            out.append(Path(err.filename).relative_to(folder).as_posix())

    for root, folders, files in os.walk(folder, onerror=closed):
        here = Path(root)
        links = [d for d in folders if (here / d).is_symlink()]
        out += [(here / name).relative_to(folder).as_posix() for name in (*files, *links)]
    return sorted(out)
