"""Gating a live deployment: run the gates, judge them, keep the receipt. Shared by serve, gate and demo."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recipectl import receipts
from recipectl.commands.context import utc_now, write_receipt
from recipectl.console import Console
from recipectl.errors import GateError
from recipectl.serving import keys, launch, runtimes
from recipectl.serving.checks import GATES
from recipectl.serving.deployments import Deployment
from recipectl.serving.gates import Context, Result, failures, run, set_verdicts
from recipectl.serving.live import LiveProbes
from recipectl.serving.plan import Plan
from recipectl.settings import Settings


def run_gates(settings: Settings, deployment: Deployment) -> list[Result]:
    """Run every gate on a live deployment."""
    from recipectl.serving.probes import Server

    plan = deployment.plan
    key = keys.read(keys.path_of(settings.state_dir, plan.name)) if plan.exposed else None
    server = Server(deployment.url, deployment.model, api_key=key)
    probes = LiveProbes(server, runtimes.of(settings, deployment.plan), deployment)
    return run(Context(plan, probes, exposed=plan.exposed), GATES)


def judge(settings: Settings, deployment: Deployment, results: Sequence[Result]) -> None:
    """GateError for a server that is alive but false; EngineError where a rank has died, with the cause."""
    failed = failures(results)
    if not failed:
        return
    states = launch.rank_states(runtimes.of(settings, deployment.plan), deployment)
    cause = launch.diagnose_all(states)
    dead = next((s for s in states if not s.alive), None)
    if dead or cause:
        ended = f": rank {dead.rank}, {dead.exit}" if dead else ""
        raise launch.failure(f"the engine died while the gates asked it{ended}", deployment, cause)
    first = failed[0]
    raise GateError(
        f"{len(failed)} gate(s) failed, first {first.gate}: {first.message}", on=deployment.plan.name, seen=first.seen,
        expected=first.expected, details=[f"{r.gate}: {r.message}" for r in failed[1:]], next_step=first.fix,
    )  # fmt: skip


def show(console: Console, deployment: Deployment, results: Sequence[Result]) -> None:
    """The gates as a table; known faults in full and named sets below it."""
    console.table(["gate", "verdict", "what was seen"], [(r.gate, r.verdict, _seen(r)) for r in results])
    for r in results:
        if r.verdict == "KNOWN_FAULT":
            console.print(f"known fault {r.message}" + (f" {r.fix}" if r.fix else ""))
    for name, verdict in set_verdicts(results, deployment.plan.gates.sets).items():
        console.print(f"set {name}: {verdict}")


def _seen(r: Result) -> str:
    if r.verdict == "KNOWN_FAULT":
        return f"{r.message.partition(':')[0]}: {r.seen}"
    return r.message + (f" ({r.seen})" if r.seen and r.seen not in r.message else "")


def keep_receipt(
    settings: Settings, kind: receipts.Kind, deployment: Deployment, results: Sequence[Result], begun: str
) -> Path:
    plan = deployment.plan
    return write_receipt(
        settings,
        receipts.Receipt(
            kind=kind, recipe=plan.recipe, lane=plan.lane, started=begun, ended=utc_now(), subjects=subjects(plan),
            ran={"engine": plan.engine, "version": plan.engine_version, "deployment": plan.id,
                 "ranks": [{"rank": r.rank, "host": r.host, "argv": list(r.argv), "env": dict(r.env)}
                           for r in plan.ranks]},
            seen=observed(deployment, results), notes=plan.notes, amendments=plan.stamps,
        ),
    )  # fmt: skip


def subjects(plan: Plan) -> tuple[receipts.Subject, ...]:
    """Recipe, lock and model trees, by content."""
    trees = [receipts.Subject(f"model:{role}", tree) for role, tree in sorted(plan.trees.items())]
    return (receipts.Subject("recipe", plan.recipe_digest), receipts.Subject("lock", plan.lock_digest), *trees)


def observed(deployment: Deployment, results: Sequence[Result]) -> dict[str, Any]:
    """What the boot and the gates showed, with the digest of the log they were read from."""
    try:
        digest = "sha256:" + hashlib.sha256(deployment.log.read_bytes()).hexdigest()
    except OSError:
        digest = None
    return {
        "gates": [vars(r) for r in results], "phases_s": deployment.phases, "log_sha256": digest, "url": deployment.url,
        "k": deployment.k,
    }  # fmt: skip
