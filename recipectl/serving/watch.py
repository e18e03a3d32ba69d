"""Watching a live server: dead ranks, deaf health, and the wedge that /health does not show. PURE.

The tell-tale of a wedged engine is that requests run while nothing is computed (eugr#260). A long prefill generates
nothing for minutes as well, so the engine's steps count as progress too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recipectl.bench.acceptance import Scrape
from recipectl.serving.observed import RankState

# Checks without progress while requests run, until the server is called wedged; with 10 s between checks, a minute.
FROZEN_CHECKS = 6
DEAF_CHECKS = 3
_STEPS = "vllm:iteration_tokens_total_count"


@dataclass(frozen=True)
class Look:
    """One look: ranks as their runtime sees them, /health, and the counters (None: they did not answer)."""

    ranks: Sequence[RankState]
    health: int | None
    scrape: Scrape | None


@dataclass(frozen=True)
class Trouble:
    """Why the watch ends. `dead` says that a rank has ended, otherwise the server is alive but false."""

    reason: str
    dead: bool


@dataclass
class Watch:
    """Feed it looks; it keeps two numbers and two counts, however long it runs."""

    progress: float | None = None
    started: float | None = None
    frozen: int = 0
    deaf: int = 0

    def feed(self, look: Look) -> Trouble | None:
        """What is wrong now, or None."""
        gone = next((r for r in look.ranks if not r.alive), None)
        if gone is not None:
            head = "" if gone.rank == 0 or look.health != 200 else " behind a head that still answers /health"
            return Trouble(f"rank {gone.rank} on {gone.host} is gone{head}: {gone.exit}", dead=True)
        self.deaf = 0 if look.health == 200 else self.deaf + 1
        if self.deaf >= DEAF_CHECKS:
            return Trouble(f"/health does not answer 200 ({look.health or 'no answer'})", dead=False)
        if look.scrape is None:
            return None
        return self._restarted(look.scrape) or self._stands_still(look.scrape)

    def _restarted(self, scrape: Scrape) -> Trouble | None:
        started = scrape.value("process_start_time_seconds")
        before, self.started = self.started, started
        if before is not None and started is not None and started != before:
            return Trouble("another server answers on this port: the process start time changed", dead=False)
        return None

    def _stands_still(self, scrape: Scrape) -> Trouble | None:
        running = scrape.gauge("running") or 0.0
        progress = sum(scrape.series("generated").values()) + (scrape.value(_STEPS) or 0.0)
        moved, self.progress = progress != self.progress, progress
        self.frozen = 0 if moved or running == 0 else self.frozen + 1
        if self.frozen < FROZEN_CHECKS:
            return None
        what = f"{running:.0f} request(s) run, but nothing was generated over {self.frozen} checks"
        return Trouble(f"the server is wedged: {what} (stands at {progress:.0f})", dead=False)
