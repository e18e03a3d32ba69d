"""From streams and counters to the figures of a block, by arithmetic that stands in the test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recipectl.bench import measure, protocol, sse, stats
from recipectl.bench.acceptance import Acceptance, delta, parse_metrics
from recipectl.bench.result import Block, Rates, Request
from recipectl.bench.sse import Stream
from tests.bench.conftest import recorded, text_of
from tests.bench.test_stats import stream

PROSE = protocol.load("prose")


def rates(streams: list[Stream], a: Acceptance | None) -> Rates:
    return measure.rates([streams], PROSE, len(streams), None, a, None)


def test_tok_s_is_emitted_length_over_step_time() -> None:
    # 1 token, then 4 steps of 2 s with 4, 4, 4 and 2 tokens: N = 15. The engine accepted 3 a step, in the last one too,
    # of which max_tokens cut 2. Length 1 + 12/4 = 4; emitted (15 - 1)/4 = 3.5; step 8 s / 4; 3.5 / 2 s = 1.75 tok/s.
    s = stream([(1, 1), (3, 4), (5, 4), (7, 4), (9, 2)])
    a = Acceptance(4, 28, 12)
    r = rates([s], a)
    assert (r.acceptance_length, r.emitted_length, r.step_ms, r.tok_s) == (4.0, 3.5, 2000.0, 1.75)
    assert measure.trimmed([s], a) == 2
    assert r.tok_s == pytest.approx(1e3 * (r.emitted_length or 0) / (r.step_ms or 1))


def test_steps_inside_a_merged_first_chunk_lie_before_the_window() -> None:
    # The same four steps, the first of them read together with the prefill's token: 5 tokens in the first chunk. Three
    # steps of 2 s lie in the window, so the step is 2 s, not 6 s / 4. The drafts of all four count for the length.
    s = stream([(3, 5), (5, 4), (7, 4), (9, 4)])
    r = rates([s], Acceptance(4, 28, 12))
    assert (s.n_first, r.acceptance_length, r.emitted_length, r.step_ms) == (5, 4.0, 4.0, 2000.0)
    # K 7: a first chunk of 9 tokens holds at least one step (1 + 8), one of 10 at least two.
    assert [stats.first_steps(n, 7) for n in (0, 1, 2, 9, 10, 17, 18)] == [0, 0, 1, 1, 2, 2, 3]


def test_a_stream_that_was_not_streamed_has_no_step_time_but_an_emitted_length() -> None:
    # 41 tokens, the first by the prefill: 40 over 10 steps.
    whole = Stream(0, 10**9, (), 41, 0, "usage", None, "length", "")
    r = measure.rates([[whole]], protocol.load("ebfio-wall"), 1, None, Acceptance(10, 70, 30), None)
    assert (r.tok_s, r.emitted_length, r.step_ms, r.aggregate) == (41.0, 4.0, None, None)


def test_without_speculation_a_step_is_a_token() -> None:
    r = rates([stream([(0, 1), (1, 1), (2, 1), (3, 1)])], None)
    assert (r.step_ms, r.tok_s, r.emitted_length) == (1000.0, 1.0, None)


def test_a_failed_stream_takes_step_time_and_emitted_length_with_it() -> None:
    good, broken = stream([(3, 1), (4, 4)]), stream([(1, 1), (2, 4)], failure="broken")
    r = rates([good, broken], Acceptance(2, 14, 6))
    assert (r.step_ms, r.emitted_length, r.acceptance_length, r.tok_s, r.ttft_s) == (None, None, 4.0, 4.0, 3.0)


def test_steps_without_a_draft_leave_no_step_time() -> None:
    # ngram: 10 tokens after the first, but only 2 drafts with 2 accepted, so 6 steps drafted nothing and are not in D.
    s = stream([(0, 1), *((t, 1) for t in range(1, 11))])
    a = Acceptance(2, 14, 2)
    assert measure.trimmed([s], a) is None and rates([s], a).step_ms is None


def test_the_recording_of_two_api_servers() -> None:
    # bench.md 1.3: 60 = 61 - 1 and 61 = 61 - 0, K 4, 12 steps each, everything accepted: one token was trimmed.
    streams = [sse.parse(recorded(f"two-api-sse_b{i}.jsonl")) for i in (4, 5)]
    found = delta(*(parse_metrics(text_of(f"two-api-metrics_{edge}.prom"), "smol") for edge in ("before", "after")))
    assert measure.trimmed(streams, found.acceptance) == 1
    r = rates(streams, found.acceptance)
    assert r.acceptance_length == 5.0
    assert r.emitted_length == pytest.approx((59 + 60) / 24)


def test_a_block_that_counts_per_request_agrees_with_its_streams() -> None:
    # The recorded stream's own figures: 14 steps, 98 accepted; 120 = 1 + 14 + 98 + 12 steps without a draft - 5 cut.
    s = sse.parse(recorded("ngram-sse_chat_continuous_usage_token_ids.jsonl"))
    assert measure.request_acceptance([s]) == Acceptance(14, 98, 98, (14,) * 7, "requests")
    assert measure.request_acceptance([s, replace(s, metrics={})]) is None, "half of the streams say nothing of a block"


def test_cells_pool_acceptance_and_take_medians_of_the_rest() -> None:
    def block(tok_s: float, drafts: int, accepted: int, void: list[str]) -> Block:
        request = Request(prompt="p", prompt_sha256="0" * 64, text_sha256="0" * 64, counted="token_ids",
                          t_request_ns=0, t_end_ns=1)  # fmt: skip
        rates = Rates(tok_s=tok_s, acceptance_length=1 + accepted / drafts)
        return Block(phase="prose", concurrency=1, round=0, boot="b", started="s", void=void, requests=[request],
                     acceptance=measure.accepted(Acceptance(drafts, 7 * drafts, accepted)), rates=rates)  # fmt: skip

    # Valid rounds: lengths 2.0 over 100 drafts and 4.0 over 300; pooled 1 + (100 + 900) / 400 = 3.5, their mean is 3.
    blocks = [block(10, 100, 100, []), block(30, 300, 900, []), block(99, 100, 700, ["foreign: x"])]
    cell = measure.cell("prose", 1, blocks, max_num_seqs=None)
    assert (cell.rounds, cell.void_rounds, cell.rates.tok_s, cell.rates.acceptance_length) == (2, 1, 20.0, 3.5)
    # Sample standard deviation of 10 and 30 is 14.142; over the mean of 20.
    assert cell.cv_tok_s == pytest.approx(0.70711, abs=1e-5)


def test_the_length_of_a_cell_has_an_interval_over_its_prompts() -> None:
    # The four rows of the first seed as four prompts in two rounds of equal answers: the interval is that of four
    # witnesses (1.5718, sd .056, half width about .089), not of eight.
    rows = ((333, 179), (325, 187), (310, 202), (335, 177))

    def block(round_: int) -> Block:
        sent = [
            Request(prompt=f"p{i}", prompt_sha256=f"{i}" * 64, text_sha256="0" * 64, counted="token_ids",
                    t_request_ns=0, t_end_ns=1,
                    spec={"num_spec_steps": d, "num_draft_tokens": 7 * d, "num_accepted_draft_tokens": a})
            for i, (d, a) in enumerate(rows)
        ]  # fmt: skip
        total = measure.accepted(Acceptance(1303, 5212, 745))
        return Block(phase="gate", concurrency=1, round=round_, boot="b", started="s", requests=sent, acceptance=total,
                     rates=Rates())  # fmt: skip

    a = measure.cell("gate", 1, [block(0), block(1)], max_num_seqs=None).acceptance
    assert a is not None and a.low is not None and a.high is not None
    assert (a.drafts, a.length) == (2606, pytest.approx(1.5718, abs=5e-5))
    assert ((a.high - a.low) / 2, (a.high + a.low) / 2) == (pytest.approx(0.089, abs=0.005), pytest.approx(a.length))
    one = measure.cell("gate", 1, [block(0).model_copy(update={"requests": block(0).requests[:1]})], max_num_seqs=None)
    assert one.acceptance is not None and one.acceptance.low is None, "one prompt is no sample"
