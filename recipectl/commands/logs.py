"""`logs`: the engine's log, whole, its end, or as it grows."""

from __future__ import annotations

import time

from recipectl.console import Console
from recipectl.errors import UsageError
from recipectl.serving import deployments, running, runtimes
from recipectl.serving.deployments import Deployment
from recipectl.settings import Settings

POLL_S = 0.2


def run(settings: Settings, console: Console, *, name: str | None, follow: bool, rank: int, lines: int) -> int:
    """Print the log of the live deployment that NAME means, else of its last one: a failed boot is read here."""
    if follow and console.json_mode:
        raise UsageError("a log that is followed is no one document", seen="--follow --json", expected="one of the two")
    deployment = _chosen(settings, name)
    handle = next((h for h in deployment.handles if h.rank == rank), None)
    if handle is None:
        raise UsageError(f"{deployment.plan.name} has no rank {rank}", expected=f"0 to {len(deployment.handles) - 1}")
    runtime = runtimes.of(settings, deployment.plan)
    console.notice(f"log of {deployment.id}, rank {rank} on {handle.host}")
    found, offset = runtime.read(handle, 0)
    wanted = found[-lines:] if lines else found
    for line in wanted:
        console.print(line)
    console.document({"deployment": deployment.id, "rank": rank, "host": handle.host, "lines": wanted,
                      "ended": runtime.exit_of(handle)})  # fmt: skip
    while follow and console.heard:
        ended = runtime.exit_of(handle)
        found, offset = runtime.read(handle, offset)
        for line in found:
            console.print(line)
        if ended is not None and not found:
            console.notice(f"{deployment.plan.name}: {ended}")
            break
        time.sleep(POLL_S)
    return 0


def _chosen(settings: Settings, name: str | None) -> Deployment:
    known = deployments.known(settings)
    meant = [d for d in known if d.means(name)]
    if not meant:
        kept = ", ".join(sorted({d.plan.name for d in known})) or "none yet"
        raise UsageError(f"no deployment of {name}" if name else "no deployment", expected=f"one of: {kept}",
                         next_step="recipectl serve")  # fmt: skip
    alive = [d for d in meant if running.runs(settings, d)]
    return (alive or meant)[-1]
