"""Counter deltas of real scrapes, published tables, and what must never become a number."""

from __future__ import annotations

import json

import pytest

from recipectl.bench.acceptance import Acceptance, Delta, delta, from_requests, parse_metrics
from recipectl.errors import BenchError
from tests.bench.conftest import DATA, text_of


def between(before: str, after: str, model: str | None = "smol") -> Delta:
    return delta(parse_metrics(text_of(before), model), parse_metrics(text_of(after), model))


def test_the_published_e_drafter_row() -> None:
    # 0.744+0.545+0.405+0.306+0.237+0.185+0.147 = 2.569 against a published 3.568.
    rates = (744, 545, 405, 306, 237, 185, 147)
    a = Acceptance(1000, 7000, sum(rates), rates)
    assert a.length == pytest.approx(3.569)
    assert a.rate == pytest.approx(2.569 / 7)
    assert a.conditional[1] == pytest.approx(545 / 744)


def test_seed_zero_pooled_against_mean_of_rows() -> None:
    # 5,212 proposed at K 4 are 1,303 drafts; 745 accepted: 1 + 745/1303.
    a = Acceptance(1303, 5212, 745)
    assert a.k_seen == 4.0
    assert a.length == pytest.approx(1.5718, abs=5e-5)


def test_one_request_of_a_real_server() -> None:
    d = between("ngram-metrics_00_fresh.prom", "ngram-metrics_01_after_chat1.prom")
    assert d.problems == ()
    assert d.acceptance == Acceptance(14, 98, 98, (14,) * 7)
    assert (d.generated, d.finished, d.preempted, d.prefix_hits) == (120, 1, 0, 0)
    # The request's own clock said 2660.6 ms for its 25 steps after the first token (11 of them drafted nothing).
    assert d.step_s == pytest.approx(2.6606 / 25, abs=1e-5)


def test_cached_prompts_of_a_real_server_are_seen() -> None:
    # bench.md 1.5: a second run with the same salt hit 256 cached tokens, twice in this stretch; it voids a block.
    d = between("ngram-metrics_02_after_completions.prom", "ngram-metrics_10_before_bench.prom")
    assert (d.prefix_hits, d.finished, d.problems) == (512, 12, ())


def test_two_api_servers_without_created_series() -> None:
    before = text_of("two-api-metrics_before.prom")
    assert "_created" not in before
    d = between("two-api-metrics_before.prom", "two-api-metrics_after.prom")
    # Two requests of 60 and 61 tokens, K 4, all accepted.
    assert d.acceptance == Acceptance(24, 96, 96, (24, 24, 24, 24))
    assert (d.generated, d.finished) == (121, 2)
    assert d.acceptance.length == 5.0


def test_a_bench_of_vllm_itself_agrees() -> None:
    peer = json.loads(text_of("peer-vllm_bench_serve_detailed.json"))
    a = Acceptance(
        peer["spec_decode_num_drafts"], peer["spec_decode_draft_tokens"], peer["spec_decode_accepted_tokens"]
    )
    assert a.length == pytest.approx(peer["spec_decode_acceptance_length"])
    assert 100 * (a.rate or 0) == pytest.approx(peer["spec_decode_acceptance_rate"])  # percent there, a share here
    # These scrapes bracket its 6 requests and the test request that it sends before: 7 x 64 tokens.
    d = between("ngram-metrics_10_before_bench.prom", "ngram-metrics_11_after_bench.prom")
    assert d.finished == peer["completed"] + 1 and d.generated == peer["total_output_tokens"] + 64
    assert d.acceptance is not None and d.acceptance.drafts > a.drafts and d.acceptance.accepted > a.accepted


def test_h200_block_of_910_drafts() -> None:
    # 2,305 accepted over 910 drafts at c=16: 3.533, against the true 3.569 of the synthetic sampler.
    row = json.loads((DATA / "h200-counter_deltas.json").read_text())[-1]
    drafts, accepted = (int(row[f"spec_decode_num_{n}"]) for n in ("drafts_total", "accepted_tokens_total{"))
    a = Acceptance(drafts, int(row["spec_decode_num_draft_tokens_total"]), accepted)
    assert (a.drafts, a.k_seen) == (910, 7.0)
    assert a.length == pytest.approx(3.533, abs=5e-4)
    live = parse_metrics(text_of("h200-metrics_after.prom"), "m")
    assert live.speculates() and live.gauge("running") == 0


def test_a_server_without_speculation_has_no_series_not_zeros() -> None:
    scrape = parse_metrics(text_of("h200-no-spec-metrics.prom"), "m")
    assert not scrape.speculates()
    assert delta(scrape, scrape).acceptance is None


def test_counters_that_fall_are_a_reset_and_no_number() -> None:
    d = between("ngram-metrics_11_after_bench.prom", "ngram-metrics_10_before_bench.prom")
    assert d.acceptance is None and d.generated is None
    assert any("the counters were reset" in p for p in d.problems)


def test_a_restart_is_seen_by_the_process_start() -> None:
    before = text_of("ngram-metrics_00_fresh.prom")
    after = text_of("ngram-metrics_01_after_chat1.prom").replace("1.7959668327e+09", "1.7959669999e+09")
    problems = delta(parse_metrics(before), parse_metrics(after)).problems
    assert any("process_start_time_seconds changed" in p for p in problems)


def test_another_models_traffic_is_not_ours_and_engines_add_up() -> None:
    def scrape(d0: int, d1: int, other: int) -> str:
        name = "vllm:spec_decode_num_drafts_total"
        return (f'{name}{{engine="0",model_name="m"}} {d0}\n{name}{{engine="1",model_name="m"}} {d1}\n'
                f'{name}{{engine="0",model_name="x"}} {other}\n')  # fmt: skip

    d = delta(parse_metrics(scrape(1, 2, 3), "m"), parse_metrics(scrape(11, 22, 93), "m"))
    assert d.acceptance is not None and d.acceptance.drafts == 30
    assert {e: a.drafts for e, a in d.per_engine.items()} == {"0": 10, "1": 20}


def test_names_of_older_builds_without_total() -> None:
    text = 'vllm:spec_decode_num_drafts{model_name="m"} %d\nvllm:spec_decode_num_accepted_tokens{model_name="m"} %d\n'
    d = delta(parse_metrics(text % (0, 0), "m"), parse_metrics(text % (10, 15), "m"))
    assert d.acceptance is not None and d.acceptance.length == 2.5


def test_counters_that_contradict_each_other() -> None:
    text = (
        "vllm:spec_decode_num_drafts_total 10\nvllm:spec_decode_num_draft_tokens_total 70\n"
        "vllm:spec_decode_num_accepted_tokens_total 15\n"
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 9\n'
    )
    empty = text.replace("10\n", "0\n").replace("70\n", "0\n").replace("15\n", "0\n").replace("9\n", "0\n")
    assert "accepted per position sums to 9" in delta(parse_metrics(empty), parse_metrics(text)).problems[0]


def test_requests_say_the_same_as_the_counters() -> None:
    # Three requests of a real server: (14, 98, 98), (47, 27, 329), (5, 3, 35) steps, accepted, drafted.
    rows = [
        {"num_spec_steps": s, "num_accepted_draft_tokens": a, "num_draft_tokens": d}
        for s, a, d in ((14, 98, 98), (47, 27, 329), (5, 3, 35))
    ]
    total = from_requests(rows)
    assert total is not None and (total.drafts, total.accepted, total.proposed) == (66, 128, 462)
    histogram = {"num_spec_steps": 3, "num_accepted_draft_tokens": 3, "num_draft_tokens": 6,
                 "acceptance_histogram": [1, 1, 1]}  # fmt: skip
    total = from_requests([histogram])
    assert total is not None and total.per_position == (2, 1)
    assert from_requests([{"num_spec_steps": None}]) is None


@pytest.mark.parametrize("text", ["<html>502 Bad Gateway</html>", '{"error": "no"}'])
def test_metrics_that_are_none(text: str) -> None:
    with pytest.raises(BenchError, match="Prometheus text format"):
        parse_metrics(text)


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_counters_that_are_no_numbers(value: str) -> None:
    text = "vllm:spec_decode_num_drafts_total %s\nvllm:spec_decode_num_accepted_tokens_total 15\n"
    d = delta(parse_metrics(text % "10"), parse_metrics(text % value))
    assert d.acceptance is None and d.problems == ("vllm:spec_decode_num_drafts is no number",)
