"""The plan of a lane as it would run here, before anything is locked, fetched or chosen: `show --argv`."""

from __future__ import annotations

from pathlib import Path

from recipectl.commands import seeing
from recipectl.commands.context import Chosen
from recipectl.hub import store
from recipectl.serving import containers
from recipectl.serving.plan import LOOPBACK, Order, Plan, Prompts, compose
from recipectl.settings import Settings

PORT = 8000


def preview(settings: Settings, chosen: Chosen) -> Plan:
    """The plan with hosts as far as they are known (`host0`, `host1` stand for those that are not) and port 8000."""
    lane = chosen.lane
    hosts = settings.hosts[: lane.nodes] if len(settings.hosts) >= lane.nodes else ()
    if lane.nodes > 1 and not hosts:
        hosts = tuple(f"host{rank}" for rank in range(lane.nodes))
    names = [n for n in (lane.target, lane.drafter) if n]
    folders: dict[str, Path] = {chosen.recipe.models[n].role: _folder(settings, chosen, n) for n in names}
    return compose(
        Order(
            id="preview", recipe=chosen.recipe, lane_name=chosen.lane_name, lane=lane, variant=chosen.variant,
            models=seeing.models(chosen, folders), assets=seeing.assets(chosen),
            program=seeing.program(settings, chosen), port=PORT, prompts=Prompts("", 0, ()), recipe_digest="",
            lock_digest="",
            hosts=hosts or ("local",), master=hosts[0] if hosts else "127.0.0.1",
            listen=containers.listen_address(lane, LOOPBACK) if lane.engine.runtime == "docker" else LOOPBACK,
            unified_memory=chosen.family.unified_memory,
        )
    )  # fmt: skip


def _folder(settings: Settings, chosen: Chosen, name: str) -> Path:
    model = chosen.recipe.models[name]
    if model.path is not None:
        return store.path_dir(chosen.entry, model)
    locked = chosen.lock.models.get(name) if chosen.lock else None
    commit = (locked.commit if locked else None) or model.revision or "not-locked"
    return store.hub_dir(settings, model.repo or "", commit)
