"""SGLang tells its acceptance length as a gauge of the last batch: sampled during decode, and labelled so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from recipectl.bench.acceptance import parse_metrics
from recipectl.bench.client import Client
from recipectl.bench.result import Accepted
from recipectl.bench.stats import median
from recipectl.errors import BenchError

LENGTH, RATE = "sglang:spec_accept_length", "sglang:spec_accept_rate"
SAMPLE_S = 0.25


class GaugeWatch:
    """Samples of both gauges; zeros (nothing decoded yet) are left out."""

    def __init__(self) -> None:
        self.lengths: list[float] = []
        self.rates: list[float] = []

    async def sample(self, client: Client) -> None:
        """Read both gauges, again and again, until cancelled. A scrape that fails is left out."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            with contextlib.suppress(BenchError):
                scrape = parse_metrics((await client.get("/metrics"))[1])
                for name, kept in ((LENGTH, self.lengths), (RATE, self.rates)):
                    if value := scrape.value(name):
                        kept.append(value)

    def accepted(self) -> Accepted | None:
        """The median sample, without counts: a gauge knows none. None where nothing was sampled."""
        if not self.lengths:
            return None
        return Accepted(source="gauge", drafts=0, proposed=0, accepted=0, length=median(self.lengths),
                        rate=median(self.rates))  # fmt: skip


@contextlib.asynccontextmanager
async def watch(client: Client, engine: str | None) -> AsyncIterator[GaugeWatch]:
    """Sample while the block runs, on an SGLang server only: elsewhere counters are exact."""
    gauge = GaugeWatch()
    if engine != "sglang":
        yield gauge
        return
    task = asyncio.ensure_future(gauge.sample(client))
    try:
        yield gauge
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
