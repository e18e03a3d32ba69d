"""Files and folders that a recipe names: they lie below its own folder, so that a recipe travels as one folder and
reads nothing else of the machine. Looks for files, reads none but assets with a sha256."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from recipectl import fsio
from recipectl.recipe.lane import Asset, Lane
from recipectl.recipe.merge import Path as At
from recipectl.recipe.model import Model

LONGEST = 255  # bytes of a file name
# Path in the merged recipe, message, fix.
Said = tuple[At, str, str | None]


def outside(path: str, folder: Path | None = None) -> str | None:
    """Why a path is none below a recipe's folder, links followed where the folder is given; None if it is one."""
    if path.startswith(("/", "~")) or ".." in Path(path).parts:
        return f"{path} lies outside the recipe's folder"
    if not Path(path).parts:
        return f"`{path}` is the recipe's folder itself"
    if max(len(part.encode()) for part in Path(path).parts) > LONGEST:
        return f"{path[:40]}... is no name that a disk can hold"
    try:
        if folder is not None and not (folder / path).resolve().is_relative_to(folder.resolve()):
            return f"{path} is a link that leads out of the recipe's folder"
    except (OSError, RuntimeError):  # RuntimeError: links in a circle, before Python 3.13
        return f"{path} is a link that leads nowhere"
    return None


def model(at: At, wanted: Model, folder: Path | None) -> Iterator[Said]:
    """A `path` model. Whether its files are there is the lock's matter: a recipe may be written before them."""
    if wanted.path is not None and (problem := outside(wanted.path, folder)):
        yield (*at, "path"), problem, "a model is a folder beside recipe.yaml; put it there, or name a hub `repo`"


def lane(at: At, wanted: Lane, folder: Path | None) -> Iterator[Said]:
    """Assets, the contract, and prompt files of the bench."""
    for index, asset in enumerate(wanted.assets):
        here = (*at, "assets", index, "path")
        yield from _file(here, asset.path, folder) or _content(here, asset, folder)
    if wanted.experiment is not None:
        yield from _file((*at, "experiment"), wanted.experiment, folder)
    for index, bench in enumerate(wanted.bench):
        here = (*at, "bench", index, "settings", "prompts")
        if isinstance(prompts := bench.settings.get("prompts"), str):
            yield from _file(here, prompts, folder)
        elif prompts is not None:
            yield here, "prompts names a file", "write its name as text"


def _file(at: At, path: str, folder: Path | None) -> list[Said]:
    if problem := outside(path, folder):
        return [(at, problem, "copy the file into the recipe's folder")]
    if folder is not None and not (folder / path).is_file():
        return [(at, f"{path} is not there", f"put it beside the recipe, in {folder.name}/")]
    return []


def _content(at: At, asset: Asset, folder: Path | None) -> list[Said]:
    if folder is None or asset.sha256 is None or fsio.sha256_file(folder / asset.path) == asset.sha256:
        return []
    return [(at, f"{asset.path} is not the file with this sha256", "restore the file, or write its sha256")]
