"""From a chosen lane with verified models to its plan on this machine."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from recipectl import lockfile, speculative
from recipectl.bench import protocol
from recipectl.commands.context import Chosen
from recipectl.console import Console
from recipectl.serving import runtimes
from recipectl.serving.plan import Order, Plan, Prompts, compose
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
    settings: Settings, chosen: Chosen, models: Mapping[str, Path], port: int | None, stamps: Sequence[str] = ()
) -> Plan:
    """The plan of a chosen lane for this machine. Without a port, one that is free now."""
    lock = chosen.lock
    assert lock is not None
    locked_models = {lock.models[n].role: lock.models[n] for n in (chosen.lane.target, chosen.lane.drafter) if n}
    drafter = locked_models.get("drafter")
    return compose(
        Order(
            id=f"{chosen.recipe.name}-{chosen.lane_name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}",
            recipe=chosen.recipe, lane_name=chosen.lane_name, lane=chosen.lane, variant=chosen.variant, models=models,
            program=(str(runtimes.engine_python(settings)), "-m", "vllm.entrypoints.cli.main"),
            port=port or free_port(), prompts=prompts_of(chosen),
            recipe_digest="sha256:" + hashlib.sha256(chosen.entry.file.read_bytes()).hexdigest(),
            lock_digest="sha256:" + hashlib.sha256(lockfile.dump(lock).encode()).hexdigest(),
            trees={role: m.tree for role, m in locked_models.items()},
            taps=drafter.facts.taps if drafter else None, unified_memory=chosen.family.unified_memory,
            stamps=tuple(stamps),
        )
    )  # fmt: skip


def check_rules(console: Console, chosen: Chosen, *, unqualified: bool) -> list[str]:
    """RecipeError for a lane that breaks a rule; warnings are told. The rules that were waived, as stamps."""
    verdicts = speculative.refuse(
        chosen.recipe, chosen.lane_name, chosen.lane, chosen.lock, unqualified=unqualified
    )  # fmt: skip
    for verdict in verdicts:
        if verdict.verdict == "WARN":
            console.warn(f"{verdict.code}: {verdict.message}")
    return [f"unqualified: {v.code} {v.message}" for v in verdicts if v.waived]


def stamps_of(chosen: Chosen, k: int | None, sets: Sequence[str]) -> list[str]:
    """What departs from the recipe as written."""
    return [
        *([f"variant {chosen.variant}"] if chosen.variant else []),
        *([f"k {k}"] if k is not None else []),
        *(f"set {s}" for s in sets),
    ]
