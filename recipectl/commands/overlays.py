"""An overlay on the engine's own Python environment, for lanes that run as a process."""

from __future__ import annotations

from dataclasses import replace

from recipectl.commands.context import Chosen
from recipectl.images.locking import require_overlay
from recipectl.images.overlay_files import load
from recipectl.images.venv_overlay import prepare, site_of
from recipectl.serving import runtimes
from recipectl.serving.plan import Plan
from recipectl.settings import Settings


def with_overlay(settings: Settings, chosen: Chosen, plan: Plan) -> Plan:
    """The plan with a verified patched copy of the engine's package first on its path, where the lane asks for one.

    PinError if the overlay is not the locked one, or the installed package is not the one that it is for.
    """
    engine = chosen.lane.engine
    if engine.overlay is None or engine.runtime != "process":
        return plan
    overlay = load(settings, engine.overlay)
    require_overlay(overlay, chosen.lock, chosen.recipe.name, chosen.entry.lock_file)
    site = site_of(runtimes.engine_python(settings), overlay)
    return replace(plan, overlay=str(prepare(overlay, site, settings.cache_dir)))
