"""The one bench client: aiohttp streams whose raw reads are stamped, and parsed only after the stream has ended.

Connections are opened before the barrier, the garbage collector is off in the timed part, nothing is parsed or
written while tokens arrive. Everything else about a stream is decided later, in `sse`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from recipectl.bench.sse import RawStream, Read
from recipectl.bench.stats import percentile
from recipectl.errors import BenchError, UsageError

READ_BUFFER = 1 << 20  # the default of 64 KiB has been blamed for collapses at long prompts
PROBE_S = 0.005
TIMER_S = 0.001  # epoll timeouts are rounded up to whole milliseconds, which is no lag of ours


@dataclass
class Cost:
    """What the client itself cost in a timed part: lag of its event loop, share of one core, late connections."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    lags_s: list[float] = field(default_factory=list)
    late_connections: int = 0

    @property
    def core(self) -> float:
        """Share of one core (1.0 is a whole one)."""
        return self.cpu_s / self.wall_s if self.wall_s > 0 else 0.0

    @property
    def lag_p99_s(self) -> float:
        """99th percentile of how late the event loop woke up."""
        return percentile(self.lags_s, 0.99) or 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall_s + other.wall_s, self.cpu_s + other.cpu_s, self.lags_s + other.lags_s,
                    self.late_connections + other.late_connections)  # fmt: skip


class Client:
    """An OpenAI-compatible server at `url`. Use inside `connect`."""

    def __init__(self, session: aiohttp.ClientSession, url: str, timeout_s: float, opened: list[int]) -> None:
        self._session = session
        self.url = url.rstrip("/").removesuffix("/v1")
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=30)
        self._opened = opened  # connections made so far, counted by the trace of `connect`

    async def get(self, path: str) -> tuple[int, str]:
        """Status and text of a GET. BenchError where nothing answers."""
        try:
            async with self._session.get(self.url + path, timeout=aiohttp.ClientTimeout(total=30)) as response:
                return response.status, (await response.read()).decode(errors="replace")
        except (aiohttp.ClientError, TimeoutError) as err:
            raise BenchError("the server does not answer", on=self.url + path, seen=reason(err)) from err

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and JSON object of a POST that is not timed. BenchError where nothing answers."""
        try:
            async with self._session.post(self.url + path, json=body, timeout=self._timeout) as response:
                text = (await response.read()).decode(errors="replace")
                status = response.status
        except (aiohttp.ClientError, TimeoutError) as err:
            raise BenchError("the server does not answer", on=self.url + path, seen=reason(err)) from err
        try:
            data = json.loads(text)
        except ValueError:
            data = None
        return status, data if isinstance(data, dict) else {"text": text[:500]}

    async def wave(self, path: str, bodies: Sequence[dict[str, Any]]) -> tuple[list[RawStream], Cost]:
        """All bodies at once, one connection each, opened before the barrier."""
        return await self._timed(path, [[json.dumps(body).encode()] for body in bodies])

    async def closed_loop(self, path: str, bodies: Sequence[dict[str, Any]], c: int) -> tuple[list[RawStream], Cost]:
        """c workers over the list, each with its next request as soon as one ends. Order of results is by body."""
        lanes = [[json.dumps(body).encode() for body in bodies[i::c]] for i in range(min(c, len(bodies)))]
        rows, cost = await self._timed(path, lanes)
        order = [j for i in range(len(lanes)) for j in range(i, len(bodies), c)]
        return [row for _, row in sorted(zip(order, rows, strict=True), key=lambda pair: pair[0])], cost

    async def _timed(self, path: str, lanes: Sequence[Sequence[bytes]]) -> tuple[list[RawStream], Cost]:
        check_descriptors(len(lanes))
        await self._open(len(lanes))
        barrier = asyncio.Event()
        opened = self._opened[0]
        cost = Cost()
        tasks = [asyncio.ensure_future(self._lane(path, lane, barrier)) for lane in lanes]
        probe = asyncio.ensure_future(_lag_probe(cost.lags_s))
        try:
            with _no_gc():
                await asyncio.sleep(0)  # every task waits at the barrier
                cpu, wall = time.process_time(), time.perf_counter()
                barrier.set()
                rows = await asyncio.gather(*tasks)
                cost.cpu_s, cost.wall_s = time.process_time() - cpu, time.perf_counter() - wall
        finally:
            for task in (*tasks, probe):
                task.cancel()
        cost.late_connections = self._opened[0] - opened
        return [row for lane_rows in rows for row in lane_rows], cost

    async def _lane(self, path: str, lane: Sequence[bytes], barrier: asyncio.Event) -> list[RawStream]:
        await barrier.wait()
        return [await self._stream(path, body) for body in lane]

    async def _stream(self, path: str, body: bytes) -> RawStream:
        reads: list[Read] = []
        status = None
        error = None
        clock = time.perf_counter_ns
        t_request = clock()
        try:
            async with self._session.post(
                self.url + path, data=body, headers={"Content-Type": "application/json"}, timeout=self._timeout
            ) as response:
                status = response.status
                async for data in response.content.iter_any():
                    reads.append((clock(), data))
        except (aiohttp.ClientError, TimeoutError) as err:
            error = reason(err)
        return RawStream(t_request, reads, status, clock(), error)

    async def _open(self, count: int) -> None:
        """Open connections: `count` answers are held until all have come, so each needs its own connection."""
        arrived = 0
        all_here = asyncio.Event()

        async def one() -> None:
            nonlocal arrived
            async with self._session.get(self.url + "/v1/models", timeout=self._timeout) as response:
                arrived += 1
                if arrived == count:
                    all_here.set()
                await all_here.wait()
                await response.read()

        try:
            await asyncio.gather(*(one() for _ in range(count)))
        except (aiohttp.ClientError, TimeoutError) as err:
            raise BenchError(
                f"{count} connections cannot be opened", on=self.url, seen=reason(err), next_step="is the server up?"
            ) from err


@asynccontextmanager
async def connect(url: str, api_key: str | None = None, *, timeout_s: float = 1800) -> AsyncIterator[Client]:
    """A client with its own connection pool. The key goes into a header and nowhere else."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    opened = [0]

    async def counted(*_: object) -> None:
        opened[0] += 1

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(counted)
    connector = aiohttp.TCPConnector(limit=0, limit_per_host=0, keepalive_timeout=60)
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, read_bufsize=READ_BUFFER, trace_configs=[trace], trust_env=False
    ) as session:
        yield Client(session, url, timeout_s, opened)


def check_descriptors(streams: int) -> None:
    """UsageError if the process may not open that many connections; the soft limit is raised where that helps."""
    need = 2 * streams + 64
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= need:
        return
    if hard == resource.RLIM_INFINITY or hard >= need:
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
        return
    raise UsageError(
        "concurrency needs more open files than this process may have", seen=f"limit {hard}",
        expected=f"{need} for {streams} streams", next_step=f"raise it (ulimit -n {need}) or lower --concurrency",
    )  # fmt: skip


def reason(err: BaseException) -> str:
    """An exception as a reader needs it: its kind and what it says."""
    return f"{type(err).__name__}: {err}" if str(err) else type(err).__name__


class _no_gc:
    """Collect first, then keep the collector away from the timed part."""

    def __enter__(self) -> None:
        gc.collect()
        gc.freeze()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        gc.enable()
        gc.unfreeze()


async def _lag_probe(lags: list[float]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + PROBE_S
        await asyncio.sleep(PROBE_S)
        lags.append(max(0.0, loop.time() - due - TIMER_S))
