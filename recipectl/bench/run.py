"""The bench run: rounds interleaved over cells, each block between two scrapes of a quiet server.

What is finished is kept: on Ctrl-C or when the server goes away, the blocks so far are written, marked partial.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recipectl import __version__
from recipectl.bench import body as bodies
from recipectl.bench import discover, gauges, measure, rig, sse, stats, validity
from recipectl.bench.acceptance import Scrape, delta, parse_metrics
from recipectl.bench.client import Client, Cost, connect
from recipectl.bench.files import Files
from recipectl.bench.measure import Sent
from recipectl.bench.protocol import FORMULAS, Phase, Protocol
from recipectl.bench.result import Block, Measured, Result, Server
from recipectl.console import Console, Progress
from recipectl.errors import BenchError, Interrupted, RecipectlError
from recipectl.recipe.base import Json

QUIET_S = 10.0
SETTLE_S = 2.0
POLL_S = 0.05
UNKNOWN_BOOT = "unknown"


@dataclass(frozen=True)
class Target:
    """The server to measure, and what its plan promises. `speculates` None: let its counters say."""

    url: str
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    speculates: bool | None = None
    k: int | None = None
    speculative: dict[str, Json] = field(default_factory=dict)
    max_num_seqs: int | None = None
    random_weights: bool = False
    shares_cpu: bool = False
    gpu: bool = False
    log: Path | None = None
    argv: tuple[str, ...] = ()
    boot: str | None = None
    arm: str | None = None
    recipe: str | None = None
    lane: str | None = None
    variant: str | None = None
    resolution: str | None = None
    notes: dict[str, Json] = field(default_factory=dict)


def run(
    target: Target, protocols: Sequence[Protocol], *, out: Path, console: Console, seed: int = 0, start_round: int = 0,
) -> Result:  # fmt: skip
    """Measure all protocols on one server and write run.json, chunks.jsonl and the scrapes into `out`.

    Protocols with a seed per request derive it from `seed` and the request's place, so that two arms draw alike.

    Raises BenchError where the server cannot be measured at all, Interrupted on Ctrl-C; both only after the finished
    blocks were written.
    """
    session = Session(target, protocols, Files(out), seed)
    session.first_round = start_round
    try:
        with console.progress("bench", total=session.total) as shown:
            asyncio.run(session.measure(shown))
    except KeyboardInterrupt:
        result = session.write(partial=True)
        kept = sum(len(m.blocks) for m in result.measured)
        raise Interrupted(f"bench stopped; {kept} finished blocks are kept, marked partial",
                          next_step=f"recipectl report {out}") from None  # fmt: skip
    except RecipectlError as err:
        if not session.blocks:
            raise
        session.warnings.append(f"the run broke off: {err.what}" + (f" ({err.seen})" if err.seen else ""))
        session.write(partial=True)
        raise BenchError(
            f"the run broke off: {err.what}", on=err.on, seen=err.seen, next_step=f"finished blocks: {out}"
        ) from err
    return session.write(partial=False)


class Session:
    """The state of one run."""

    def __init__(self, target: Target, protocols: Sequence[Protocol], files: Files, seed: int) -> None:
        self.target, self.protocols, self.files, self.seed = target, tuple(protocols), files, seed
        self.started = now()
        self.blocks: list[tuple[Protocol, Block]] = []
        self.found: discover.Found | None = None
        self.warnings: list[str] = []
        self.cost = Cost()
        self.first_round = 0
        self.run_id = secrets.token_hex(8)

    @property
    def total(self) -> int:
        """How many blocks there will be."""
        return sum(p.rounds * len(p.cells()) for p in self.protocols)

    async def measure(self, shown: Progress) -> None:
        """All rounds; every round runs every cell, so that a drift of the machine hits all cells alike."""
        async with connect(self.target.url, self.target.api_key) as client:
            self.found = await discover.discover(client, self.target.model, self.protocols[0])
            warm: set[tuple[str, str, int]] = set()
            for round_, protocol, name, c in self._order():
                shown.describe(f"bench {protocol.name}/{name} c={c} round {round_ + 1} of {protocol.rounds}")
                if (key := (protocol.digest, name, c)) not in warm:
                    await self._warm_up(client, protocol, name, c)
                    warm.add(key)
                await self._block(client, protocol, name, c, round_ + self.first_round)
                shown.advance()

    def _order(self) -> Iterator[tuple[int, Protocol, str, int]]:
        for round_ in range(max(p.rounds for p in self.protocols)):
            for protocol in self.protocols:
                if round_ < protocol.rounds:
                    for name, c in protocol.cells():
                        yield round_, protocol, name, c

    async def _warm_up(self, client: Client, protocol: Protocol, name: str, c: int) -> None:
        for i in range(protocol.warmup.waves):
            phase = protocol.phases[name]
            prompts = bodies.schedule(phase, c, 0, "wave")[:c]
            sent = [self._body(protocol, p.text, protocol.warmup.max_tokens, "warm", name, c, i, j)
                    for j, p in enumerate(prompts)]  # fmt: skip
            await client.wave(bodies.PATHS[protocol.endpoint], sent)

    async def _block(self, client: Client, protocol: Protocol, name: str, c: int, round_: int) -> None:
        phase = protocol.phases[name]
        started = now()
        quiet_before = await self._quiet(client)
        before = await self._scrape(client)
        log = rig.LogWatch(self.target.log)
        engine = self.found.engine if self.found else None
        with rig.clock_watch(self.target.gpu) as clocks:
            async with gauges.watch(client, engine) as gauge:
                waves, cost = await self._waves(client, protocol, phase, name, c, round_)
        quiet_after = await self._quiet(client)
        streams = [s.stream for wave in waves for s in wave]
        after = await self._settled(client, before, streams)
        moved = delta(before, after) if before and after else None
        seen = validity.Seen(
            streams, protocol.sampling.temperature, moved, measure.request_acceptance(streams), quiet_before,
            quiet_after, self._speculates(), self.target.k, self.target.random_weights, self.target.shares_cpu,
            cost.lag_p99_s, cost.core, stats.median([_window_s(s) for s in streams]), cost.late_connections,
            log.compiled(), clocks.summary(),
        )  # fmt: skip
        block = measure.block(
            sent=waves, protocol=protocol, phase_name=name, concurrency=c, round_=round_, boot=self._boot(),
            arm=self.target.arm, started=started, delta=moved, seen=seen, gauge=gauge.accepted(),
            client={"core": cost.core, "lag_p99_ms": 1e3 * cost.lag_p99_s, "late_connections": cost.late_connections},
        )  # fmt: skip
        self.cost = self.cost + Cost(cost.wall_s, cost.cpu_s, [], cost.late_connections)
        self.blocks.append((protocol, block))
        self.files.block(protocol, block, waves, before, after)

    async def _waves(
        self, client: Client, protocol: Protocol, phase: Phase, name: str, c: int, round_: int
    ) -> tuple[list[list[Sent]], Cost]:
        prompts = bodies.schedule(phase, c, round_, protocol.load)
        size = c if protocol.load == "wave" else len(prompts)
        limit = phase.max_tokens or protocol.max_tokens
        path = bodies.PATHS[protocol.endpoint]
        waves, total = [], Cost()
        for at in range(0, len(prompts), size):
            batch = prompts[at : at + size]
            sent = [self._body(protocol, p.text, limit, name, c, round_, at + j) for j, p in enumerate(batch)]
            raw, cost = await (
                client.wave(path, sent) if protocol.load == "wave" else client.closed_loop(path, sent, c)
            )
            total = total + cost
            expect = limit if protocol.ignore_eos else None
            parsed = [
                sse.parse(r, expect_tokens=expect) if protocol.transport == "stream" else sse.parse_whole(r)
                for r in raw
            ]
            waves.append([Sent(p, s) for p, s in zip(batch, parsed, strict=True)])
        return waves, total

    def _body(self, protocol: Protocol, text: str, limit: int, *place: object) -> dict[str, object]:
        assert self.found is not None
        number = int(bodies.salt("seed", self.seed, *place)[:8], 16) % 2**31
        seed = number if protocol.sampling.seed == "per-request" else None
        prompt = f"[{bodies.salt(self.run_id, *place)}]\n{text}" if protocol.nonce else text
        return bodies.body(protocol, prompt, self.found.model, self.found.dialect,
                           salt=bodies.salt(self.run_id, *place), seed=seed, max_tokens=limit)  # fmt: skip

    async def _quiet(self, client: Client) -> bool | None:
        """Wait up to 10 s until nothing runs or waits. None where the server does not say."""
        deadline = time.monotonic() + QUIET_S
        while True:
            scrape = await self._scrape(client)
            running = scrape.gauge("running") if scrape else None
            if scrape is None or running is None:
                return None
            if running + (scrape.gauge("waiting") or 0) == 0:
                return True
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(POLL_S)

    async def _settled(self, client: Client, before: Scrape | None, streams: Sequence[sse.Stream]) -> Scrape | None:
        """The scrape after a block: the last counters of a step may follow its last token by some milliseconds."""
        ours = sum(s.n or 0 for s in streams)
        deadline = time.monotonic() + SETTLE_S
        while True:
            after = await self._scrape(client)
            if before is None or after is None:
                return after
            generated = delta(before, after).generated
            if generated is None or generated >= ours or time.monotonic() > deadline:
                return after
            await asyncio.sleep(POLL_S)

    async def _scrape(self, client: Client) -> Scrape | None:
        if self.found is None or self.found.scrape is None:
            return None
        status, text = await client.get("/metrics")
        if status != 200:
            raise BenchError("/metrics stopped answering", on=client.url, seen=f"HTTP {status}")
        return parse_metrics(text, self.found.model)

    def _speculates(self) -> bool:
        if self.found and self.found.engine == "sglang":
            return False  # it counts no drafts: the rules over counters cannot hold there
        if self.target.speculates is not None:
            return self.target.speculates
        return bool(self.found and self.found.scrape and self.found.scrape.speculates())

    def _boot(self) -> str:
        if self.target.boot:
            return self.target.boot
        start = self.found.scrape.value("process_start_time_seconds") if self.found and self.found.scrape else None
        return f"process-{start:.0f}" if start else UNKNOWN_BOOT

    def result(self, *, partial: bool) -> Result:
        """Everything so far as one result."""
        t, found = self.target, self.found
        return Result(
            tool=f"recipectl {__version__}", started=self.started, ended=now(), partial=partial, recipe=t.recipe,
            lane=t.lane, variant=t.variant, resolution=t.resolution, seed=self.seed,
            server=Server(
                url=t.url, model=found.model if found else t.model or "", engine=found.engine if found else None,
                version=found.version if found else None,
                cache_config=found.scrape.cache_config() if found and found.scrape else {},
                speculative=t.speculative, k=t.k, max_num_seqs=t.max_num_seqs,
                lacks=list(found.lacks) if found else [], argv=list(t.argv), log_sha256=rig.digest(t.log),
            ),
            rig=rig.describe(), client={"core": self.cost.core, "late_connections": self.cost.late_connections},
            formulas={**FORMULAS, "aggregate": "tokens of all streams / time, while all streams were live",
                      "acceptance_length": "1 + accepted / drafts, pooled over the block",
                      "emitted_length": "sum(N - 1) / drafts",
                      "step_ms": "1000 x sum(t_last - t_first) / drafts, less those inside the first chunks"},
            measured=[self._measured(p) for p in self.protocols], warnings=self.warnings, notes=t.notes,
        )  # fmt: skip

    def _measured(self, protocol: Protocol) -> Measured:
        mine = [b for p, b in self.blocks if p.digest == protocol.digest]
        cells = [
            measure.cell(name, c, rows, max_num_seqs=self.target.max_num_seqs)
            for name, c in protocol.cells()
            if (rows := [b for b in mine if b.phase == name and b.concurrency == c])
        ]
        return Measured(protocol=protocol, digest=protocol.digest, cells=cells, blocks=mine)

    def write(self, *, partial: bool) -> Result:
        """The result, written to its folder as well."""
        result = self.result(partial=partial)
        with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C must not lose what the first one kept
            self.files.result(result)
        return result


def now() -> str:
    """UTC, to the second, as receipts and results carry it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _window_s(stream: sse.Stream) -> float | None:
    return (stream.chunks[-1].t - stream.chunks[0].t) / stats.NS if len(stream.chunks) > 1 else None
