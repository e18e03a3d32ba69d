"""What a server is, before it is measured: its model, its version, what it understands and what it lacks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from recipectl.bench import sse
from recipectl.bench.acceptance import Scrape, parse_metrics
from recipectl.bench.body import OPTIONAL, PATHS, Dialect, body
from recipectl.bench.client import Client
from recipectl.bench.protocol import Protocol
from recipectl.errors import BenchError, UsageError


@dataclass(frozen=True)
class Found:
    """`dialect` is what to send; `lacks` what the server does not offer and what that costs; `scrape` its metrics."""

    model: str
    engine: str | None
    version: str | None
    dialect: Dialect
    lacks: tuple[str, ...]
    scrape: Scrape | None


async def discover(client: Client, model: str | None, protocol: Protocol) -> Found:
    """Ask the server. UsageError for a model that it does not serve, BenchError where it cannot be benched at all."""
    model = await served_model(client, model)
    scrape, lacks = await _metrics(client, model)
    engine, version = await _engine(client, scrape)
    dialect, dialect_lacks = await _dialect(client, model, protocol)
    return Found(model, engine, version, dialect, (*lacks, *dialect_lacks), scrape)


async def served_model(client: Client, wanted: str | None) -> str:
    """The served name: the one asked for, or the only one there."""
    status, text = await client.get("/v1/models")
    try:
        data = json.loads(text) if status == 200 else {}
        served = [str(row["id"]) for row in data.get("data", [])]
    except (ValueError, KeyError, TypeError, AttributeError):
        served = []
    if status == 401:
        raise UsageError("the server wants an API key", on=client.url, next_step="set RECIPECTL_API_KEY")
    if wanted and served and wanted not in served:
        raise UsageError("the server does not serve this model", on=client.url, seen=wanted,
                         expected=" or ".join(served), next_step=f"--model {served[0]}")  # fmt: skip
    if wanted:
        return wanted
    if len(served) != 1:
        raise UsageError("which model is meant?", on=client.url, seen=", ".join(served) or "no list of models",
                         next_step="add --model NAME")  # fmt: skip
    return served[0]


async def _metrics(client: Client, model: str) -> tuple[Scrape | None, list[str]]:
    status, text = await client.get("/metrics")
    if status != 200:
        return None, [f"/metrics answers HTTP {status}: no acceptance, no validity rules of the server"]
    return parse_metrics(text, model), []


async def _engine(client: Client, scrape: Scrape | None) -> tuple[str | None, str | None]:
    names = scrape.samples if scrape else {}
    engine = next((e for e in ("vllm", "sglang") if any(n.startswith(f"{e}:") for n in names)), None)
    status, text = await client.get("/version")
    try:
        version = json.loads(text).get("version") if status == 200 else None
    except (ValueError, AttributeError):
        version = None
    return engine, str(version) if version else None


async def _dialect(client: Client, model: str, protocol: Protocol) -> tuple[Dialect, list[str]]:
    """Send a tiny request with every optional field; on HTTP 400 or 422 give one up after the other."""
    dialect = Dialect()
    lacks: list[str] = []
    left = list(OPTIONAL)
    while True:
        (raw,), _ = await client.wave(PATHS[protocol.endpoint], [_tiny(protocol, model, dialect)])
        if raw.status not in (400, 422):
            break
        if not left:
            text = b"".join(d for _, d in raw.reads)[:300].decode(errors="replace")
            raise BenchError("the server refuses every form of the request", on=client.url, seen=text)
        blamed = next((name for name in left if name == _blamed(raw)), left[0])
        left.remove(blamed)
        dialect = dialect.drop(blamed)
        lacks.append(f"{blamed}: refused; {OPTIONAL[blamed]}")
    stream = sse.parse(raw) if protocol.transport == "stream" else sse.parse_whole(raw)
    if raw.status == 404:
        raise UsageError("the server does not know the model or the path", on=client.url, seen=stream.failure)
    if protocol.transport == "stream" and stream.ok and stream.counted != "token_ids":
        lost = "return_token_ids" if stream.counted == "usage" else "continuous_usage"
        lacks.append(f"{lost}: ignored; {OPTIONAL[lost]}")
    if "speculative_decoding" not in stream.metrics:
        lacks.append("per-request speculation metrics (--per-request-spec-decode-metrics): counters only")
    return dialect, lacks


def _tiny(protocol: Protocol, model: str, dialect: Dialect) -> dict[str, Any]:
    request = body(protocol, "Say hello.", model, dialect, salt="probe", seed=None, max_tokens=4)
    request.pop("ignore_eos", None)
    return request


def _blamed(raw: sse.RawStream) -> str | None:
    """The optional field that the refusal names."""
    text = b"".join(d for _, d in raw.reads).decode(errors="replace")
    spelled = {"continuous_usage_stats": "continuous_usage", **{name: name for name in OPTIONAL}}
    return next((field for name, field in spelled.items() if name in text), None)
