"""The self-test: this client, on this machine, against a server whose token times are known (`mock`).

Every figure that a bench prints has a true value here. Limits are those of docs/bench.md: decode windows within 0.2 %
up to 16 streams and 1 % beyond, under 60 % of one core, under 300 MB.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from recipectl.bench import body as bodies
from recipectl.bench import measure, sse, stats
from recipectl.bench.acceptance import Acceptance, delta, parse_metrics
from recipectl.bench.client import Client, Cost, connect
from recipectl.bench.mock import RATES, Config
from recipectl.bench.report import table
from recipectl.errors import BenchError

DEFAULT = (1, 4, 16)
WINDOW_S = 2.4
TIGHT, LOOSE, TIGHT_UP_TO = 0.002, 0.01, 16
CORE, MEMORY_MB = 0.60, 300
PROMPT = "Say something."
# Fault -> what the client must say about it; None: the stream is whole all the same.
FAULTS: dict[str, str | None] = {
    "error": "the server sent an error", "die": "Client", "http500": "HTTP 500", "no-usage": "without usage",
    "no-done": "without [DONE]", "no-finish": "without finish_reason", "zero": "0 tokens", "empty": None,
    "merge": None, "plain": None,
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """Errors at one concurrency, as shares of the true value; `window` are per stream."""

    concurrency: int
    window_median: float
    window_worst: float
    aggregate: float
    tok_s: float
    ttft_late_ms: float
    tokens_exact: bool
    acceptance_exact: bool
    core: float
    lag_p99_ms: float
    memory_mb: float
    server_core: float

    @property
    def limit(self) -> float:
        """The largest window error that is accepted here."""
        return TIGHT if self.concurrency <= TIGHT_UP_TO else LOOSE

    def failures(self) -> list[str]:
        """What is not reached."""
        seen = {
            f"median window error {100 * self.window_median:.3f} %": self.window_median <= self.limit,
            f"aggregate error {100 * self.aggregate:.3f} %": self.aggregate <= self.limit,
            "token counts": self.tokens_exact,
            "acceptance counts": self.acceptance_exact,
            f"client at {100 * self.core:.0f} % of a core": self.core <= CORE,
            f"memory {self.memory_mb:.0f} MB": self.memory_mb <= MEMORY_MB,
        }
        return [f"c={self.concurrency}: {text}" for text, good in seen.items() if not good]


@dataclass(frozen=True)
class Report:
    """All rows, and what the client made of every fault."""

    rows: list[Row]
    faults: dict[str, str]
    failures: list[str]

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def run(concurrency: Sequence[int] = DEFAULT, *, step_s: float = 0.02) -> Report:
    """Measure the client. BenchError where the mock server does not start."""
    with mock_server(Config(step_s=step_s)) as url:
        rows, faults = asyncio.run(_measure(url, concurrency, step_s))
    failures = [f for row in rows for f in row.failures()]
    failures += [f"fault {name}: {seen}" for name, seen in faults.items() if not _as_expected(name, seen)]
    return Report(rows, faults, failures)


def lines(report: Report) -> list[str]:
    """The report as text."""
    head = ("c", "window err", "worst", "aggregate err", "tok/s err", "ttft late", "tokens", "acceptance", "core",
            "lag p99", "memory", "server core")  # fmt: skip
    rows = [
        [str(r.concurrency), f"{100 * r.window_median:.3f} %", f"{100 * r.window_worst:.3f} %",
         f"{100 * r.aggregate:.3f} %", f"{100 * r.tok_s:.3f} %", f"{r.ttft_late_ms:.2f} ms",
         "exact" if r.tokens_exact else "WRONG", "exact" if r.acceptance_exact else "WRONG", f"{100 * r.core:.0f} %",
         f"{r.lag_p99_ms:.1f} ms", f"{r.memory_mb:.0f} MB", f"{100 * r.server_core:.0f} %"]
        for r in report.rows
    ]  # fmt: skip
    out = [*table(head, rows), ""]
    out += [f"fault {name}: {seen}" for name, seen in report.faults.items()]
    return [
        *out,
        *(f"NOT REACHED {f}" for f in report.failures),
        "self-test " + ("FAILED" if report.failures else "passed"),
    ]


@contextmanager
def mock_server(config: Config) -> Iterator[str]:
    """The mock in a process of its own: in ours it would share the event loop that is measured."""
    argv = [sys.executable, "-m", "recipectl.bench.mockhttp", "--config", json.dumps(asdict(config))]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            if not port:
                raise BenchError("the mock server does not start", seen=f"exit code {process.wait(5)}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


async def _measure(url: str, concurrency: Sequence[int], step_s: float) -> tuple[list[Row], dict[str, str]]:
    async with connect(url) as client:
        rows = [await _row(client, c, step_s) for c in concurrency]
        return rows, {name: await _fault(client, name) for name in FAULTS}


async def _row(client: Client, c: int, step_s: float) -> Row:
    tokens = round(WINDOW_S / step_s * (1 + sum(RATES)))
    before = parse_metrics((await client.get("/metrics"))[1])
    cpu, began = await _server_cpu(client), time.monotonic()
    sent = [_body(f"{PROMPT} {i}", tokens, f"row-{c}-{i}") for i in range(c)]
    raw, cost = await client.wave(bodies.PATHS["chat"], sent)
    server = (await _server_cpu(client) - cpu) / (time.monotonic() - began)
    after = parse_metrics((await client.get("/metrics"))[1])
    streams = [sse.parse(r) for r in raw]
    truth = await _truth(client)
    return _compare(c, streams, [truth[b["cache_salt"]] for b in sent], delta(before, after).acceptance, cost, server)


def _compare(
    c: int, streams: Sequence[sse.Stream], truth: Sequence[Mapping[str, Any]], counted: Acceptance | None, cost: Cost,
    server: float,
) -> Row:  # fmt: skip
    errors, rates, late = [], [], []
    for s, t in zip(streams, truth, strict=True):
        if not s.ok:
            raise BenchError("a stream of the self-test failed", seen=s.failure)
        seen, true = s.chunks[-1].t - s.chunks[0].t, t["t_last"] - t["t_first"]
        errors.append(abs(seen / true - 1))
        rates.append(abs((stats.decode_tok_s(s) or 0) / ((t["n"] - 1) / true * 1e9) - 1))
        late.append((s.chunks[0].t - t["t_first"]) / 1e6)
    window = stats.decode_window(streams)
    true_s = (max(t["t_last"] for t in truth) - min(t["t_first"] for t in truth)) / 1e9
    true_tokens = sum(t["n"] - 1 for t in truth)
    aggregate = abs(window[0] / window[1] / (true_tokens / true_s) - 1) if window else 1.0
    mine = measure.request_acceptance(streams)
    same = mine is not None and counted is not None and (mine.drafts, mine.accepted, mine.per_position) == (
        counted.drafts, counted.accepted, counted.per_position)  # fmt: skip
    return Row(
        c, median(errors), max(errors), aggregate, median(rates), median(late),
        all(s.n == t["n"] and s.counted == "token_ids" for s, t in zip(streams, truth, strict=True)),
        same, cost.core, 1e3 * cost.lag_p99_s, _memory_mb(), server,
    )  # fmt: skip


async def _fault(client: Client, name: str) -> str:
    """What the client says of a faulty stream that runs beside a healthy one."""
    sent = [_body(f"[[{name}]] {PROMPT}", 40, f"fault-{name}"), _body(PROMPT, 40, f"healthy-{name}")]
    raw, _ = await client.wave(bodies.PATHS["chat"], sent)
    faulty, healthy = (sse.parse(r) for r in raw)
    if not healthy.ok:
        return f"the healthy stream beside it failed: {healthy.failure}"
    return faulty.failure or f"whole, {faulty.n} tokens ({faulty.counted})"


def _as_expected(name: str, seen: str) -> bool:
    wanted = FAULTS[name]
    return wanted in seen if wanted else seen.startswith("whole, 40 tokens")


def _body(prompt: str, tokens: int, salt: str) -> dict[str, Any]:
    return {
        "model": "mock", "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True}, "return_token_ids": True,
        "cache_salt": salt,
    }  # fmt: skip


async def _truth(client: Client) -> dict[str, dict[str, Any]]:
    data = json.loads((await client.get("/truth"))[1])
    return {t["salt"]: t for t in data["streams"]}


async def _server_cpu(client: Client) -> float:
    return float(json.loads((await client.get("/truth"))[1])["cpu_s"])


def _memory_mb() -> float:
    """Peak resident memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
