"""A cell in the shape that `vllm bench serve --save-detailed` writes, for tools that read it. PURE."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import mean, pstdev
from typing import Any

from recipectl.bench.protocol import sha256_text
from recipectl.bench.result import Block, Measured, Request, Result
from recipectl.bench.stats import NS, percentile

NOTE = (
    "exported by recipectl: ttfts start at the request and end at the first token (vLLM: at the role chunk); itls are "
    "gaps between chunks, that is verify steps, as in vLLM; counts are the server's"
)


def vllm(result: Result, chunks: Sequence[Mapping[str, Any]] = ()) -> dict[str, dict[str, Any]]:
    """One flat object per cell, by a file name in vLLM's manner. Void blocks are left out.

    `chunks` are the rows of chunks.jsonl, for the gaps between chunks.
    """
    times = {
        (r["protocol"], r["phase"], r["c"], r["round"], r["t_request"]): [t for t, _ in r["chunks"]] for r in chunks
    }
    out = {}
    for m in result.measured:
        for cell in m.cells:
            blocks = [b for b in m.blocks if b.valid and (b.phase, b.concurrency) == (cell.phase, cell.concurrency)]
            if blocks:
                stamp = _date(result.started)
                name = (
                    f"{m.protocol.name}-{cell.phase}-infqps-concurrency{cell.concurrency}-{result.server.model}-{stamp}"
                )
                out[f"{name.replace('/', '_')}.json"] = _cell(result, m, cell.concurrency, blocks, times)
    return out


Times = Mapping[tuple[Any, ...], Sequence[int]]  # of the chunks of a stream, by (protocol, phase, c, round, start)


def _cell(result: Result, m: Measured, c: int, blocks: Sequence[Block], times: Times) -> dict[str, Any]:
    sent = [r for b in blocks for r in b.requests]
    itls = [
        [(y - x) / NS for x, y in pairwise(times.get((m.protocol.name, b.phase, c, b.round, r.t_request_ns), ()))]
        for b in blocks
        for r in b.requests
    ]
    done = [r for r in sent if not r.failure and r.n]
    seconds = sum(_duration(b) for b in blocks)
    tokens, asked = sum(r.n or 0 for r in done), sum(r.prompt_tokens or 0 for r in done)
    setup = {
        "date": _date(result.started), "endpoint_type": f"openai-{m.protocol.endpoint}", "backend": "recipectl",
        "label": m.protocol.name, "model_id": result.server.model, "tokenizer_id": None, "num_prompts": len(sent),
        "request_rate": "inf", "burstiness": 1.0, "max_concurrency": c, "protocol_digest": m.digest,
        "prompts_sha256": sha256_text(" ".join(r.prompt_sha256 for r in sent)), "note": NOTE,
    }  # fmt: skip
    totals = {
        "duration": seconds, "completed": len(done), "failed": len(sent) - len(done),
        "total_input_tokens": asked, "total_output_tokens": tokens,
        "request_throughput": len(done) / seconds if seconds else None, "request_goodput": None,
        "output_throughput": tokens / seconds if seconds else None,
        "total_token_throughput": (asked + tokens) / seconds if seconds else None,
    }  # fmt: skip
    timed: dict[str, Callable[[Request], float | None]] = {"ttft": lambda r: r.ttft_s, "tpot": _tpot, "e2el": _e2el}
    spread = {k: v for name, of in timed.items() for k, v in _spread(name, [of(r) for r in done]).items()}
    gaps = _spread("itl", [gap for r, row in zip(sent, itls, strict=True) if not r.failure for gap in row])
    arrays = {
        "input_lens": [r.prompt_tokens or 0 for r in sent], "output_lens": [r.n or 0 for r in sent],
        "ttfts": [r.ttft_s or 0.0 for r in sent], "itls": itls,
        "latencies": [_e2el(r) or 0.0 for r in sent], "start_times": [r.t_request_ns / NS for r in sent],
        "errors": [r.failure or "" for r in sent],
    }  # fmt: skip
    return {**setup, **totals, **spread, **gaps, **_speculation(blocks), **arrays}


def _speculation(blocks: Sequence[Block]) -> dict[str, Any]:
    from recipectl.bench.measure import pooled

    a = pooled(blocks)
    if a is None or not a.drafts:
        return {}
    return {
        "spec_decode_acceptance_rate": 100 * (a.rate or 0), "spec_decode_acceptance_length": a.length,
        "spec_decode_num_drafts": a.drafts, "spec_decode_draft_tokens": a.proposed,
        "spec_decode_accepted_tokens": a.accepted, "spec_decode_per_position_acceptance_rates": list(a.positions),
    }  # fmt: skip


def _spread(name: str, values: Sequence[float | None]) -> dict[str, float]:
    """mean, median, std and p99 in milliseconds."""
    known = [1e3 * v for v in values if v is not None]
    if not known:
        return {}
    return {f"mean_{name}_ms": mean(known), f"median_{name}_ms": percentile(known, 0.5) or 0.0,
            f"std_{name}_ms": pstdev(known), f"p99_{name}_ms": percentile(known, 0.99) or 0.0}  # fmt: skip


def _tpot(r: Request) -> float | None:
    """(E2EL - TTFT) / (N - 1), vLLM's definition."""
    whole = _e2el(r)
    return (whole - r.ttft_s) / (r.n - 1) if whole and r.ttft_s and r.n and r.n > 1 else None


def _e2el(r: Request) -> float | None:
    end = r.t_last_ns or r.t_end_ns
    return (end - r.t_request_ns) / NS


def _duration(b: Block) -> float:
    return (max(r.t_end_ns for r in b.requests) - min(r.t_request_ns for r in b.requests)) / NS


def _date(utc: str) -> str:
    return utc.replace("-", "").replace(":", "").replace("T", "-").removesuffix("Z")
