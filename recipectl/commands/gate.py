"""`gate`: run the gates again on a live server."""

from __future__ import annotations

from recipectl.commands import gating
from recipectl.console import Console
from recipectl.errors import UsageError
from recipectl.serving import deployments
from recipectl.settings import Settings


def run(settings: Settings, console: Console, *, name: str | None, watch: bool, every: float) -> int:
    """Gate the one deployment that NAME means; GateError or EngineError where it fails."""
    if watch:
        raise UsageError("not built yet", seen="--watch")
    deployment = deployments.pick(settings, name)
    begun = gating.utc()
    results = gating.run_gates(settings, deployment)
    receipt = gating.keep_receipt(settings, "gate", deployment, results, begun)
    gating.show(console, deployment, results)
    gating.judge(settings, deployment, results)
    if deployment.state != "ready":
        deployment.having(state="ready")
    console.document({"deployment": deployment.id, "receipt": str(receipt), "gates": [vars(r) for r in results]})
    return 0
