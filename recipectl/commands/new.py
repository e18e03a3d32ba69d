"""`new`: a recipe of one's own, started from an existing one."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from recipectl.checking import check_entry
from recipectl.console import Console
from recipectl.errors import UsageError
from recipectl.fsio import write_atomic
from recipectl.recipe import catalog
from recipectl.settings import Settings

_SLUG = re.compile(r"[a-z0-9][a-z0-9.\-]{0,79}\Z")
# What belongs to the recipe it was started from: its pins and the weights it was trained with.
_LEFT_BEHIND = (catalog.LOCK_FILE, catalog.RECIPE_FILE)


def run(settings: Settings, console: Console, *, name: str, from_: str) -> int:
    """Copy recipe and assets to ./recipes/NAME (without lock and model folders) under the new name."""
    if not _SLUG.match(name):
        raise UsageError("this is no recipe name", seen=name, expected="lower case letters, digits, dots and hyphens")
    source = catalog.find(settings, from_)
    recipe = catalog.load(source)
    folder = Path("recipes") / name
    if folder.exists():
        raise UsageError("the recipe exists already", on=str(folder), next_step="choose another name, or edit it")
    text = re.sub(r"(?m)^name:.*$", f"name: {name}", source.file.read_text(), count=1)
    models = {m.path for m in recipe.models.values() if m.path}
    try:
        if source.file.name == catalog.RECIPE_FILE:
            shutil.copytree(
                source.folder, folder, ignore=lambda _, names: {*_LEFT_BEHIND, "__pycache__", *models} & {*names}
            )
        write_atomic(folder / catalog.RECIPE_FILE, text)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    entry = catalog.find(settings, str(folder / catalog.RECIPE_FILE))
    checked = check_entry(entry)
    for finding in checked.findings:
        console.notice("\n".join(finding.lines()))
    console.print(f"{entry.file} is yours to edit, started from {source.name}")
    if models:
        console.print(
            f"not copied: the models in {', '.join(sorted(models))}; put yours there, or name hub repositories"
        )
    console.print(f"next: change provenance and models, then `recipectl check {name}`")
    console.document(
        {
            "name": name,
            "file": str(entry.file),
            "from": source.name,
            "not_copied": sorted(models),
            "errors": checked.count("error"),
        }
    )
    return 0
