"""Runtime `docker`: one container a rank, on one or several engines. Touches only containers that carry its label."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from recipectl.errors import EngineError
from recipectl.fsio import write_atomic
from recipectl.images.port import ContainerEngine, ContainerInfo
from recipectl.serving.containers import DEPLOYMENT
from recipectl.serving.plan import Plan, RankPlan
from recipectl.serving.process import read_lines
from recipectl.serving.runtime import Handle

ASK_S = 0.5
RUNNING = ("running", "created", "restarting", "paused")


@dataclass
class _Seen:
    ended: str | None
    at: float


class DockerRuntime:
    """Engines by host name through `connect`, kept while this object lives. `secrets` go into the head's environment
    only, and into no plan. On unified memory a container that still computes is not killed without `force`."""

    def __init__(
        self, connect: Callable[[str], ContainerEngine], *, secrets: Mapping[str, str] | None = None,
        gentle: bool = False,
    ) -> None:  # fmt: skip
        self._connect, self._secrets, self._gentle = connect, dict(secrets or {}), gentle
        self._engines: dict[str, ContainerEngine] = {}
        self._seen: dict[str, _Seen] = {}
        self._followers: dict[str, threading.Thread] = {}

    def engine(self, host: str) -> ContainerEngine:
        """The engine of a host. EngineError if it cannot be reached."""
        if host not in self._engines:
            self._engines[host] = self._connect(host)
        return self._engines[host]

    def start(self, plan: Plan, rank: RankPlan, folder: Path) -> Handle:
        """Create and start one rank, and begin to copy its log into the deployment's folder."""
        assert rank.container is not None
        engine = self.engine(rank.host)
        spec = rank.container
        if rank.rank == 0 and self._secrets:
            spec = replace(spec, env={**spec.env, **self._secrets})
        container = engine.create(spec)
        engine.start(container)
        log = folder / ("engine.log" if rank.rank == 0 else f"engine-{rank.rank}.log")
        handle = Handle(rank.rank, rank.host, container=container, log=str(log))
        follower = threading.Thread(target=self._follow, args=(handle,), daemon=True)
        self._followers[container] = follower
        follower.start()
        return handle

    def exit_of(self, handle: Handle) -> str | None:
        """None while the container runs. The engine is asked twice a second at most."""
        assert handle.container is not None
        known = self._seen.get(handle.container)
        if known is not None and time.monotonic() - known.at < ASK_S:
            return known.ended
        ended = _ended(self.engine(handle.host).container(handle.container))
        self._seen[handle.container] = _Seen(ended, time.monotonic())
        return ended

    def read(self, handle: Handle, offset: int) -> tuple[list[str], int]:
        """Log lines from `offset` on: from the copy while it is being made, else from a fresh copy of the whole."""
        file = Path(handle.log or "")
        follower = self._followers.get(handle.container or "")
        if follower is None or not follower.is_alive():
            with contextlib.suppress(EngineError):  # a host out of reach: what was copied is still read
                self._copy(handle, file)
        return read_lines(file, offset)

    def stop(self, plan: Plan, handles: Sequence[Handle], *, grace_s: float, force: bool) -> list[str]:
        """Tell every container of the deployment on every host to end, wait for all of them together, look again,
        remove what has ended. One host after the other would let ranks run that wait for one that is gone."""
        reached, left = [], []
        for host in sorted({r.host for r in plan.ranks}):
            try:
                engine = self.engine(host)
                for found in engine.containers({DEPLOYMENT: plan.id}):
                    engine.signal(found.id, "SIGTERM")
                reached.append((host, engine))
            except EngineError as err:
                left.append(f"unknown on {host}: {err.what}")
        deadline = time.monotonic() + grace_s
        for host, engine in reached:
            try:
                left += self._end(host, engine, plan.id, deadline, force)
            except EngineError as err:
                left.append(f"unknown on {host}: {err.what}")
        return left

    def alive(self, plan: Plan) -> bool:
        """Whether a container of the deployment runs on a host that answers."""
        for host in sorted({r.host for r in plan.ranks}):
            with contextlib.suppress(EngineError):
                if any(c.status in RUNNING for c in self.engine(host).containers({DEPLOYMENT: plan.id})):
                    return True
        return False

    def _end(self, host: str, engine: ContainerEngine, deployment: str, deadline: float, force: bool) -> list[str]:
        ours = {DEPLOYMENT: deployment}
        while any(c.status == "running" for c in engine.containers(ours)) and time.monotonic() < deadline:
            time.sleep(0.2)
        for found in engine.containers(ours):
            if found.status == "running" and (force or not self._gentle):
                engine.stop(found.id, 0)
        for found in engine.containers(ours):
            if found.status != "running":
                engine.remove(found.id)
        return [f"container {c.name} on {host} ({c.status})" for c in engine.containers(ours)]

    def _follow(self, handle: Handle) -> None:
        """Copy the log as it grows. A full disk or a lost engine ends the copy, not the server: `read` falls back."""
        with contextlib.suppress(EngineError, OSError):
            engine = self._connect(handle.host)
            with Path(handle.log or "").open("wb", buffering=0) as out:
                for piece in engine.logs(handle.container or "", follow=True):
                    out.write(piece)

    def _copy(self, handle: Handle, file: Path) -> None:
        engine = self.engine(handle.host)
        if handle.container and engine.container(handle.container) is not None:
            whole = b"".join(engine.logs(handle.container))
            if len(whole) >= (file.stat().st_size if file.exists() else 0):
                write_atomic(file, whole)


def _ended(found: ContainerInfo | None) -> str | None:
    if found is None:
        return "its container is gone"
    if found.status in RUNNING:
        return None
    memory = ", out of memory" if found.oom_killed else ""
    return f"its container ended with exit code {found.exit_code}{memory}"
