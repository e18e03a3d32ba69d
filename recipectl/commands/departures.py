"""Where a run departs from the recipe as written: rules waived, another drafter, --k, --set. All of it is stamped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recipectl import speculative
from recipectl.commands.context import Chosen
from recipectl.console import Console
from recipectl.errors import PinError, UsageError


def check_rules(console: Console, chosen: Chosen, *, unqualified: bool) -> list[str]:
    """RecipeError for a lane that breaks a rule; warnings are told. The rules that were waived, as stamps."""
    verdicts = speculative.refuse(
        chosen.recipe, chosen.lane_name, chosen.lane, chosen.lock, unqualified=unqualified
    )  # fmt: skip
    for verdict in verdicts:
        if verdict.verdict == "WARN":
            console.warn(f"{verdict.code}: {verdict.message}")
    return [f"unqualified: {v.code} {v.message}" for v in verdicts if v.waived]


def with_drafter(chosen: Chosen, name: str | None) -> Chosen:
    """The choice with another drafter of the recipe, under the same rules. UsageError lists those it has."""
    if name is None:
        return chosen
    model = chosen.recipe.models.get(name)
    if model is None or model.role != "drafter" or chosen.lane.drafter is None:
        drafters = ", ".join(n for n, m in chosen.recipe.models.items() if m.role == "drafter") or "none"
        raise UsageError(f"{chosen.recipe.name} has no drafter {name!r}", expected=f"one of: {drafters}",
                         next_step="declare it under models (a folder beside the recipe: path), then lock")  # fmt: skip
    if chosen.lock is not None and name not in chosen.lock.models:
        raise PinError(f"drafter {name} is not in the lock", on=str(chosen.entry.lock_file),
                       next_step="name it in a variant of the lane, then `recipectl lock`")  # fmt: skip
    return replace(chosen, lane=chosen.lane.model_copy(update={"drafter": name}))


def stamps_of(chosen: Chosen, k: int | None, sets: Sequence[str], drafter: str | None = None) -> list[str]:
    """What departs from the recipe as written."""
    return [
        *([f"variant {chosen.variant}"] if chosen.variant else []),
        *([f"k {k}"] if k is not None else []),
        *([f"drafter {drafter}"] if drafter else []),
        *(f"set {s}" for s in sets),
    ]
