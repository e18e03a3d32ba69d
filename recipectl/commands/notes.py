"""`notes`: what a recipe uses, under which licenses, from whom, and what does not stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recipectl import provenance
from recipectl.commands.context import Chosen, choose_family, choose_name
from recipectl.console import Console
from recipectl.errors import RecipectlError
from recipectl.images import overlay_files
from recipectl.images.overlay import Overlay
from recipectl.lockfile import Lock
from recipectl.provenance import cyclonedx, tell
from recipectl.recipe import catalog
from recipectl.recipe.lane import Lane
from recipectl.recipe.schema import Recipe
from recipectl.settings import Settings


def run(settings: Settings, console: Console, *, name: str | None, sm: str | None, format_: str) -> int:
    """Print the notes of a recipe, or with --sm of one lane. Always 0."""
    name, reason = choose_name(settings, name)
    if reason:
        console.notice(f"recipe: {name} ({reason})")
    entry = catalog.find(settings, name)
    recipe = catalog.load(entry)
    lanes = provenance.lanes_of(recipe, choose_family(recipe, sm).name if sm else None)
    notes = of(settings, recipe, catalog.load_lock(entry), lanes)
    if format_ == "cyclonedx":
        console.data(cyclonedx.bom(notes, settings.hub_endpoint))
    elif format_ == "json" or console.json_mode:
        console.data(tell.document(notes))
    elif format_ == "text":
        for line in provenance.lines(notes):
            console.print(line)
    else:
        console.print((provenance.markdown if format_ == "markdown" else provenance.notice)(notes).rstrip("\n"))
    return 0


def told(settings: Settings, chosen: Chosen) -> dict[str, Any]:
    """The notes of a chosen lane, as plans and receipts carry them."""
    place = chosen.lane_name + (f"/{chosen.variant}" if chosen.variant else "")
    return provenance.block(of(settings, chosen.recipe, chosen.lock, [(place, chosen.lane)]))


def of(settings: Settings, recipe: Recipe, lock: Lock | None, lanes: Sequence[tuple[str, Lane]]) -> provenance.Notes:
    """The notes of some lanes of a recipe, with what the overlays on disk say about themselves."""
    overlays: dict[str, Overlay] = {}
    for name in sorted({lane.engine.overlay for _, lane in lanes if lane.engine.overlay}):
        try:
            overlays[name] = overlay_files.load(settings, name)
        except RecipectlError:
            continue  # told without its patches; `check` and `build` say what is wrong with it
    return provenance.gather(recipe, lock, lanes, overlays)
