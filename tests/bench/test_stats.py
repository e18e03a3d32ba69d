"""Rates by arithmetic that stands in the test."""

from __future__ import annotations

import pytest

from recipectl.bench import stats
from recipectl.bench.sse import Chunk, Stream


def stream(chunks: list[tuple[float, int]], t0: float = 0.0, *, failure: str | None = None) -> Stream:
    """(seconds, tokens) of each chunk."""
    made = tuple(Chunk(round(t * 1e9), n, "x") for t, n in chunks)
    n = sum(n for _, n in chunks)
    return Stream(round(t0 * 1e9), made[-1].t, made, n, chunks[0][1], "token_ids", failure, "length", "")


def test_rate_leaves_the_first_chunk_out_whatever_it_holds() -> None:
    # 3 tokens in the first chunk: 12 - 3 = 9 tokens in 3 s. The field's formula would say 11 / 3.
    s = stream([(1, 3), (2, 4), (4, 5)])
    assert stats.decode_tok_s(s) == 3.0
    assert stats.legacy_tok_s(s) == pytest.approx(11 / 3)
    assert stats.wall_tok_s(s) == 3.0  # 12 tokens in 4 s since the request


def test_one_chunk_has_no_rate() -> None:
    assert stats.decode_tok_s(stream([(1, 8)])) is None


def test_steady_window_counts_only_while_all_live() -> None:
    # A emits 1 token a second from 0 to 10, B 2 a second from 4 to 8: the window is 4..8, 4 + 8 tokens in 4 s.
    a = stream([(t, 1) for t in range(11)])
    b = stream([(4, 2), (5, 2), (6, 2), (7, 2), (8, 2)])
    assert stats.steady_window([a, b]) == (12.0, 4.0)
    # First token to last token over both: 10 tokens after A's first, 8 after B's first chunk, in 10 s.
    assert stats.decode_window([a, b]) == (18.0, 10.0)
    assert stats.run_window([a, b]) == (21.0, 10.0)


def test_steady_window_interpolates_between_chunks() -> None:
    # A emits 8 tokens every 2 s; the window of B cuts its chunks in the middle: 1 s of 4 tok/s on either side.
    a = stream([(0, 1), (2, 8), (4, 8), (6, 8)])
    b = stream([(1, 1), (5, 1)])
    tokens, seconds = stats.steady_window([a, b]) or (0, 0)
    assert (tokens, seconds) == (pytest.approx(16 + 1), 4.0)


def test_no_steady_window_without_overlap_or_with_a_failed_stream() -> None:
    a, b = stream([(0, 1), (1, 1)]), stream([(2, 1), (3, 1)])
    assert stats.steady_window([a, b]) is None
    assert stats.steady_window([a, stream([(0, 1), (1, 1)], failure="broken")]) is None


def test_no_steady_window_from_a_sliver_of_overlap() -> None:
    # 0.4 s of overlap of two streams of 1 s: under half, so no rate of both together can be told.
    a, b = stream([(0, 1), (1, 8)]), stream([(0.6, 1), (1.6, 8)])
    assert stats.steady_window([a, b]) is None
    assert stats.steady_window([a, stream([(0.5, 1), (1.5, 8)])]) is not None


def test_a_stream_read_in_lumps_has_no_rate() -> None:
    # Of the 32 tokens after the first chunk, 24 came 0.1 ms after the chunk before; of the other's, 16.
    lumps = stream([(0, 1), (1, 8), (1.0001, 8), (1.0002, 8), (1.0003, 8)])
    assert stats.bunched(lumps) and stats.decode_tok_s(lumps) is None and stats.legacy_tok_s(lumps) is None
    assert stats.steady_window([lumps]) is None
    assert not stats.bunched(stream([(0, 1), (1, 8), (1.0001, 8), (2, 8), (2.0001, 8)]))
    assert not stats.bunched(stream([(0, 1)]))


def test_pooled_rate_weighs_by_time_and_needs_every_window() -> None:
    assert stats.pooled_rate([(10.0, 1.0), (10.0, 4.0)]) == 4.0
    assert stats.pooled_rate([(10.0, 1.0), None]) is None
    assert stats.pooled_rate([]) is None


def test_median_percentile_cv() -> None:
    assert stats.median([3.0, None, 1.0, 2.0]) == 2.0
    assert stats.median([None]) is None
    assert stats.percentile([1, 2, 3, 4, 5], 0.5) == 3
    assert stats.percentile([1, 2], 0.25) == 1.25
    assert stats.cv([9.0, 10.0, 11.0]) == pytest.approx(0.1)
    assert stats.cv([1.0]) is None
