"""From a plan to a server that answers: start the ranks, watch the boot, tear everything down if it fails."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from recipectl.errors import EngineError
from recipectl.serving.boot import Boot
from recipectl.serving.deployments import Deployment
from recipectl.serving.observed import RankState
from recipectl.serving.plan import Plan
from recipectl.serving.runtime import Handle, Runtime
from recipectl.serving.signatures import Diagnosis, diagnose

POLL_S = 0.1
PROBE_S = 2.0
# After the first fatal line the rest of its traceback is still on its way.
SETTLE_S = 0.4
GRACE_S = 30.0
# What a deployment's folder must have left while its engine boots: the rest of a log, and a receipt.
ROOM = 1 << 20


@dataclass
class _Rank:
    handle: Handle
    boot: Boot
    offset: int = 0


class Launch:
    """One boot. `answers` says whether the API answers; `show` gets a line of progress, `warn` what a person should
    know; `floor` gives a reason to abort (memory of the hosts of these ranks), or None."""

    def __init__(
        self,
        runtime: Runtime,
        deployment: Deployment,
        answers: Callable[[], bool],
        show: Callable[[str], None],
        warn: Callable[[str], None],
        floor: Callable[[Sequence[Handle]], str | None] = lambda _ranks: None,
    ) -> None:
        self._runtime, self.deployment, self._answers = runtime, deployment, answers
        self._show, self._warn, self._floor = show, warn, floor
        self._ranks: list[_Rank] = []
        self._begun = time.monotonic()
        self._probed = 0.0
        self._told: set[str] = set()

    def start(self) -> None:
        """Start every rank, workers first, and record each at once. EngineError if one does not start."""
        plan = self.deployment.plan
        self._begun = time.monotonic()
        for rank in sorted(plan.ranks, key=lambda r: -r.rank):
            handle = self._runtime.start(plan, rank, self.deployment.folder)
            self._ranks.append(_Rank(handle, Boot({str(p): s for p, s in plan.gates.phase_budgets_s.items()})))
            handles = sorted((r.handle for r in self._ranks), key=lambda h: h.rank)
            self.deployment = self.deployment.having(handles=tuple(handles))

    def wait(self) -> dict[str, float]:
        """Wait until the API answers; seconds per phase. EngineError at once for a fatal line, a dead rank, the memory
        floor or the boot's time limit; OSError where the log finds no more room."""
        limit = self.deployment.plan.gates.boot_timeout_s
        while True:
            now = time.monotonic() - self._begun
            self._read(now)
            self._fail_if_broken(now)
            head = self._head.boot
            self._show(head.headline(now))
            if self._ready(now):
                self.deployment = self.deployment.having(phases=head.finish(time.monotonic() - self._begun))
                return dict(head.elapsed)
            if now > limit:
                raise self._failure(f"the server was not ready within {limit} s, in phase {head.phase}")
            time.sleep(POLL_S)

    @property
    def _head(self) -> _Rank:
        return min(self._ranks, key=lambda r: r.handle.rank)

    def _read(self, now: float) -> None:
        for rank in self._ranks:
            lines, rank.offset = self._runtime.read(rank.handle, rank.offset)
            for line in lines:
                rank.boot.feed(line, now)

    def _ready(self, now: float) -> bool:
        if self._head.boot.phase != "ready" and now - self._probed < PROBE_S:
            return False
        self._probed = now
        return self._answers()

    def _fail_if_broken(self, now: float) -> None:
        require_room(self.deployment.folder)
        for rank in self._ranks:
            late = rank.boot.over_budget(now)
            if late and late not in self._told and rank.boot.phase not in self._told:
                self._told.add(rank.boot.phase)
                self._warn(f"rank {rank.handle.rank}: {late}")
            if rank.boot.fatal is not None and now - (rank.boot.fatal_at or now) >= SETTLE_S:
                raise self._failure(
                    f"the engine failed while it started: rank {rank.handle.rank} on {rank.handle.host}", rank
                )
            ended = self._runtime.exit_of(rank.handle)
            if ended is not None:
                self._read(now)
                where = f"rank {rank.handle.rank} on {rank.handle.host}"
                raise self._failure(f"{where} ended while the engine started: {ended}", rank)
        if reason := self._floor([r.handle for r in self._ranks]):
            raise self._failure(f"the boot was aborted: {reason}")

    def _failure(self, what: str, first: _Rank | None = None) -> EngineError:
        ordered = sorted(self._ranks, key=lambda r: r is not first)
        cause = next((c for r in ordered if (c := self._cause(r))), None)
        return failure(what, self.deployment, cause)

    def _cause(self, rank: _Rank) -> Diagnosis | None:
        lines, _ = self._runtime.read(rank.handle, 0)
        return diagnose(lines)


def require_room(folder: Path) -> None:
    """OSError where a deployment's folder has no room. A log that is cut off explains nothing, and a lost line would
    look like one that the engine never wrote."""
    if shutil.disk_usage(folder).free < ROOM:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def failure(what: str, deployment: Deployment, cause: Diagnosis | None) -> EngineError:
    """The error of a failed server, with the root cause on top and the log's place at the end."""
    details = cause.details() if cause else ["no known cause in the log"]
    return EngineError(
        what, on=deployment.plan.name, details=[*details, f"full log: {deployment.log}"],
        next_step=(cause.fix if cause and cause.fix else f"read {deployment.log}"),
    )  # fmt: skip


def teardown(runtime: Runtime, deployment: Deployment, *, force: bool = False, grace_s: float = GRACE_S) -> list[str]:
    """Stop every rank of a deployment and look again; what is left, in words."""
    return runtime.stop(deployment.plan, deployment.handles, grace_s=grace_s, force=force)


def rank_states(runtime: Runtime, deployment: Deployment) -> list[RankState]:
    """Every rank as it is now, with its whole log."""
    out = []
    for handle in deployment.handles:
        ended = runtime.exit_of(handle)
        lines, _ = runtime.read(handle, 0)
        out.append(RankState(handle.rank, handle.host, ended is None, lines, ended))
    return out


def diagnose_all(states: Sequence[RankState]) -> Diagnosis | None:
    """The first root cause over all ranks, dead ones first."""
    ordered = sorted(states, key=lambda s: s.alive)
    return next(chain((d for s in ordered if (d := diagnose(s.log))), iter(())), None)


def name_of(plan: Plan) -> str:
    """What messages call the deployment."""
    return f"{plan.recipe} {plan.lane}" + (f"/{plan.variant}" if plan.variant else "")
