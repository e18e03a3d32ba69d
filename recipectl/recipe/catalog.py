"""Where recipes lie and how one is found: --recipes DIR, ./recipes, the user's data folder, the wheel's."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from recipectl.errors import RecipeError, UsageError
from recipectl.settings import Settings

if TYPE_CHECKING:  # pydantic costs 80 ms: verbs that only name a recipe do not pay it
    from recipectl.lockfile import Lock
    from recipectl.recipe.parse import Document
    from recipectl.recipe.schema import Recipe

RECIPE_FILE = "recipe.yaml"
LOCK_FILE = "recipe.lock.yaml"
Source = Literal["flag", "cwd", "user", "wheel"]


@dataclass(frozen=True)
class Entry:
    """One recipe of the catalog. `lock_file` is where its lock is written; read locks through `load_lock`."""

    name: str
    file: Path
    lock_file: Path
    source: Source

    @property
    def folder(self) -> Path:
        """What `path` models, assets and experiments are relative to."""
        return self.file.parent


def folders(settings: Settings) -> list[tuple[Source, Path]]:
    """The search path, first match first."""
    wheel = Path(__file__).parents[1] / "_data" / "recipes"
    if not wheel.is_dir():  # an editable checkout keeps its recipes beside the package
        wheel = Path(__file__).parents[2] / "recipes"
    flags: list[tuple[Source, Path]] = [("flag", folder) for folder in settings.recipes_dirs]
    return [*flags, ("cwd", Path("recipes")), ("user", settings.data_dir / "recipes"), ("wheel", wheel)]


def entries(settings: Settings) -> list[Entry]:
    """Every recipe of the search path by name; a name found twice counts where it is found first.

    UsageError if a folder that was given by flag is not there.
    """
    found: dict[str, Entry] = {}
    for source, folder in folders(settings):
        if source == "flag" and not folder.is_dir():
            raise UsageError("the recipes folder does not exist", on=str(folder), next_step="give an existing folder")
        for file in _recipe_files(folder):
            found.setdefault(file.parent.name, _entry(settings, file, source))
    return [found[name] for name in sorted(found)]


def find(settings: Settings, name_or_path: str) -> Entry:
    """The recipe of that name, file or folder. UsageError with the nearest names if there is none."""
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or "/" in name_or_path or name_or_path in (".", ".."):
        file = path / RECIPE_FILE if path.is_dir() else path
        if not file.is_file():
            raise UsageError(
                "there is no recipe at this path", on=name_or_path, expected=f"a file, or a folder with {RECIPE_FILE}"
            )
        return _entry(settings, file, "flag")
    known = {entry.name: entry for entry in entries(settings)}
    if name_or_path in known:
        return known[name_or_path]
    if path.is_file():
        return _entry(settings, path, "flag")
    close = difflib.get_close_matches(name_or_path, known, n=3, cutoff=0.5)
    raise UsageError(
        f"there is no recipe named {name_or_path}",
        expected=", ".join(close or known) or "no recipes were found",
        details=[f"looked in {folder}" for _, folder in folders(settings)],
        next_step=f"`recipectl show {close[0]}`" if close else "`recipectl list` shows all recipes",
    )


def read(entry: Entry) -> Document:
    """The parsed file with all findings, those of the cross-field rules included."""
    from recipectl.recipe import rules
    from recipectl.recipe.parse import parse_document, unreadable

    try:
        text = entry.file.read_bytes().decode()
    except UnicodeDecodeError as err:
        line = err.object.count(b"\n", 0, err.start) + 1
        return unreadable(shown(entry.file), line, f"not UTF-8 text: {err.reason}", "save it as UTF-8")
    except OSError as err:
        return unreadable(shown(entry.file), 1, f"the file cannot be read: {err.strerror}")
    document = parse_document(text, shown(entry.file))
    rules.check(document, entry.folder if entry.file.name == RECIPE_FILE else None)
    return document


def load(entry: Entry) -> Recipe:
    """The recipe. RecipeError carries all its findings that are errors, one line each."""
    document = read(entry)
    errors = [f for f in document.findings if f.level == "error"]
    if document.recipe is None or errors:
        count = f"{len(errors)} error" + ("s" if len(errors) != 1 else "")
        raise RecipeError(
            f"the recipe has {count}", on=entry.name, details=[line for f in errors for line in f.lines()],
            next_step=f"mend the file, then `recipectl check {shown(entry.file)}`",
        )  # fmt: skip
    return document.recipe


def load_lock(entry: Entry) -> Lock | None:
    """The lock, or None if there is none yet: the user's own, else one that travels beside a read-only recipe.

    PinError if it is damaged.
    """
    from recipectl import lockfile

    for file in (entry.lock_file, _beside(entry.file)):
        if file.is_file():
            return lockfile.load(file.read_text(errors="replace"), shown(file))
    return None


def shown(path: Path) -> str:
    """A path as messages print it: relative to the working folder where it lies below it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):  # OSError: the working folder is gone
        return str(path)


def _recipe_files(folder: Path) -> Iterator[Path]:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 -- one syscall for the whole folder
    except OSError:
        return
    for name in names:
        file = folder / name / RECIPE_FILE
        if file.is_file():
            yield file


def _entry(settings: Settings, file: Path, source: Source) -> Entry:
    """A lock is written beside its recipe; for the wheel's and for read-only folders, to the user's data folder."""
    name = file.resolve().parent.name if file.name == RECIPE_FILE else file.stem
    in_wheel = len(file.parents) > 2 and file.parents[2].name == "_data"
    if in_wheel or not os.access(file.parent, os.W_OK):
        return Entry(name, file, settings.data_dir / "locks" / f"{name}.lock.yaml", source)
    return Entry(name, file, _beside(file), source)


def _beside(file: Path) -> Path:
    return file.with_name(LOCK_FILE) if file.name == RECIPE_FILE else file.with_suffix(".lock.yaml")
