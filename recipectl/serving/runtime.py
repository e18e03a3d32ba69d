"""The port of the runtimes: how one rank is started, watched, read and stopped. PURE types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from recipectl.serving.plan import Plan, RankPlan


@dataclass(frozen=True)
class Handle:
    """One started rank, by what survives the death of the CLI that started it.

    `process`: `pid` is leader of its own session and `created` its start time in seconds since the epoch, so that a
    reused pid is not taken for it. `docker`: `container` is the id on `host`.
    """

    rank: int
    host: str
    pid: int | None = None
    created: float | None = None
    container: str | None = None
    log: str | None = None


class Runtime(Protocol):
    """Processes or containers. None of these waits for readiness."""

    def start(self, plan: Plan, rank: RankPlan, folder: Path) -> Handle:
        """Start one rank. EngineError with the next step if it cannot start."""
        ...

    def exit_of(self, handle: Handle) -> str | None:
        """None while the rank runs, else how it ended, in words."""
        ...

    def read(self, handle: Handle, offset: int) -> tuple[list[str], int]:
        """Complete log lines from `offset` on, and the offset after them."""
        ...

    def stop(self, plan: Plan, handles: Sequence[Handle], *, grace_s: float, force: bool) -> list[str]:
        """Stop everything of this plan, recorded in handles or not, wait, look again; what is left, in words."""
        ...
