"""What `bench` does besides benching: measure its own client, and check that speculation loses nothing."""

from __future__ import annotations

from collections.abc import Sequence

from recipectl import receipts
from recipectl.bench import forcing, lossless, selftest
from recipectl.bench.run import now
from recipectl.bench.target import Job, of_deployment
from recipectl.commands.context import choose, write_receipt
from recipectl.console import Console
from recipectl.errors import BenchError, RegressionError
from recipectl.serving import running
from recipectl.serving.deployments import Deployment
from recipectl.settings import Settings

CODES = {"LOSSLESS": 0, "LOSSY": RegressionError.exit_code, "INCONCLUSIVE": BenchError.exit_code}


def run_selftest(console: Console, concurrency: Sequence[int] | None) -> int:
    """The client's own errors and cost; exit code 9 where a limit is not kept."""
    report = selftest.run(concurrency or selftest.DEFAULT)
    for line in selftest.lines(report):
        console.print(line)
    console.document(report.to_json())
    return BenchError.exit_code if report.failures else 0


def run_lossless(settings: Settings, console: Console, work: Job, phases: Sequence[str], max_tokens: int | None) -> int:
    """Teacher-forced check of the live server; a live deployment of its lane without speculation is the control."""
    begun = now()
    chosen = work.protocols(phases, max_tokens=max_tokens)
    prompts = [q for p in chosen for phase in p.phases.values() for q in phase.prompts]
    length = max(p.max_tokens for p in chosen)
    control = _control(settings, work)
    if control is None:
        console.warn("no control arm: serve the lane's variant without speculation beside it, or use an experiment")
    spec = forcing.collect(work.target, prompts, length, console)
    other = forcing.collect(of_deployment(control, ()).target, prompts, length, console) if control else None
    found = lossless.judge(spec, other, _dtype(settings, console, work))
    for line in lossless.lines(found):
        console.print(line)
    path = write_receipt(
        settings,
        receipts.Receipt(
            kind="bench", recipe=work.target.recipe, lane=work.target.lane, started=begun, ended=now(),
            subjects=work.subjects,
            ran={"argv": list(work.target.argv), "protocols": {p.name: p.digest for p in chosen}},
            seen={"losslessness": found.to_json()}, notes=work.target.notes,
        ),
    )  # fmt: skip
    console.notice(f"receipt: {path}")
    console.document({"receipt": str(path), "losslessness": found.to_json()})
    return CODES[found.verdict]


def _control(settings: Settings, work: Job) -> Deployment | None:
    t = work.target
    others = [d for d in running.live(settings) if (d.recipe, d.plan.lane) == (t.recipe, t.lane)]
    return next((d for d in others if d.plan.method == "none"), None)


def _dtype(settings: Settings, console: Console, work: Job) -> str:
    """The served dtype: the lane's argument, else the usual one of a checkpoint."""
    t = work.target
    if t.recipe is None:
        return "bfloat16"
    chosen = choose(settings, console, t.recipe, (t.lane or "").removeprefix("sm"), variant=t.variant)
    return str(chosen.lane.args.get("dtype") or "bfloat16")
