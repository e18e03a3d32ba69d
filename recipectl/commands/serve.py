"""`serve`: launch a recipe and say READY only when the server has proven itself. The server outlives the command."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from types import FrameType

from recipectl import speculative
from recipectl.commands import gating
from recipectl.commands.context import choose
from recipectl.commands.departures import check_rules, stamps_of
from recipectl.commands.drafters import with_drafter
from recipectl.commands.joining import where_of
from recipectl.commands.launching import HungUp, Up, bring_up
from recipectl.commands.models import ensure_verified
from recipectl.commands.planning import plan_of
from recipectl.commands.preflight import check_machine
from recipectl.console import Console
from recipectl.errors import Interrupted
from recipectl.serving import keys
from recipectl.serving.checks import GATES
from recipectl.serving.containers import docker_run
from recipectl.serving.plan import Plan
from recipectl.settings import Settings


def run(
    settings: Settings,
    console: Console,
    *,
    name: str | None,
    sm: str | None,
    variant: str | None,
    k: int | None,
    sets: Sequence[str],
    drafter: str | None,
    port: int | None,
    hosts: str | None,
    expose: str | None,
    unqualified: bool,
    dry_run: bool,
    accept_license: Sequence[str] = (),
    carry_image: bool = False,
) -> int:
    """Serve and return once READY; the server stays."""
    given = [speculative.parse_set(s) for s in sets]
    # The rules need no lock as far as the recipe itself breaks them: that is told first, `ensure_verified` asks for it.
    chosen = choose(settings, console, name, sm, variant=variant, k=k, sets=given, need_lock=False)
    chosen = with_drafter(settings, console, chosen, drafter)
    stamps = [*stamps_of(chosen, k, sets, drafter), *check_rules(console, chosen, unqualified=unqualified)]
    models = ensure_verified(settings, console, chosen, accept=accept_license)
    where = where_of(settings, console, chosen, models, port=port, hosts=hosts, expose=expose,
                     carry_image=carry_image and not dry_run)  # fmt: skip
    plan = plan_of(settings, chosen, models, where, stamps)
    if dry_run:
        _show_plan(console, plan)
        return 0
    check_machine(settings, console, chosen, where)
    signal.signal(signal.SIGHUP, _hung_up)
    try:
        ready(console, bring_up(settings, console, plan))
    except HungUp:
        return Interrupted.exit_code
    return 0


def _hung_up(_number: int, _frame: FrameType | None) -> None:
    raise HungUp


def ready(console: Console, up: Up) -> None:
    """READY, with what was proven and how to use and stop it."""
    d = up.deployment
    gating.show(console, d, up.results)
    console.print(f"READY {d.plan.name} at {d.url} (model {d.model}, K {d.k if d.k is not None else 'none'})")
    console.print(f"try:  curl {d.url}/v1/models")
    console.print(f"log:  {d.log}")
    console.print(f"stop: recipectl stop {d.recipe}")
    if d.plan.exposed:
        console.warn(
            f"exposed on {d.plan.address}: the API key guards /v1 only; open to all: {' '.join(keys.OPEN_PATHS)}"
        )
    console.document({"ready": True, "deployment": d.id, "url": d.url, "model": d.model, "k": d.k, "pid": d.pid,
                      "log": str(d.log), "receipt": str(up.receipt), "phases_s": d.phases,
                      "gates": [vars(r) for r in up.results]})  # fmt: skip


def _show_plan(console: Console, plan: Plan) -> None:
    for rank in plan.ranks:
        console.print(f"rank {rank.rank} on {rank.host}:")
        console.print("  " + " ".join(f"{n}={shlex.quote(v)}" for n, v in sorted(rank.env.items())))
        console.print("  " + shlex.join(docker_run(rank.container) if rank.container else rank.argv))
    console.print(f"gates: {', '.join(GATES)}")
    console.document(plan.to_json())
