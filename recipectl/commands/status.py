"""`status`: the deployments of this machine, and whether they are alive."""

from __future__ import annotations

from recipectl.console import Console
from recipectl.serving import deployments, launch, running, runtimes
from recipectl.serving.deployments import Deployment
from recipectl.settings import Settings


def run(settings: Settings, console: Console, *, name: str | None) -> int:
    """What runs, and the last deployment of each name that does not, with its cause."""
    rows = [_row(settings, d) for d in _worth_showing(settings, name)]
    if not rows:
        kept = ", ".join(sorted({d.plan.name for d in deployments.known(settings)}))
        console.print(
            f"nothing of {name} is known here" + (f"; known: {kept}" if kept else "") if name else "nothing runs"
        )
    else:
        console.table(["deployment", "state", "url", "K", "pid", "since", "why"], [tuple(r.values()) for r in rows],
                      below=("since", "why"))  # fmt: skip
    console.document({"deployments": rows})
    return 0


def _worth_showing(settings: Settings, name: str | None) -> list[Deployment]:
    """Everything that runs, and per name the newest that does not."""
    wanted = [d for d in deployments.known(settings) if d.means(name)]
    newest = {d.plan.name: d for d in wanted}
    ids = {d.id for d in wanted if running.runs(settings, d)}
    return [d for d in wanted if d.id in ids or newest[d.plan.name] is d]


def _row(settings: Settings, d: Deployment) -> dict[str, object]:
    state, why = _state(settings, d)
    return {"deployment": d.plan.name, "state": state, "url": d.url, "k": d.k, "pid": d.pid, "since": d.started,
            "why": why}  # fmt: skip


def _state(settings: Settings, d: Deployment) -> tuple[str, str]:
    if not running.runs(settings, d):
        if d.state in ("stopped", "failed"):
            return d.state, (d.reason or "").splitlines()[0] if d.reason else ""
        cause = launch.diagnose_all(launch.rank_states(runtimes.of(settings, d.plan), d))
        return "dead", cause.meaning if cause else f"ended by itself, see {d.log}"
    states = launch.rank_states(runtimes.of(settings, d.plan), d)
    if dead := [s for s in states if not s.alive]:
        cause = launch.diagnose_all(states)
        return "broken", f"rank {dead[0].rank} is gone" + (f": {cause.meaning}" if cause else "")
    if d.state == "ready":
        return "ready", ""
    return "ungated", "it runs, but no gate has passed: `recipectl gate` or `recipectl stop`"
