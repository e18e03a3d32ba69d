"""One wave of streams and its counters become a block; blocks become a cell. PURE."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from recipectl.bench import counting, stats, textprobe, validity
from recipectl.bench.acceptance import Acceptance, Delta, from_requests, of_request
from recipectl.bench.protocol import Phase, Prompt, Protocol, sha256_text
from recipectl.bench.resample import pooled_length
from recipectl.bench.result import Accepted, Block, Cell, Counted, Rates, Request
from recipectl.bench.sse import Stream
from recipectl.recipe.base import Json


@dataclass(frozen=True)
class Sent:
    """A prompt and the stream that answered it."""

    prompt: Prompt
    stream: Stream


def request(sent: Sent, phase: Phase, protocol: Protocol) -> Request:
    """One stream as it stands in the result file."""
    s = sent.stream
    truncated = s.finish_reason == "length"
    count = None
    if phase.count and s.ok:
        c = counting.check(s.text, phase.count.to, truncated=truncated)
        count = Counted(exact=c.exact, reached=c.reached, complete=c.complete, wrong_at=c.wrong_at, seen=c.seen,
                        separator=c.separator)  # fmt: skip
    ids = s.prompt_token_ids
    return Request(
        prompt=sent.prompt.id,
        prompt_sha256=sent.prompt.sha256,
        prompt_token_ids_sha256=hashlib.sha256(json.dumps(ids).encode()).hexdigest() if ids else None,
        text_sha256=sha256_text(s.text),
        failure=s.failure,
        finish_reason=s.finish_reason,
        n=s.n,
        n_first=s.n_first,
        counted=s.counted,
        chunks=len(s.chunks),
        t_request_ns=s.t_request,
        t_first_ns=s.chunks[0].t if s.chunks else None,
        t_last_ns=s.chunks[-1].t if s.chunks else None,
        t_end_ns=s.t_end,
        prompt_tokens=s.prompt_tokens,
        ttft_s=stats.ttft_s(s),
        tok_s=stream_rate(s, protocol),
        spec=dict(s.metrics.get("speculative_decoding") or {}),
        server={k: v for k, v in s.metrics.items() if k != "speculative_decoding"},
        cached_tokens=s.cached_tokens,
        count=count,
        text_problems=textprobe.problems(s.text, truncated=truncated) if s.ok and not phase.count else [],
    )


def stream_rate(stream: Stream, protocol: Protocol) -> float | None:
    """tok/s of one stream by the protocol's formula; output-over-wall is no figure of one stream."""
    match protocol.formula:
        case "after-first-chunk":
            return stats.decode_tok_s(stream)
        case "legacy":
            return stats.legacy_tok_s(stream)
        case "wall":
            return stats.wall_tok_s(stream)
        case _:
            return None


def rates(
    waves: Sequence[Sequence[Stream]], protocol: Protocol, concurrency: int, delta: Delta | None,
    a: Acceptance | None, gauge: Accepted | None,
) -> Rates:  # fmt: skip
    """The figures of one block from its waves, its counters and its acceptance (counted, or a sampled gauge)."""
    streams = [s for wave in waves for s in wave]
    run = stats.pooled_rate([stats.run_window(w) for w in waves])
    if protocol.formula == "output-over-wall":
        tok_s = run / concurrency if run else None
    else:
        tok_s = stats.median([stream_rate(s, protocol) for s in streams])
    done = [s for s in streams if s.ok]
    # D counts the drafts of failed streams too, so a block with one has no emitted length and no step time.
    drafts = a.drafts if a is not None and trimmed(streams, a) is not None else None
    steps: int | None = None  # those between the first chunks and the last
    if a is not None and drafts:
        steps = drafts - sum(stats.first_steps(s.n_first, a.proposed / a.drafts) for s in done)
    elif a is None and gauge is None:  # no speculation: one token a step
        steps = sum((s.n or 0) - s.n_first for s in done)
    seconds = sum(s.chunks[-1].t - s.chunks[0].t for s in done if s.chunks) / stats.NS
    return Rates(
        tok_s=tok_s,
        legacy_tok_s=stats.median([stats.legacy_tok_s(s) for s in streams]),
        aggregate=stats.pooled_rate([stats.steady_window(w) for w in waves]),
        agg_decode=stats.pooled_rate([stats.decode_window(w) for w in waves]),
        agg_run=run,
        ttft_s=stats.median([stats.ttft_s(s) for s in done]),
        acceptance_length=a.length if a else gauge.length if gauge else None,
        emitted_length=sum((s.n or 0) - 1 for s in done) / drafts if drafts else None,
        step_ms=1e3 * seconds / steps if steps and seconds else None,
        server_step_ms=1e3 * delta.step_s if delta and delta.step_s else None,
        server_tok_s=stats.median([_server_rate(s) for s in streams]),
    )


def step_ms_of(r: Request) -> float | None:
    """The step time of one stream, where the server tells its steps."""
    a = of_request(r.spec)
    if a is None or not a.drafts or r.t_first_ns is None or r.t_last_ns is None:
        return None
    later = a.drafts - stats.first_steps(r.n_first, a.proposed / a.drafts)
    return (r.t_last_ns - r.t_first_ns) / 1e6 / later if later > 0 else None


def _server_rate(stream: Stream) -> float | None:
    took = stream.metrics.get("generation_time_ms")
    if not stream.ok or not stream.n or not isinstance(took, (int, float)) or took <= 0:
        return None
    return 1e3 * (stream.n - 1) / took


def accepted(a: Acceptance | None) -> Accepted | None:
    """Acceptance as it stands in the result file."""
    if a is None:
        return None
    return Accepted(
        source=a.source, drafts=a.drafts, proposed=a.proposed, accepted=a.accepted, per_position=list(a.per_position),
        length=a.length, rate=a.rate, positions=list(a.positions), conditional=list(a.conditional),
    )  # fmt: skip


def request_acceptance(streams: Sequence[Stream]) -> Acceptance | None:
    """Acceptance by the requests' own figures, where every stream has them."""
    rows = [r for s in streams if isinstance(r := s.metrics.get("speculative_decoding"), dict)]
    return from_requests(rows) if rows and len(rows) == len(streams) else None


def trimmed(streams: Sequence[Stream], a: Acceptance | None) -> int | None:
    """Tokens of last steps that max_tokens or EOS cut: each stream emits 1 + its steps' tokens, less these.

    None unless every step drafts (the identity does not hold for ngram), which a negative count would show.
    """
    if a is None or not a.drafts or not all(s.ok for s in streams):
        return None
    cut = len(streams) + a.drafts + a.accepted - sum(s.n or 0 for s in streams)
    return cut if cut >= 0 else None


def pooled(blocks: Sequence[Block]) -> Acceptance | None:
    """The counts of several blocks as one; None where no block has counters."""
    counted = [
        Acceptance(a.drafts, a.proposed, a.accepted, tuple(a.per_position), a.source)
        for b in blocks
        if (a := b.acceptance) is not None and a.source != "gauge"
    ]
    return reduce(add, counted) if counted else None


def _with_interval(a: Accepted | None, blocks: Sequence[Block]) -> Accepted | None:
    """The length with its interval, where the server tells each request's drafts.

    Prompts are the clusters: a greedy server answers one prompt alike in every round.
    """
    rows: dict[str, tuple[int, int]] = {}
    for r in (r for b in blocks for r in b.requests):
        if one := of_request(r.spec):
            drafts, got = rows.get(r.prompt_sha256, (0, 0))
            rows[r.prompt_sha256] = drafts + one.drafts, got + one.accepted
    found = pooled_length(list(rows.values()))
    return a.model_copy(update={"low": found.low, "high": found.high}) if a and found else a


def _sampled(blocks: Sequence[Block]) -> Accepted | None:
    """The median gauge of the blocks, where that is all there is."""
    gauges = [a for b in blocks if (a := b.acceptance) is not None and a.source == "gauge"]
    if not gauges:
        return None
    return gauges[0].model_copy(update={"length": stats.median([g.length for g in gauges]),
                                        "rate": stats.median([g.rate for g in gauges])})  # fmt: skip


def cell(phase_name: str, concurrency: int, blocks: Sequence[Block], *, max_num_seqs: int | None) -> Cell:
    """Medians over the valid rounds of one cell; acceptance pooled over them."""
    valid = [b for b in blocks if b.valid]
    total = pooled(valid)
    middle = {name: stats.median([getattr(b.rates, name) for b in valid]) for name in Rates.model_fields}
    if total is not None:
        middle["acceptance_length"] = total.length
    speeds = [b.rates.tok_s for b in valid if b.rates.tok_s is not None]
    counts = [r.count for b in blocks for r in b.requests if r.count]
    wrong = next((c for c in counts if not c.exact), None)
    return Cell(
        phase=phase_name,
        concurrency=concurrency,
        rounds=len(valid),
        void_rounds=len(blocks) - len(valid),
        failed_streams=sum(r.failure is not None for b in blocks for r in b.requests),
        rates=Rates(**middle),
        acceptance=_with_interval(accepted(total), valid) or _sampled(valid),
        cv_tok_s=stats.cv(speeds),
        queueing=max_num_seqs is not None and concurrency > max_num_seqs,
        count=None if not counts else f"number {wrong.wrong_at} is {wrong.seen!r}" if wrong else "exact",
    )


def block(
    *,
    sent: Sequence[Sequence[Sent]],
    protocol: Protocol,
    phase_name: str,
    concurrency: int,
    round_: int,
    boot: str,
    arm: str | None,
    started: str,
    delta: Delta | None,
    seen: validity.Seen,
    gauge: Accepted | None,
    client: dict[str, Json],
) -> Block:
    """A whole block of the result file from what was sent and what was seen.

    Acceptance comes from the counters; where the server exposes none, from the requests themselves, else the gauge.
    """
    phase = protocol.phases[phase_name]
    flat = [s for wave in sent for s in wave]
    streams = [s.stream for s in flat]
    a = (delta.acceptance if delta else None) or (None if delta else seen.request_acceptance)
    return Block(
        phase=phase_name,
        concurrency=concurrency,
        round=round_,
        boot=boot,
        arm=arm,
        started=started,
        void=validity.void(seen),
        warnings=validity.warnings(seen),
        requests=[request(s, phase, protocol) for s in flat],
        acceptance=accepted(a) or gauge,
        acceptance_by_engine={e: x for e, v in (delta.per_engine if delta else {}).items() if (x := accepted(v))},
        request_acceptance=accepted(seen.request_acceptance),
        prefix_hits=delta.prefix_hits if delta else None,
        trimmed=trimmed(streams, a),
        rates=rates([[s.stream for s in wave] for wave in sent], protocol, concurrency, delta, a, gauge),
        client=client,
        clocks=dict(seen.clocks),
    )
