"""Where a run departs from the recipe as written: rules waived, another drafter, --k, --set. All of it is stamped."""

from __future__ import annotations

from collections.abc import Sequence

from recipectl import speculative
from recipectl.commands.context import Chosen
from recipectl.commands.drafters import NOT_COVERED, given_drafter
from recipectl.console import Console


def check_rules(console: Console, chosen: Chosen, *, unqualified: bool) -> list[str]:
    """RecipeError for a lane that breaks a rule; warnings are told. The rules that were waived, as stamps."""
    verdicts = speculative.refuse(
        chosen.recipe, chosen.lane_name, chosen.lane, chosen.lock, unqualified=unqualified
    )  # fmt: skip
    for verdict in verdicts:
        if verdict.verdict == "WARN":
            console.warn(f"{verdict.code}: {verdict.message}")
    return [f"unqualified: {v.code} {v.message}" for v in verdicts if v.waived]


def stamps_of(chosen: Chosen, k: int | None, sets: Sequence[str], drafter: str | None = None) -> list[str]:
    """What departs from the recipe as written."""
    return [
        *([f"variant {chosen.variant}"] if chosen.variant else []),
        *([f"k {k}"] if k is not None else []),
        *([_drafter(chosen, drafter)] if drafter else []),
        *(f"set {s}" for s in sets),
    ]


def _drafter(chosen: Chosen, asked: str) -> str:
    given = given_drafter(chosen)
    if given is None or chosen.lock is None:
        return f"drafter {asked}"
    tree = chosen.lock.models[str(given.path)].tree
    return f"unqualified: drafter {given.path}, {tree}, license {given.license or 'unknown'}: {NOT_COVERED}"
