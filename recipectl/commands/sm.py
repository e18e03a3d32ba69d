"""The SM gate as build and serve run it: this machine's GPUs and platform against a lane."""

from __future__ import annotations

import platform

from recipectl.commands.context import Chosen
from recipectl.console import Console
from recipectl.errors import RecipeError
from recipectl.images import smgate
from recipectl.images.overlay import Overlay
from recipectl.images.smgate import Row, Subject


def check_machine(
    console: Console, chosen: Chosen, overlay: Overlay | None, image_platform: str | None, *, named: bool = False
) -> list[Row]:
    """All rows of the gate, those that were not checked said aloud. RecipeError lists the rows that failed.

    `named`: the user chose the family by --sm, so that a build host's own GPU decides nothing.
    """
    from recipectl.gpu import gpus

    rows = smgate.check(_subject(chosen, overlay, image_platform), gpus(), platform.machine())
    if named:
        rows = [Row(r.subject, "NOT_CHECKED", r.message, r.fix) if r.subject == "gpu" and r.verdict == "FAIL" else r
                for r in rows]  # fmt: skip
    for row in rows:
        if row.verdict == "NOT_CHECKED":
            console.notice(f"not checked: {row.subject}: {row.message}")
    if failed := smgate.failures(rows):
        raise RecipeError(
            f"{chosen.title} does not fit this machine", details=[f"{r.subject}: {r.message}" for r in failed],
            next_step=failed[0].fix,
        )  # fmt: skip
    return rows


def _subject(chosen: Chosen, overlay: Overlay | None, image_platform: str | None) -> Subject:
    lane, recipe = chosen.lane, chosen.recipe
    drafter = recipe.models[lane.drafter] if lane.drafter else None
    plain = next((m for m in recipe.models.values() if m.role == "drafter" and not m.kernels), None)
    image = overlay.manifest.base.image if overlay else lane.engine.image
    wanted = overlay.manifest.capabilities if overlay else []
    return Subject(
        chosen.family, image_platform, tuple(image.arch_list) or None if image else None,
        tuple(overlay.manifest.families) if overlay else None,
        tuple((int(c.split(".")[0]), int(c.split(".")[1])) for c in wanted),
        lane.drafter, tuple(drafter.kernels) if drafter else (),
        f"the BF16 drafter {plain.repo or plain.path}" if plain else None,
    )  # fmt: skip
