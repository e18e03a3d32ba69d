"""What is looked at before anything is started: another server, the port, this machine, the engine, its arguments."""

from __future__ import annotations

from recipectl.commands.context import Chosen
from recipectl.commands.joining import Where
from recipectl.console import Console
from recipectl.errors import EngineError, RecipeError, UsageError
from recipectl.recipe.families import FAMILIES
from recipectl.serving import doctor, helper, machine, running, runtimes
from recipectl.serving.plan import Plan
from recipectl.serving.process import require_port
from recipectl.settings import Settings


def check_machine(settings: Settings, console: Console, chosen: Chosen, where: Where) -> None:
    """The cheap rows of `doctor`, and the memory of far hosts. Warnings are told; EngineError for a GPU that must be
    left alone or too little memory."""
    lane, family = chosen.lane, FAMILIES[chosen.lane_name]
    rows = [("this machine", row) for row in doctor.cheap(machine.look((settings.cache_dir,)), lane, family)]
    for on, facts in zip(where.places, where.facts, strict=False):  # one host alone says nothing of itself
        if not on.host.here:
            rows.append((on.host.name, doctor.memory(machine.of(facts, "", None), lane, family)))
    for host, row in rows:
        if row.verdict == "FAIL":
            raise EngineError(f"{host} is not fit: {row.what}", seen=row.seen, next_step=row.fix)
        if row.verdict == "WARN":
            console.notice(f"{row.what} of {host}: {row.seen} ({row.fix})")


def refuse_second(settings: Settings, plan: Plan) -> None:
    others = running.live(settings)
    if same := next((d for d in others if d.plan.name == plan.name), None):
        raise UsageError(
            f"{plan.name} already runs", seen=f"{same.url}, since {same.started}", expected="one server of a recipe",
            next_step=f"use it, or `recipectl stop {plan.recipe}` first",
        )  # fmt: skip
    require_port(plan.port, {d.pid: d.plan.name for d in others if d.pid is not None})


def check_engine(settings: Settings, console: Console, plan: Plan) -> None:
    """What can be known before anything is loaded: is the engine there, does its parser take the argv.

    As a process the engine parses its argv in its first seconds anyway; in a container the check costs the import of
    vLLM and saves a boot of up to 25 minutes.
    """
    if plan.runtime == "process":
        runtimes.process(settings).prepare(plan.engine, plan.engine_version)
        return
    container = plan.ranks[0].container
    assert container is not None
    if plan.engine == "sglang":
        return
    with console.progress("checking the engine's arguments"):
        engine = runtimes.connect(settings, plan.ranks[0].host)
        refused = helper.check_arguments(engine, container.image, list(plan.ranks[0].argv[2:]))
    if refused:
        raise RecipeError("the engine refuses its arguments", on=plan.name, seen=refused,
                          next_step="recipectl show --argv; mend args in the recipe, or --set")  # fmt: skip
