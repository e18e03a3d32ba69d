"""`notes`: what a recipe uses, under which licenses, from whom, and what does not stand."""

from __future__ import annotations

from recipectl import provenance
from recipectl.commands.context import choose_family, choose_name
from recipectl.console import Console
from recipectl.errors import RecipectlError
from recipectl.images import overlay_files
from recipectl.images.overlay import Overlay
from recipectl.lockfile import Lock
from recipectl.provenance import cyclonedx, tell
from recipectl.recipe import catalog
from recipectl.recipe.schema import Recipe
from recipectl.settings import Settings


def run(settings: Settings, console: Console, *, name: str | None, sm: str | None, format_: str) -> int:
    """Print the notes of a recipe, or with --sm of one lane. Always 0."""
    name, reason = choose_name(settings, name)
    if reason:
        console.notice(f"recipe: {name} ({reason})")
    entry = catalog.find(settings, name)
    recipe = catalog.load(entry)
    lane = choose_family(recipe, sm).name if sm else None
    notes = of(settings, recipe, catalog.load_lock(entry), lane)
    if format_ == "cyclonedx":
        console.document(cyclonedx.bom(notes, settings.hub_endpoint))
    elif format_ == "json":
        console.document(tell.document(notes))
    elif format_ == "text":
        for line in provenance.lines(notes):
            console.print(line)
    else:
        console.print((provenance.markdown if format_ == "markdown" else provenance.notice)(notes).rstrip("\n"))
    return 0


def of(
    settings: Settings, recipe: Recipe, lock: Lock | None, lane: str | None = None, variant: str | None = None
) -> provenance.Notes:
    """The notes with what the overlays on disk say about themselves: what receipts, images and reports attach."""
    named = {lane_.engine.overlay for _, lane_ in recipe.all_lanes() if lane_.engine.overlay}
    overlays: dict[str, Overlay] = {}
    for overlay in sorted(named):
        try:
            overlays[overlay] = overlay_files.load(settings, overlay)
        except RecipectlError:
            continue  # told without its patches; `check` and `build` say what is wrong with it
    return provenance.gather(recipe, lock, lane_name=lane, variant=variant, overlays=overlays)
