"""`use`: the recipe that is meant when NAME is left out."""

from __future__ import annotations

from pathlib import Path

from recipectl.commands.context import remember
from recipectl.console import Console
from recipectl.recipe import catalog
from recipectl.settings import Settings


def run(settings: Settings, console: Console, *, name: str) -> int:
    """Remember a recipe. UsageError, with the nearest names, if there is none of that name."""
    entry = catalog.find(settings, name)
    kept = name if not Path(name).exists() else str(entry.file.resolve())  # a path must hold from every folder
    remember(settings, "default-recipe", kept)
    console.print(f"{entry.name} is meant from now on where NAME is left out ({entry.file})")
    console.document({"default_recipe": kept, "file": str(entry.file)})
    return 0
