"""`build`: the lane's overlay image, proven or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from recipectl.commands import notes
from recipectl.commands.context import Chosen, choose, require_lock, utc_now, write_receipt
from recipectl.commands.foreign_patches import with_foreign
from recipectl.commands.licensing import gate
from recipectl.commands.models import lane_models, license_subjects
from recipectl.commands.sm import check_machine
from recipectl.console import Console
from recipectl.errors import Interrupted
from recipectl.fsio import locked
from recipectl.images import smgate, summary
from recipectl.images.build import BuildPlan, plan
from recipectl.images.build import build as build_image
from recipectl.images.known import Known
from recipectl.images.locking import base_of, require_overlay
from recipectl.images.overlay_files import load
from recipectl.settings import Settings


def run(
    settings: Settings, console: Console, *, name: str | None, sm: str | None, variant: str | None = None,
    dry_run: bool = False, fetch_patches: bool = False, patches: Path | None = None, accept_license: Sequence[str] = (),
) -> int:  # fmt: skip
    """Build the overlay of a lane. Exit 0 only with a proven image under the overlay's own tag."""
    chosen = choose(settings, console, name, sm, variant=variant, need_lock=False)
    overlay_name = chosen.lane.engine.overlay
    if overlay_name is None or chosen.lane.engine.runtime == "process":
        return _nothing_to_build(console, chosen)
    overlay = load(settings, overlay_name)
    if fetch_patches or patches is not None:
        overlay = with_foreign(settings, console, chosen, overlay, patches, accept_license)
    todo = plan(overlay, base_of(overlay, chosen.lock), chosen.lane_name)
    rows = check_machine(console, chosen, overlay, todo.base.platform, named=sm is not None)
    if dry_run:
        for line in summary.dry_run(todo):
            console.print(line)
        console.document({**summary.planned(todo), "gate": [vars(r) for r in rows]})
        return 0
    lock = require_lock(chosen.recipe, chosen.lane_name, chosen.lock, chosen.entry)
    # The image holds no weights, but it is built to run them.
    gate(settings, chosen.recipe, license_subjects(chosen, lane_models(chosen, lock)), accept_license)
    require_overlay(overlay, lock, chosen.recipe.name, chosen.entry.lock_file)
    return _build(settings, console, chosen, todo, rows)


def _nothing_to_build(console: Console, chosen: Chosen) -> int:
    engine = chosen.lane.engine
    if engine.runtime == "process":
        what = f"runs as a process: `serve` puts a patched copy first (overlay {engine.overlay or 'none'})"
    elif engine.image and "/" not in engine.image.ref:
        sm = chosen.lane_name.removeprefix("sm")
        other = f"; `recipectl build {chosen.recipe.name} --sm {sm} --variant upstream` builds on vLLM's own image"
        has_other = "upstream" in {str(k): v for k, v in chosen.recipe.variants.items()}.get(chosen.lane_name, {})
        what = (
            f"runs on {engine.image.ref}, which its authors built for themselves and no registry has: load it into "
            f"this machine's engine{other if has_other else ''}"
        )
    else:
        what = f"uses {engine.image.ref if engine.image else 'no image'} as it is: `recipectl pull` fetches it"
    console.print(f"nothing to build: {chosen.title} {what}")
    console.document({"recipe": chosen.recipe.name, "lane": chosen.lane_name, "built": False, "reason": what})
    return 0


def _build(settings: Settings, console: Console, chosen: Chosen, todo: BuildPlan, rows: Sequence[smgate.Row]) -> int:
    from recipectl.images.docker import DockerEngine  # 0.2 s

    started = utc_now()
    engine = DockerEngine(settings.docker_host)
    try:
        doing = f"build of {todo.tag}"
        lock = settings.state_dir / "locks" / f"{todo.tag.replace('/', '--')}.lock"
        with locked(lock, doing, notice=console.notice), console.progress(f"building {todo.tag}") as bar:
            known = Known(settings.state_dir)
            built = build_image(
                engine, todo, console.notice, lambda _d, _t, line: bar.describe(line or "building"), known
            )
    except KeyboardInterrupt:
        raise Interrupted("the build was stopped; nothing was tagged", on=todo.tag) from None
    path = None
    if not built.reused:
        ended = utc_now()
        ran = {"engine": engine.version(), "dockerfile": todo.dockerfile, "image": todo.tag}
        receipt = summary.receipt(chosen.recipe.name, chosen.lane_name, todo, built, rows, ran, (started, ended))
        path = write_receipt(settings, replace(receipt, notes={**receipt.notes, **notes.told(settings, chosen)}))
    for line in summary.lines(todo, built):
        console.print(line)
    console.document({**summary.answer(todo, built, rows), "receipt": str(path) if path else None})
    return 0
