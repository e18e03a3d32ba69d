"""`gate --watch`: keep looking at a live server until something is wrong."""

from __future__ import annotations

import time

from recipectl.console import Console
from recipectl.errors import BenchError, EngineError, GateError
from recipectl.serving import keys, launch, runtimes
from recipectl.serving.deployments import Deployment
from recipectl.serving.observed import RankState
from recipectl.serving.probes import Server
from recipectl.serving.runtime import Runtime
from recipectl.serving.watch import Look, Watch
from recipectl.settings import Settings


def watch(settings: Settings, console: Console, deployment: Deployment, every_s: float) -> None:
    """Look every `every_s` seconds. Ends with EngineError (a rank is gone) or GateError (alive but false)."""
    plan = deployment.plan
    key = keys.read(keys.path_of(settings.state_dir, plan.name)) if plan.exposed else None
    server, runtime, state = Server(deployment.url, deployment.model, api_key=key), runtimes.of(settings, plan), Watch()
    console.notice(f"watching {plan.name} every {every_s:g} s; Ctrl-C ends the watch, not the server")
    with console.progress(f"watching {plan.name}") as bar:
        while (trouble := state.feed(look(server, runtime, deployment))) is None:
            bar.describe(f"watching {plan.name}: {state.progress or 0:.0f} steps and tokens")
            time.sleep(every_s)
    if trouble.dead:
        cause = launch.diagnose_all(launch.rank_states(runtime, deployment))
        raise launch.failure(trouble.reason, deployment, cause)
    raise GateError(trouble.reason, on=plan.name, next_step="recipectl logs; then recipectl stop, and serve again")


def look(server: Server, runtime: Runtime, deployment: Deployment) -> Look:
    """One look. Logs are not read: they grow, and a look must stay cheap."""
    ended = [(h, runtime.exit_of(h)) for h in deployment.handles]
    ranks = [RankState(h.rank, h.host, e is None, (), e) for h, e in ended]
    try:
        scrape = server.scrape()
    except (EngineError, BenchError):
        scrape = None
    return Look(ranks, server.health(), scrape)
