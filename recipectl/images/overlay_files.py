"""Overlays on disk: where they are looked for, and their files read into an `Overlay`."""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path

from recipectl.errors import PinError, RecipeError, UsageError
from recipectl.images import manifest as manifests
from recipectl.images.manifest import Check, Manifest, Patch, ScriptCheck
from recipectl.images.overlay import Overlay, Step, sha256
from recipectl.recipe.findings import Finding
from recipectl.settings import Settings

MANIFEST = "overlay.yaml"


def folders(settings: Settings) -> list[Path]:
    """Where overlays are looked for, first wins: beside `--recipes`, here, the user's, the ones of this package."""
    package = Path(__file__).resolve().parents[1]
    return [
        *(d.parent / "overlays" for d in settings.recipes_dirs),
        Path("overlays"),
        settings.data_dir / "overlays",
        package / "_data" / "overlays",
        package.parent / "overlays",  # a source checkout installed as editable
    ]


def names(settings: Settings) -> list[str]:
    """All overlays that can be found, by name."""
    return sorted({m.parent.name for d in folders(settings) for m in d.glob(f"*/{MANIFEST}")})


def find(settings: Settings, name: str) -> Path:
    """The folder of an overlay, by name or by path. UsageError names the nearest ones."""
    given = Path(name)
    for folder in [given if given.is_dir() else given.parent] if "/" in name else []:
        if (folder / MANIFEST).is_file():
            return folder
    bare = given.name if given.name != MANIFEST else given.parent.name
    for folder in folders(settings):
        if (folder / bare / MANIFEST).is_file():
            return folder / bare
    known = names(settings)
    close = difflib.get_close_matches(bare, known, n=3)
    raise UsageError(
        f"no overlay {bare!r}", seen=", ".join(close or known) or "no overlays at all",
        expected=f"a folder with {MANIFEST} under one of " + ", ".join(str(f) for f in folders(settings)),
    )  # fmt: skip


def read(folder: Path) -> tuple[Manifest, list[Finding]]:
    """The manifest alone, with its warnings. RecipeError carries all findings as details."""
    file = folder / MANIFEST
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise RecipeError("the overlay cannot be read", on=str(file), seen=err) from err
    found, findings = manifests.parse_text(text, str(file))
    if found is None:
        lines = [line for f in findings for line in f.lines()]
        raise RecipeError("the overlay manifest has errors", on=str(file), details=lines)
    if found.name != folder.name:
        raise RecipeError("an overlay is named as its folder", on=str(file), seen=found.name, expected=folder.name)
    return found, findings


def load(settings: Settings, name: str, foreign: dict[str, str] | None = None) -> Overlay:
    """An overlay with everything it includes. `foreign` holds the texts of foreign patches by `foreign_key`.

    RecipeError for missing files and broken chains, PinError for a file that is not what its sha256 says.
    """
    folder = find(settings, name)
    top, _ = read(folder)
    parts = [(read(inner := find(settings, included))[0], inner) for included in top.include]
    for included, inner in parts:
        if included.include:
            raise RecipeError(
                "an included overlay includes others: one level is enough", on=str(inner / MANIFEST),
                seen=", ".join(included.include), next_step=f"list them in {folder / MANIFEST}",
            )  # fmt: skip
        if (
            set(included.base.distribution).isdisjoint(top.base.distribution)
            or included.base.version != top.base.version
        ):
            raise RecipeError(
                f"{included.name} is for another package", on=str(folder / MANIFEST),
                seen=f"{included.base.distribution} {included.base.version}",
                expected=f"{top.base.distribution} {top.base.version}",
            )  # fmt: skip
    overlay = Overlay(top, (), (), (), {}, {})
    for part, where in [*parts, (top, folder)]:
        overlay = _join(overlay, part, where, foreign or {})
    _chained(overlay)
    return overlay


def _join(overlay: Overlay, part: Manifest, folder: Path, foreign: dict[str, str]) -> Overlay:
    steps = tuple(Step(p, _patch_text(p, folder, foreign), part.name) for p in part.patches)
    added = []
    for entry in part.files:
        data = _bytes(folder, entry.source)
        if sha256(data) != entry.sha256:
            raise PinError(
                "a file of the overlay is not what its manifest says", on=str(folder / entry.source), seen=sha256(data),
                expected=entry.sha256, next_step=f"put the new sha256 into {folder / MANIFEST} if the change is right",
            )  # fmt: skip
        added.append((entry, data))
    checks = tuple((c, _script(c, folder)) for c in part.checks)
    return replace(
        overlay, steps=overlay.steps + steps, added=overlay.added + tuple(added), checks=overlay.checks + checks,
        env={**overlay.env, **part.env}, build_args={**overlay.build_args, **part.build_args},
    )  # fmt: skip


def foreign_key(patch: Patch) -> str:
    """How a foreign file is named among fetched ones: `owner/repository@commit/path`."""
    f = patch.foreign
    assert f is not None
    return f"{'/'.join(f.repository.rstrip('/').split('/')[-2:])}@{f.commit}/{f.path}"


def _patch_text(patch: Patch, folder: Path, foreign: dict[str, str]) -> str | None:
    if patch.foreign:
        return foreign.get(foreign_key(patch))
    assert patch.patch is not None
    return _bytes(folder, patch.patch).decode("utf-8", "surrogateescape")


def _script(check: Check, folder: Path) -> str | None:
    if not isinstance(check, ScriptCheck):
        return None
    data = _bytes(folder, check.source)
    try:
        return data.decode()
    except UnicodeDecodeError as err:
        line = data.count(b"\n", 0, err.start) + 1
        raise RecipeError(
            "a check of the overlay is not UTF-8 text", on=f"{folder / check.source}:{line}", seen=err.reason,
            next_step="save it as UTF-8",
        ) from err  # fmt: skip


def _bytes(folder: Path, name: str) -> bytes:
    """A file of the overlay's folder, links followed only inside of it: an overlay travels as that folder, and what it
    names by no sha256 (a diff, a check) must not be read from somewhere else on this machine."""
    path = folder / name
    try:
        if not path.resolve(strict=True).is_relative_to(folder.resolve()):
            raise RecipeError(
                "a file of the overlay lies outside of its folder", on=str(path), seen=path.resolve(),
                expected=f"a file below {folder}", next_step="copy it into the folder",
            )  # fmt: skip
        return path.read_bytes()
    except OSError as err:
        raise RecipeError(
            "a file of the overlay cannot be read", on=str(path), seen=err.strerror or err,
            next_step="add it, or take it out of overlay.yaml",
        ) from err  # fmt: skip


def _chained(overlay: Overlay) -> None:
    """Several patches to one file: each must start from what the one before it gives. A file is added once, or it is
    patched: an overlay that adds it knows its whole text."""
    last: dict[str, Step] = {}
    added: set[str] = set()
    for entry, _ in overlay.added:
        if entry.file in added or any(step.patch.file == entry.file for step in overlay.steps):
            how = "twice" if entry.file in added else "and patched"
            raise RecipeError(
                f"{entry.file} is added {how}", on=f"overlay {overlay.name}", expected="one source for an added file",
                next_step="put the whole text into one file of the overlay (include brings those of other overlays)",
            )  # fmt: skip
        added.add(entry.file)
    for step in overlay.steps:
        earlier = last.get(step.patch.file)
        if earlier and earlier.patch.after != step.patch.before:
            raise RecipeError(
                f"the patches of {step.patch.file} do not chain", on=step.name, seen=f"before {step.patch.before}",
                expected=f"before {earlier.patch.after}, what {earlier.name} gives",
            )  # fmt: skip
        last[step.patch.file] = step
