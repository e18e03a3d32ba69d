"""From a chosen lane with verified models to its plan on this machine."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from recipectl import lockfile
from recipectl.bench import protocol
from recipectl.commands import notes, seeing
from recipectl.commands.context import Chosen
from recipectl.commands.joining import Where
from recipectl.commands.overlays import with_overlay
from recipectl.lockfile import Lock
from recipectl.recipe.model import Given
from recipectl.serving import containers
from recipectl.serving.plan import LOOPBACK, Order, Plan, Prompts, compose
from recipectl.serving.process import free_port
from recipectl.settings import Settings

PROSE_PROMPTS = 8


def prompts_of(chosen: Chosen) -> Prompts:
    """The counting prompt of the protocol, and the prose prompts that the recipe benches with."""
    count = protocol.load("counting").phases["counting"]
    prose = protocol.load("prose")
    own = next((b.settings for b in chosen.lane.bench if b.protocol == "prose"), {})
    prose = protocol.with_settings(prose, {k: v for k, v in own.items() if k == "prompts"}, chosen.entry.folder)
    texts = tuple(p.text for p in prose.phases["prose"].prompts[:PROSE_PROMPTS])
    assert count.count is not None
    return Prompts(count.prompts[0].text, count.count.to, texts)


def plan_of(
    settings: Settings, chosen: Chosen, models: Mapping[str, Path], where: Where | None, stamps: Sequence[str] = ()
) -> Plan:
    """The plan of a chosen lane; where None: on loopback of this machine. Without a port, one that is free now."""
    where = where or Where()
    lane, lock = chosen.lane, chosen.lock
    assert lock is not None
    locked_models = {lock.models[n].role: lock.models[n] for n in (lane.target, lane.drafter) if n}
    drafter = locked_models.get("drafter")
    bound = where.expose or LOOPBACK
    inside = bool(where.places)
    plan = compose(
        Order(
            id="-".join(p for p in (chosen.recipe.name, chosen.lane_name, chosen.variant, _stamp()) if p),
            recipe=chosen.recipe, lane_name=chosen.lane_name, lane=lane, variant=chosen.variant,
            models=seeing.models(chosen, models), assets=seeing.assets(chosen),
            program=seeing.program(settings, chosen), port=where.port or free_port(), prompts=prompts_of(chosen),
            recipe_digest="sha256:" + hashlib.sha256(chosen.entry.file.read_bytes()).hexdigest(),
            lock_digest="sha256:" + hashlib.sha256(lockfile.dump(_as_locked(chosen, lock)).encode()).hexdigest(),
            trees={role: m.tree for role, m in locked_models.items()},
            taps=drafter.facts.taps if drafter else None, unified_memory=chosen.family.unified_memory,
            address=LOOPBACK if bound in (LOOPBACK, containers.ANYWHERE) else bound,
            listen=containers.listen_address(lane, bound) if inside else bound, publish=bound,
            exposed=where.expose is not None, hosts=tuple(p.host.name for p in where.places) or ("local",),
            places=tuple(p.place for p in where.places), master=where.fabric.master,
            rank_env=where.fabric.env,
            stamps=tuple(stamps), notes=notes.told(settings, chosen),
        )
    )  # fmt: skip
    return with_overlay(settings, chosen, plan)


def _as_locked(chosen: Chosen, lock: Lock) -> Lock:
    """The lock as it is on disk: what the command line named is pinned beside it, by the tree in the plan."""
    kept = {n: m for n, m in lock.models.items() if not isinstance(chosen.recipe.models.get(n), Given)}
    return lock.model_copy(update={"models": kept})


def _stamp() -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
