"""The memory floor of unified-memory machines: a boot is aborted before one of its hosts locks up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence

import psutil

from recipectl.errors import EngineError
from recipectl.images.port import ContainerEngine
from recipectl.serving.plan import Plan
from recipectl.serving.runtime import Handle

GIB = 1 << 30
# What sfxnz's watch uses on two GB10; a host below it has locked up so that only a power cycle helped.
DEFAULT_FLOOR_GIB = 8.0
EVERY_S = 1.0
# Readings that fail in a row until a person is told; the first ones meet a container that is just being started.
DEAF = 10
# Inside a container /proc/meminfo is its host's. Every image of ours has python3, not every one a shell.
_READ = ("python3", "-I", "-S", "-c", "print(open('/proc/meminfo').read())")


def floor_gib(plan: Plan) -> float | None:
    """The floor in GiB; None where CPU and GPU have memory of their own and the recipe sets none."""
    if plan.gates.memory_floor_gib is not None:
        return plan.gates.memory_floor_gib
    return DEFAULT_FLOOR_GIB if plan.unified_memory else None


class Floor:
    """Call it with the ranks that run: why the boot must end now, or None.

    This machine is read at each call. A host of `far` is read every second from inside its rank's container, by a
    thread over a connection of its own, so that a slow network never delays the look at logs and ranks.
    """

    def __init__(
        self, plan: Plan, far: Collection[str], connect: Callable[[str], ContainerEngine], warn: Callable[[str], None]
    ) -> None:
        self._limit, self._far, self._connect, self._warn = floor_gib(plan), far, connect, warn
        self._left: dict[str, float] = {}
        self._watched: set[str] = set()
        self._ended = threading.Event()

    def __call__(self, ranks: Sequence[Handle]) -> str | None:
        if self._limit is None:
            return None
        for rank in ranks:
            if rank.host in self._far and rank.host not in self._watched:
                self._watched.add(rank.host)
                threading.Thread(target=self._watch, args=(rank,), daemon=True).start()
        left = {"this host": psutil.virtual_memory().available / GIB, **self._left}
        host = min(left, key=lambda h: left[h])
        if left[host] >= self._limit:
            return None
        return f"{host} has {left[host]:.1f} GiB of memory left, the floor is {self._limit:.1f} GiB"

    def end(self) -> None:
        """Stop reading."""
        self._ended.set()

    def _watch(self, rank: Handle) -> None:
        engine: ContainerEngine | None = None
        deaf = 0
        while not self._ended.wait(EVERY_S if engine else 0):
            try:
                engine = engine or self._connect(rank.host)
                self._left[rank.host] = available(engine.execute(rank.container or "", _READ)) / GIB
                deaf = 0
            except (EngineError, ValueError) as err:
                deaf += 1
                if deaf == DEAF:
                    self._warn(f"the memory of {rank.host} cannot be read, its floor is not watched: {err}")


def available(meminfo: str) -> int:
    """Bytes that /proc/meminfo calls available. ValueError if it says nothing of the kind."""
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise ValueError("no MemAvailable in /proc/meminfo")
