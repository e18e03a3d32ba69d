"""`show`: what a recipe is, what the engine will be told, and what every rule says about it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict

from recipectl import geometry_report, provenance, showing, speculative
from recipectl.commands import notes
from recipectl.commands.context import Chosen, choose, choose_name
from recipectl.commands.drafters import with_drafter
from recipectl.console import Console
from recipectl.errors import RecipeError
from recipectl.gpu import gpus
from recipectl.recipe import catalog
from recipectl.recipe import evidence as evidence_rows
from recipectl.recipe.base import Json
from recipectl.serving.plan import RankPlan
from recipectl.settings import Settings
from recipectl.showing import View

EVIDENCE = ("where", "value", "status", "date", "source", "note")


def run(
    settings: Settings, console: Console, *, name: str | None = None, sm: str | None = None,
    variant: str | None = None, k: int | None = None, sets: Sequence[str] = (), drafter: str | None = None,
    geometry: bool = False, evidence: bool = False, argv: bool = False,
) -> int:  # fmt: skip
    """0, or 3 if a lane that is shown breaks a rule. Without --sm and without a fitting GPU, all lanes are shown."""
    given = [speculative.parse_set(s) for s in sets]
    chosen = _chosen(settings, console, name, sm, variant, k, given, one=geometry or argv or drafter is not None)
    chosen = [with_drafter(settings, console, c, drafter) for c in chosen]
    first = chosen[0]
    # Computed before anything is printed: an answer comes whole or not at all.
    views = [showing.view(settings, c.entry, c.recipe, c.lane_name, c.lane, c.lock, c.variant) for c in chosen]
    space = geometry_report.for_lane(first.recipe, first.lane, first.lock) if geometry else None
    ranks = _ranks(settings, first) if argv else ()
    backing = [[evidence_rows.text(row) for row in evidence_rows.rows(c.recipe, c.lane)] for c in chosen]
    told = [notes.told(settings, c) for c in chosen]
    console.print(f"{first.recipe.name}: {first.recipe.summary}")
    console.print(f"{catalog.shown(first.entry.file)}, license {first.recipe.license}")
    for one, rows, known in zip(views, backing, told, strict=True):
        _lane(console, one)
        for line in provenance.summary(known):
            console.print(f"  {line}")
        if evidence:
            console.print(f"\nevidence: {showing.evidence_status(one.recipe, one.lane)}")
            console.table(EVIDENCE, rows, below=("source", "note"))
    if space:
        console.print("\ngeometry")
        console.table(("what", "a rank"), geometry_report.rows(space))
    for rank in ranks:
        inside = ", in its container" if first.lane.engine.runtime == "docker" else ""
        console.print(f"\nrank {rank.rank} on {rank.host}{inside} (`serve` chooses a free port, or --port):")
        console.print("  " + " ".join(f"{n}={shlex.quote(v)}" for n, v in sorted(rank.env.items())))
        console.print("  " + shlex.join(rank.argv))
    console.document(
        showing.document(first.entry, first.recipe, views)
        | ({"evidence": [[dict(zip(EVIDENCE, r, strict=True)) for r in rows] for rows in backing]} if evidence else {})
        | {"notes": told}
        | ({"geometry": geometry_report.to_json(space)} if space else {})
        | ({"argv": [asdict(rank) for rank in ranks]} if argv else {})
    )
    return RecipeError.exit_code if any(v.verdict == "FAIL" for one in views for v in one.verdicts) else 0


def _ranks(settings: Settings, chosen: Chosen) -> Sequence[RankPlan]:
    from recipectl.commands.previewing import preview  # 50 ms that a plain `show` does not pay

    return preview(settings, chosen).ranks


def _chosen(
    settings: Settings, console: Console, name: str | None, sm: str | None, variant: str | None, k: int | None,
    sets: Sequence[tuple[str, Json]], *, one: bool,
) -> list[Chosen]:  # fmt: skip
    """The lane that is meant; all lanes where none is named, none fits this machine and none has to be chosen."""
    name, reason = choose_name(settings, name)
    if reason:
        console.notice(f"recipe: {name} ({reason})")
    lanes: list[str | None] = [sm]
    if sm is None:
        recipe = catalog.load(catalog.find(settings, name))
        fitting = {g.family.name for g in gpus() if g.family} & {*recipe.lanes}
        any_lane = variant is None and k is None and not sets and not one
        if len(fitting) != 1 and (any_lane or len(recipe.lanes) == 1):
            lanes = [*recipe.lanes]
    return [choose(settings, console, name, x, variant=variant, k=k, sets=sets, need_lock=False) for x in lanes]


def _lane(console: Console, one: View) -> None:
    console.print()
    for line in showing.lines(one):
        console.print(line)
    console.print()
    console.table(("rule", "verdict", "what", "source"), showing.rule_rows(one.verdicts), below=("source",))
    for line in showing.fix_lines(one.verdicts):
        console.print(line)
