"""Bringing a plan up: launch, watch, gate; and taking it down again, whatever happens. Shared by serve and demo."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recipectl.commands.gating import judge, keep_receipt, run_gates, utc
from recipectl.console import Console
from recipectl.errors import Interrupted, RecipeError, UsageError
from recipectl.fsio import locked
from recipectl.serving import deployments, helper, keys, launch, memory, runtimes
from recipectl.serving.deployments import Deployment
from recipectl.serving.gates import Result
from recipectl.serving.plan import Plan
from recipectl.serving.process import require_port
from recipectl.settings import Settings


@dataclass(frozen=True)
class Up:
    """A server that has passed its gates, with the receipt of that."""

    deployment: Deployment
    results: list[Result]
    receipt: Path


class HungUp(BaseException):
    """The terminal went away. A lost connection must not cost a 25 minute boot: the server stays, `status` and `gate`
    find it."""


def bring_up(settings: Settings, console: Console, plan: Plan) -> Up:
    """Launch a plan and gate it. Whatever goes wrong, and on Ctrl-C, everything it started is stopped again; only
    `HungUp` leaves it."""
    from recipectl.serving.probes import Server

    begun = utc()
    with locked(settings.state_dir / "locks" / f"serve-{plan.name}.lock", f"serve of {plan.name}", wait_s=0):
        _refuse_second(settings, plan)
        key = (
            keys.take(settings.state_dir, plan.name, settings.environ.get("RECIPECTL_API_KEY"))
            if plan.exposed
            else None
        )
        console.hide(key)
        runtime = runtimes.of(settings, plan, {keys.VARIABLE: key} if key else None)
        _check_engine(settings, console, plan)
        deployment = deployments.create(settings, plan, begun)
        server = Server(plan.url, plan.served_name, api_key=key)
        boot = None
        try:
            with console.progress(f"starting {launch.name_of(plan)}") as bar:
                boot = launch.Launch(
                    runtime, deployment, lambda: server.health() == 200, bar.describe, console.warn,
                    lambda: memory.below_floor(plan),
                )  # fmt: skip
                boot.start()
                boot.wait()
            deployment = boot.deployment
            with console.progress("gates"):
                results = run_gates(settings, deployment)
            receipt = keep_receipt(settings, "serve", deployment, results, begun)
            judge(settings, deployment, results)
        except HungUp:
            raise
        except BaseException as err:
            _take_down(settings, console, boot.deployment if boot else deployment, err)
            raise
        return Up(deployment.having(state="ready"), results, receipt)


def _check_engine(settings: Settings, console: Console, plan: Plan) -> None:
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


def stop(settings: Settings, deployment: Deployment, *, force: bool = False) -> list[str]:
    """Stop a deployment and record it. What is left is returned and leaves the record as it was."""
    left = launch.teardown(runtimes.of(settings, deployment.plan), deployment, force=force)
    if not left and deployment.state != "failed":
        deployment.having(state="stopped")
    return left


def _refuse_second(settings: Settings, plan: Plan) -> None:
    running = deployments.live(settings)
    if same := next((d for d in running if d.plan.name == plan.name), None):
        raise UsageError(
            f"{plan.name} already runs", seen=f"{same.url}, since {same.started}", expected="one server of a recipe",
            next_step=f"use it, or `recipectl stop {plan.recipe}` first",
        )  # fmt: skip
    require_port(plan.port, {d.pid: d.plan.name for d in running if d.pid is not None})


def _take_down(settings: Settings, console: Console, deployment: Deployment, err: BaseException) -> None:
    with uninterrupted():
        left = stop(settings, deployment.having(state="failed", reason=str(err) or type(err).__name__))
    if isinstance(err, KeyboardInterrupt):
        where = f"; still running: {', '.join(left)}" if left else ", nothing is left running"
        raise Interrupted(f"stopped by Ctrl-C: {deployment.plan.name} was torn down{where}",
                          details=[f"its log: {deployment.log}"]) from err  # fmt: skip
    if left:
        console.warn(f"still running after the teardown: {', '.join(left)}; try `recipectl stop --force`")


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """A teardown is not torn: further Ctrl-C are ignored until it is done."""
    before = {s: signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
