"""`demo`: the whole path on this machine with the embedded recipe, from the file to the receipt, on a real engine."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

from recipectl import receipts
from recipectl.bench import receipt, report
from recipectl.bench import run as bench_run
from recipectl.bench.result import Result
from recipectl.bench.target import of_deployment
from recipectl.commands import bench, gating, launching
from recipectl.commands.context import Chosen, choose, utc_now, write_receipt
from recipectl.commands.departures import check_rules
from recipectl.commands.launching import Up
from recipectl.commands.lock import write_lock
from recipectl.commands.models import ensure_verified
from recipectl.commands.planning import plan_of
from recipectl.console import Console
from recipectl.settings import Settings

RECIPE, LANE = "tiny-dflash", "cpu"


def run(settings: Settings, console: Console, *, keep: bool) -> int:
    """Check, lock, verify, compose, serve, gate, bench, receipt, stop. Nothing is left running, unless `keep`."""
    begun, clock = utc_now(), time.monotonic()
    chosen = _locked(settings, console)
    console.print(f"== check: {chosen.title}, every K rule")
    check_rules(console, chosen, unqualified=False)
    console.print("== verify: every model file against the lock")
    plan = plan_of(settings, chosen, ensure_verified(settings, console, chosen), None)
    console.print(f"== compose: --speculative-config {json.dumps(plan.speculative)}")
    console.print(f"== serve and gate: {plan.engine} {plan.engine_version} on {plan.url}")
    up = launching.bring_up(settings, console, plan)
    try:
        gating.show(console, up.deployment, up.results)
        console.print("== bench: counting and prose")
        result, folder = _bench(settings, console, chosen, up)
        path = write_receipt(settings, _receipt(begun, up, result, folder))
    finally:
        if not keep:
            with launching.uninterrupted():
                left = launching.stop(settings, up.deployment)
            if left:
                console.warn(f"still running: {', '.join(left)}; try `recipectl stop --force`")
    for line in report.lines(result):
        console.print(line)
    console.print(f"== receipt: {path} (print it again: recipectl report)")
    console.print(f"== done in {time.monotonic() - clock:.0f} s, " + _ending(up, keep))
    console.document({"receipt": str(path), "deployment": up.deployment.id, "gates": [vars(r) for r in up.results],
                      **receipt.seen(result, folder)})  # fmt: skip
    return bench.verdict(result)


def _locked(settings: Settings, console: Console) -> Chosen:
    """The embedded recipe; locked on first use, in the way `pull` does. A stale lock is refused."""
    chosen = choose(settings, console, RECIPE, LANE, need_lock=False)
    if chosen.lock is None:
        # `lock` answers with a document of its own; here it is a step, and the answer is the demo's.
        told = console if not console.json_mode else Console(quiet=True, out=io.StringIO())
        console.print("== lock: first use")
        write_lock(settings, told, chosen.entry, chosen.recipe, [LANE])
    return choose(settings, console, RECIPE, LANE)


def _bench(settings: Settings, console: Console, chosen: Chosen, up: Up) -> tuple[Result, Path]:
    job = of_deployment(up.deployment, chosen.lane.bench, chosen.entry.folder)
    folder = settings.state_dir / "bench" / f"{up.deployment.id}-demo"
    return bench_run.run(job.target, job.protocols(["counting", "prose"]), out=folder, console=console), folder


def _receipt(begun: str, up: Up, result: Result, folder: Path) -> receipts.Receipt:
    plan = up.deployment.plan
    return receipts.Receipt(
        kind="demo", recipe=plan.recipe, lane=plan.lane, started=begun, ended=utc_now(),
        subjects=gating.subjects(plan), ran={"argv": list(plan.ranks[0].argv), "engine": plan.engine,
                                             "version": plan.engine_version},
        seen={**gating.observed(up.deployment, up.results), **receipt.seen(result, folder)}, notes=plan.notes,
        amendments=plan.stamps, partial=result.partial,
    )  # fmt: skip


def _ending(up: Up, keep: bool) -> str:
    return f"serving on {up.deployment.url} (recipectl stop)" if keep else "the server is stopped"
