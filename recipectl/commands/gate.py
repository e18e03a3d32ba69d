"""`gate`: run the gates again on a live server, once or, with --watch, and then keep looking."""

from __future__ import annotations

from recipectl.commands import gating, watching
from recipectl.commands.context import utc_now
from recipectl.console import Console
from recipectl.serving import running
from recipectl.settings import Settings


def run(settings: Settings, console: Console, *, name: str | None, watch: bool, every: float) -> int:
    """Gate the one deployment that NAME means; GateError or EngineError where it fails."""
    deployment = running.pick(settings, name)
    begun = utc_now()
    results = gating.run_gates(settings, deployment)
    receipt = gating.keep_receipt(settings, "gate", deployment, results, begun)
    gating.show(console, deployment, results)
    gating.judge(settings, deployment, results)
    if deployment.state != "ready":
        deployment = deployment.having(state="ready")
    if watch:
        watching.watch(settings, console, deployment, every)
    console.document({"deployment": deployment.id, "receipt": str(receipt), "gates": [vars(r) for r in results]})
    return 0
