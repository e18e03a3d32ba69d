"""Bringing a plan up: launch, watch, gate; and taking it down again, whatever happens. Shared by serve and demo."""

from __future__ import annotations

import contextlib
import errno
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from recipectl.commands.context import utc_now
from recipectl.commands.gating import judge, keep_receipt, run_gates
from recipectl.commands.preflight import check_engine, refuse_second
from recipectl.console import Console
from recipectl.errors import Interrupted, UsageError
from recipectl.fsio import locked
from recipectl.serving import deployments, hosts, keys, launch, memory, runtimes
from recipectl.serving.deployments import Deployment
from recipectl.serving.gates import Result
from recipectl.serving.plan import Plan
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

    begun = utc_now()
    with locked(settings.state_dir / "locks" / f"serve-{plan.name}.lock", f"serve of {plan.name}", wait_s=0):
        refuse_second(settings, plan)
        given = settings.environ.get("RECIPECTL_API_KEY")
        key = keys.take(settings.state_dir, plan.name, given) if plan.exposed else None
        console.hide(key)
        runtime = runtimes.of(settings, plan, {keys.VARIABLE: key} if key else None)
        check_engine(settings, console, plan)
        deployment = deployments.create(settings, plan, begun)
        server = Server(plan.url, plan.served_name, api_key=key)
        boot = None
        far = {r.host for r in plan.ranks if not hosts.parse(r.host).here}
        floor = memory.Floor(plan, far, lambda host: runtimes.connect(settings, host), console.warn)
        try:
            with console.progress(f"starting {launch.name_of(plan)}") as bar:
                boot = launch.Launch(
                    runtime, deployment, lambda: server.health() == 200, bar.describe, console.warn, floor
                )
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
        finally:
            floor.end()
        return Up(deployment.having(state="ready"), results, receipt)


def stop(settings: Settings, deployment: Deployment, *, force: bool = False) -> list[str]:
    """Stop a deployment and record it. What is left is returned and leaves the record as it was."""
    left = launch.teardown(runtimes.of(settings, deployment.plan), deployment, force=force)
    if not left and deployment.state != "failed":
        with contextlib.suppress(OSError):  # no room for the record: that nothing runs is seen without it
            deployment.having(state="stopped")
    return left


def _take_down(settings: Settings, console: Console, deployment: Deployment, err: BaseException) -> None:
    failed = replace(deployment, state="failed", reason=str(err) or type(err).__name__)
    with uninterrupted():
        with contextlib.suppress(OSError):  # a full disk, say: the server is stopped all the same
            deployments.save(failed)
        left = stop(settings, failed)
    fate = f"{deployment.plan.name} was torn down"
    fate += f"; still running: {', '.join(left)}" if left else ", nothing is left running"
    if isinstance(err, KeyboardInterrupt):
        raise Interrupted(f"stopped by Ctrl-C: {fate}", details=[f"its log: {deployment.log}"]) from err
    if isinstance(err, OSError) and err.errno in (errno.ENOSPC, errno.EDQUOT):
        raise UsageError(
            "no room is left for the log and the receipt of a server", on=err.filename, seen=err.strerror,
            details=[fate], next_step="make room (`df`), or set RECIPECTL_STATE to another disk",
        ) from err  # fmt: skip
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
