"""`check`: every finding about every recipe at once, each with file, line, rule and fix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recipectl.checking import Checked, check_entry
from recipectl.console import Console
from recipectl.errors import RecipeError, UsageError
from recipectl.recipe import catalog
from recipectl.recipe.families import family_of_flag
from recipectl.settings import Settings

OVERLAY_FILE = "overlay.yaml"


def run(
    settings: Settings, console: Console, *, names: Sequence[str] = (), sm: str | None = None, strict: bool = False,
    schema: bool = False, tree: Path | None = None, rebase: bool = False,
) -> int:  # fmt: skip
    """0 if there is no error (with `strict`, no warning either), else 3."""
    if schema:
        from recipectl.recipe.schema import json_schema

        console.data(json_schema())
        return 0
    overlays = [name for name in names if _is_overlay(name)]
    if overlays or tree is not None or rebase:
        return _overlay(settings, console, names, tree, rebase, strict)
    lane = _lane(sm)
    chosen = [catalog.find(settings, name) for name in names] or catalog.entries(settings)
    if not chosen:
        raise UsageError("there is no recipe to check", next_step="name a file, or add a folder with --recipes DIR")
    checked = [check_entry(entry, lane) for entry in chosen]
    for one in checked:
        for finding in one.findings:
            console.print("\n".join(finding.lines()))
    failed = any(c.count("error") or (strict and c.count("warning")) for c in checked)
    console.print(_summary(checked, strict))
    console.document(
        {"ok": not failed, "strict": strict, "recipes": [_json(c) for c in checked]},
    )
    return RecipeError.exit_code if failed else 0


def _summary(checked: list[Checked], strict: bool) -> str:
    errors, warnings = (sum(c.count(level) for c in checked) for level in ("error", "warning"))
    open_ = sum(c.not_checked for c in checked)
    said = f"{_count(len(checked), 'recipe')}: {_count(errors, 'error')}, {_count(warnings, 'warning')}"
    said += " (errors with --strict)" if strict and warnings else ""
    return said + (f"; {_count(open_, 'rule')} not checked yet, `recipectl show` says why" if open_ else "")


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def _json(checked: Checked) -> dict[str, object]:
    return {
        "name": checked.entry.name,
        "file": catalog.shown(checked.entry.file),
        "errors": checked.count("error"),
        "warnings": checked.count("warning"),
        "findings": [f.to_json() for f in checked.findings],
        "rules": {lane: [v.to_json() for v in verdicts] for lane, verdicts in checked.verdicts.items()},
    }


def _lane(sm: str | None) -> str | None:
    if sm is None:
        return None
    family = family_of_flag(sm)
    if family is None:
        raise UsageError("no such SM family", seen=f"--sm {sm}", expected="100, 103, 121, 90 or cpu")
    return family.name


def _is_overlay(name: str) -> bool:
    path = Path(name)
    return path.name == OVERLAY_FILE or (path / OVERLAY_FILE).is_file() or name.startswith("overlays/")


def _overlay(
    settings: Settings, console: Console, names: Sequence[str], tree: Path | None, rebase: bool, strict: bool
) -> int:  # fmt: skip
    if len(names) != 1:
        raise UsageError("an overlay is checked by itself", seen=" ".join(names) or "no name", expected="overlays/NAME")
    from recipectl.commands import check_overlay

    return check_overlay.run(settings, console, name=names[0], tree=tree, rebase=rebase, strict=strict)
