"""The arithmetic of rates and medians. PURE; seconds and tokens, tokens per second.

Names and formulas stand in docs/bench.md. N is the server's token count of a stream, n_first the tokens of the first
chunk that bears any.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from statistics import median as _median

from recipectl.bench.sse import Stream

NS = 1e9
BUNCHED_NS = 1_000_000


def median(values: Sequence[float | None]) -> float | None:
    """The median of what is known; None where nothing is."""
    known = [v for v in values if v is not None]
    return _median(known) if known else None


def decode_tok_s(stream: Stream) -> float | None:
    """(N - n_first) / (t_last - t_first). None where the tokens came in one read or in lumps: no rate can be told."""
    if not stream.ok or stream.n is None or len(stream.chunks) < 2 or bunched(stream):
        return None
    window = (stream.chunks[-1].t - stream.chunks[0].t) / NS
    later = stream.n - stream.n_first
    return later / window if window > 0 and later > 0 else None


def legacy_tok_s(stream: Stream) -> float | None:
    """(N - 1) / (t_last - t_first): the field's usual formula, equal to ours where n_first is 1."""
    if not stream.ok or stream.n is None or len(stream.chunks) < 2 or bunched(stream):
        return None
    window = (stream.chunks[-1].t - stream.chunks[0].t) / NS
    return (stream.n - 1) / window if window > 0 else None


def wall_tok_s(stream: Stream) -> float | None:
    """N / (t_end - t_request): the not streamed formula; prefill and queueing are inside."""
    if not stream.ok or not stream.n:
        return None
    return stream.n / ((stream.t_end - stream.t_request) / NS)


def ttft_s(stream: Stream) -> float | None:
    """First chunk that bears a token (reasoning included, the role chunk never) minus the request."""
    return (stream.chunks[0].t - stream.t_request) / NS if stream.chunks else None


def first_steps(n_first: int, k: float) -> int:
    """Verify steps whose tokens came inside the first chunk (merged reads): at least this many, since the prefill gives
    one token and a step at most K + 1. They took place before the window from the first chunk to the last."""
    return math.ceil((n_first - 1) / (k + 1)) if n_first > 1 else 0


def steady_window(streams: Sequence[Stream]) -> tuple[float, float] | None:
    """(tokens, seconds) while all streams of a wave were live: last first-token to first last-token.

    Counts at both edges are interpolated between chunks, as SGLang's steady window does. None where they hardly ran
    together (under half of the shortest stream): the rate of a sliver is noise.
    """
    live = [s for s in streams if s.ok and len(s.chunks) > 1 and not bunched(s)]
    if not live or len(live) < len(streams):
        return None
    begin = max(s.chunks[0].t for s in live)
    end = min(s.chunks[-1].t for s in live)
    shortest = min(s.chunks[-1].t - s.chunks[0].t for s in live)
    if end <= begin or end - begin < shortest / 2:
        return None
    return sum(_emitted(s, end) - _emitted(s, begin) for s in live), (end - begin) / NS


def bunched(stream: Stream) -> bool:
    """Whether over half of the tokens after the first chunk came within 1 ms of the chunk before.

    No engine steps that fast: the reader stood still, and the times of such chunks say nothing about the server.
    """
    later = stream.chunks[1:]
    close = sum(c.n or 1 for before, c in zip(stream.chunks, later, strict=False) if c.t - before.t < BUNCHED_NS)
    return 2 * close > sum(c.n or 1 for c in later)


def decode_window(streams: Sequence[Stream]) -> tuple[float, float] | None:
    """(tokens, seconds) from the first first-token to the last last-token: the field's aggregate."""
    live = [s for s in streams if s.ok and s.n is not None and len(s.chunks) > 1]
    if not live:
        return None
    seconds = (max(s.chunks[-1].t for s in live) - min(s.chunks[0].t for s in live)) / NS
    return (float(sum((s.n or 0) - s.n_first for s in live)), seconds) if seconds > 0 else None


def run_window(streams: Sequence[Stream]) -> tuple[float, float] | None:
    """(tokens, seconds) from the first request to the last end: prefill, ramp and drain inside."""
    done = [s for s in streams if s.ok and s.n]
    if not done:
        return None
    seconds = (max(s.t_end for s in streams) - min(s.t_request for s in streams)) / NS
    return (float(sum(s.n or 0 for s in done)), seconds) if seconds > 0 else None


def pooled_rate(windows: Sequence[tuple[float, float] | None]) -> float | None:
    """Tokens of all windows over seconds of all windows. None if any window is missing."""
    if not windows or any(w is None for w in windows):
        return None
    seconds = sum(w[1] for w in windows if w)
    return sum(w[0] for w in windows if w) / seconds if seconds > 0 else None


def _emitted(stream: Stream, t: int) -> float:
    """Tokens that the stream had emitted at `t`, linear between its chunks."""
    times = [c.t for c in stream.chunks]
    counts = _cumulative(stream)
    i = bisect_right(times, t) - 1
    if i < 0:
        return 0.0
    if i + 1 >= len(times):
        return counts[-1]
    share = (t - times[i]) / (times[i + 1] - times[i])
    return counts[i] + share * (counts[i + 1] - counts[i])


def _cumulative(stream: Stream) -> list[float]:
    """Tokens after each chunk; spread evenly where the server does not say how many a chunk bears."""
    if stream.counted == "assumed":
        rest = (stream.n or 1) - 1
        return [1 + rest * i / max(1, len(stream.chunks) - 1) for i in range(len(stream.chunks))]
    out, total = [], 0
    for chunk in stream.chunks:
        total += chunk.n or 0
        out.append(float(total))
    return out


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value below which `share` (0 to 1) of the sorted values lie, by linear interpolation."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def cv(values: Sequence[float]) -> float | None:
    """Coefficient of variation (sample standard deviation over mean); None below two values."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    if mean == 0:
        return None
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1)) / mean
