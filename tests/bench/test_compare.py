"""Verdicts on synthetic arms whose true difference is known, and the refusals."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pytest import MonkeyPatch

from recipectl.bench import compare, measure, protocol, resample
from recipectl.bench.compare import Judged
from recipectl.bench.protocol import Protocol
from recipectl.bench.resample import Interval
from recipectl.bench.result import Block, Measured, Rates, Request, Result, Server
from recipectl.errors import BenchError, UsageError

PROMPTS = protocol.load("code")  # four prompts: rounds are the clusters


def request(prompt: str, tok_s: float, length: float) -> Request:
    steps = 100
    seconds = length * steps / tok_s
    return Request(
        prompt=prompt, prompt_sha256="0" * 64, text_sha256="0" * 64, counted="token_ids", t_request_ns=0, t_first_ns=0,
        t_last_ns=round(seconds * 1e9), t_end_ns=round(seconds * 1e9), n=round(length * steps), tok_s=tok_s,
        spec={"num_spec_steps": steps, "num_draft_tokens": 7 * steps,
              "num_accepted_draft_tokens": round((length - 1) * steps)},
    )  # fmt: skip


def arm(p: Protocol, *, speed: float, length: float = 3.5, cv: float = 0.01, rounds: int = 5, seed: int = 0,
        boots: int = 1) -> Result:  # fmt: skip
    draw = random.Random(seed)
    name = next(iter(p.phases))
    blocks = []
    for boot in range(boots):
        for r in range(rounds):
            rows = [request(q.id, speed * (1 + draw.gauss(0, cv)), length) for q in p.phases[name].prompts]
            acceptance = measure.accepted(measure.Acceptance(400, 2800, round((length - 1) * 400)))
            blocks.append(Block(phase=name, concurrency=1, round=r + boot * rounds, boot=f"boot {boot} {seed}",
                                started="2026-01-01T00:00:00Z", requests=rows, acceptance=acceptance,
                                rates=Rates(tok_s=speed)))  # fmt: skip
    cell = measure.cell(name, 1, blocks, max_num_seqs=None)
    return Result(tool="t", started="s", ended="e", seed=0, server=Server(url="u", model="m"),
                  measured=[Measured(protocol=p, digest=p.digest, cells=[cell], blocks=blocks)])  # fmt: skip


def verdicts(judged: list[Judged]) -> dict[str, str]:
    return {j.metric: j.verdict for j in judged}


@pytest.mark.parametrize(
    ("factor", "verdict", "step"),
    [(1.10, "better", "better"), (0.90, "worse", "worse"), (1.0, "no change", "no change")],
)
def test_known_differences_are_called(factor: float, verdict: str, step: str) -> None:
    judged = compare.compare(*(arm(PROMPTS, speed=v, rounds=8, seed=s) for v, s in ((100, 1), (100 * factor, 2))))
    assert verdicts(judged) == {"step_ms": step, "acceptance_length": "no change", "tok_s": verdict}
    speed = next(j for j in judged if j.metric == "tok_s")
    assert speed.effect.low <= factor - 1 <= speed.effect.high
    assert (speed.rounds, speed.pairs, speed.boots) == (8, 32, 1)
    assert compare.regressions(judged) == (["code c=1: tok/s is worse"] if factor < 1 else [])


def test_three_rounds_support_no_verdict() -> None:
    judged = compare.compare(arm(PROMPTS, speed=100, rounds=3), arm(PROMPTS, speed=80, rounds=3, seed=1))
    assert set(verdicts(judged).values()) == {"inconclusive"}
    assert all(j.needs is not None and j.needs >= 5 for j in judged)


def test_noise_is_inconclusive_and_says_what_it_would_take() -> None:
    judged = compare.compare(arm(PROMPTS, speed=100, cv=0.1), arm(PROMPTS, speed=101, cv=0.1, seed=3))
    speed = next(j for j in judged if j.metric == "tok_s")
    assert speed.verdict == "inconclusive" and speed.needs is not None and speed.needs > 5
    assert f"would take about {speed.needs} rounds" in speed.line()


def test_an_a_a_control_finds_nothing() -> None:
    found = [verdicts(compare.compare(arm(PROMPTS, speed=100, seed=s), arm(PROMPTS, speed=100, seed=s + 50)))["tok_s"]
             for s in range(20)]  # fmt: skip
    assert found.count("better") + found.count("worse") == 0


@pytest.mark.parametrize(
    ("prompts", "rounds", "by_prompt", "by_round", "noise", "cells"),
    [
        (1, 6, 0.0, 0.01, 0.0, 1),  # counting: a round is one value
        (4, 5, 0.01, 0.005, 0.01, 1),  # few prompts that differ: rounds are the clusters
        (8, 5, 0.005, 0.01, 0.01, 1),  # a clock that drifts from round to round hits all prompts of a round alike
        (8, 5, 0.01, 0.0, 0.01, 3),  # prompts that differ, three cells: 98.3 % each
        (20, 5, 0.005, 0.01, 0.01, 1),  # many prompts make up for few rounds only where rounds are alike
    ],
)
def test_intervals_cover_the_truth_as_often_as_they_say(
    prompts: int, rounds: int, by_prompt: float, by_round: float, noise: float, cells: int, monkeypatch: MonkeyPatch
) -> None:
    # 500 pairs of runs whose true difference is 0, with effects of prompts and of rounds. Three standard errors of a
    # share of .95 over 500 are .029. A bootstrap over prompts alone covers 78 % of the third case, 66 % of the fifth.
    monkeypatch.setattr(resample, "RESAMPLES", 800)
    draw, confidence, trials = random.Random(11), 1 - 0.05 / cells, 500
    covered = 0
    for _ in range(trials):
        of_round = [draw.gauss(0, by_round) for _ in range(rounds)]
        effects = {
            (0, r, str(p)): of_prompt + of_round[r] + draw.gauss(0, noise)
            for p in range(prompts)
            for of_prompt in [draw.gauss(0, by_prompt)]
            for r in range(rounds)
        }
        found, _ = compare.interval(effects, confidence)
        covered += found.low <= 0 <= found.high
    assert covered / trials >= confidence - 3 * (confidence * (1 - confidence) / trials) ** 0.5


def test_many_a_a_controls_find_nothing(monkeypatch: MonkeyPatch) -> None:
    # 200 A/A controls on a rig as bad as the field's worst (CV 10 % in every request, bench.md issue 27): at 95 % at
    # most 5 % may be called, and 10 + 3 standard errors (3.1 each) of 200 are 19.
    monkeypatch.setattr(resample, "RESAMPLES", 800)
    called = 0
    for s in range(200):
        a, b = (arm(PROMPTS, speed=100, cv=0.1, rounds=6, seed=s + shift) for shift in (0, 1000))
        called += verdicts(compare.compare(a, b, metrics=["tok_s"]))["tok_s"] in ("better", "worse")
    assert called <= 19


def test_rounds_of_one_prompt_are_as_many_as_the_confidence_asks() -> None:
    # The range of n values misses their median with probability 2 ** (1 - n): 1/32 < 5 % at 6, 1/64 < 1.67 % at 7.
    assert compare.rounds_to_call(0.95, prompts=1) == 6
    assert compare.rounds_to_call(1 - 0.05 / 3, prompts=1) == 7
    assert compare.rounds_to_call(0.95, prompts=4) == 5
    counting = protocol.load("counting")
    five, six = ([arm(counting, speed=100 + 20 * s, rounds=n, seed=s) for s in (0, 1)] for n in (5, 6))
    few = {j.metric: (j.verdict, j.needs) for j in compare.compare(*five)}
    assert few["tok_s"] == ("inconclusive", 6)
    assert verdicts(compare.compare(*six))["tok_s"] == "better"


def test_the_rounds_it_would_take_follow_from_point_and_width() -> None:
    # Interval 1 % +- 2 % at a minimum effect of 2 %, 8 rounds: to fit below 2 % it must shrink to half its width, which
    # takes 4 times the rounds. At a point of 2 % no number of rounds tells; fewer than there were is never an answer.
    about = compare._rounds_needed
    assert about(Interval(0.01, -0.01, 0.03), 0.02, 8, 5) == 32
    assert about(Interval(0.02, 0.01, 0.03), 0.02, 8, 5) == compare.MANY
    assert about(Interval(0.029, 0.0195, 0.033), 0.02, 8, 5) == 9
    assert about(Interval(0.10, 0.09, 0.11), 0.02, 3, 5) == 5


def test_p_is_that_of_the_clusters() -> None:
    # Four prompts in six rounds, every pair 10 % better: 24 pairs, but 6 clusters, so 2 of 64 sign patterns.
    a, b = (arm(PROMPTS, speed=v, cv=0.001, rounds=6, seed=s) for s, v in enumerate((100, 110)))
    speed = next(j for j in compare.compare(a, b) if j.metric == "tok_s")
    assert (speed.pairs, speed.p) == (24, 2 / 64)


def changed(result: Result, **update: object) -> Result:
    """The result with every request changed."""
    (m,) = result.measured
    blocks = [b.model_copy(update={"requests": [r.model_copy(update=update) for r in b.requests]}) for b in m.blocks]
    return result.model_copy(update={"measured": [m.model_copy(update={"blocks": blocks})]})


def test_a_stream_without_a_rate_keeps_its_acceptance() -> None:
    a, b = (changed(arm(PROMPTS, speed=100, length=v, seed=s), tok_s=None) for s, v in enumerate((3.6, 3.2)))
    judged = {j.metric: j for j in compare.compare(a, b)}
    assert judged["acceptance_length"].verdict == "worse" and judged["acceptance_length"].pairs == 20


def test_one_side_that_knows_only_blocks_pairs_by_block() -> None:
    # The older server has no per-request figures; its counters tell the length of a block: 3.6 against 3.2.
    a, b = arm(PROMPTS, speed=100, length=3.6), changed(arm(PROMPTS, speed=100, length=3.2, seed=1), spec={})
    rates = Rates(tok_s=100, acceptance_length=3.6), Rates(tok_s=100, acceptance_length=3.2)
    a, b = (
        r.model_copy(update={"measured": [m.model_copy(update={"blocks": [
            x.model_copy(update={"rates": rate}) for x in m.blocks]}) for m in r.measured]})
        for r, rate in zip((a, b), rates, strict=True)
    )  # fmt: skip
    length = next(j for j in compare.compare(a, b) if j.metric == "acceptance_length")
    assert (length.pairs, length.rounds, round(length.effect.point, 6)) == (5, 5, -0.4)


def test_a_line_shows_what_it_rests_on() -> None:
    joined = [compare.join([arm(PROMPTS, speed=v, cv=0, seed=s), arm(PROMPTS, speed=v + 10, cv=0, seed=s + 5)])
              for s, v in enumerate((100, 200))]  # fmt: skip
    speed = next(j for j in compare.compare(*joined) if j.metric == "tok_s")
    # Rounds at 100 (five) and at 110 (five): mean 105, sample standard deviation 5.27.
    assert "10 rounds, 2 boots, CV 5.0% and 2.6%, by boot 100->200 110->210: better" in speed.line()


def test_a_drafter_that_accepts_less() -> None:
    judged = compare.compare(arm(PROMPTS, speed=100, length=3.6), arm(PROMPTS, speed=100, length=3.2, seed=1))
    assert verdicts(judged)["acceptance_length"] == "worse"


def test_different_protocols_are_refused_and_the_difference_named(tmp_path: Path) -> None:
    other = protocol.with_settings(PROMPTS, {"max_tokens": 100}, tmp_path)
    with pytest.raises(UsageError) as caught:
        compare.compare(arm(PROMPTS, speed=100), arm(other, speed=100))
    assert caught.value.details == ("max_tokens: 400 against 100",)
    with pytest.raises(UsageError, match="share no protocol"):
        compare.compare(arm(PROMPTS, speed=100), arm(protocol.load("gate"), speed=100))


def test_void_blocks_do_not_pair() -> None:
    a, b = arm(PROMPTS, speed=100), arm(PROMPTS, speed=90, seed=1)
    void = [x.model_copy(update={"void": ["foreign: traffic"]}) for x in b.measured[0].blocks]
    with pytest.raises(BenchError, match="no valid round"):
        compare.compare(a, b.model_copy(update={"measured": [b.measured[0].model_copy(update={"blocks": void})]}))


def test_boots_of_one_arm_are_joined() -> None:
    joined = compare.join([arm(PROMPTS, speed=100, seed=1), arm(PROMPTS, speed=110, seed=2)])
    assert len(joined.measured[0].blocks) == 10 and joined.measured[0].cells[0].rounds == 10
    judged = compare.compare(joined, compare.join([arm(PROMPTS, speed=90, seed=3), arm(PROMPTS, speed=99, seed=4)]))
    speed = next(j for j in judged if j.metric == "tok_s")
    assert speed.boots == 2 and speed.verdict == "worse"


def test_what_was_left_out_and_what_a_verdict_had_to_reach() -> None:
    a = arm(PROMPTS, speed=100)
    blocks = [x.model_copy(update={"void": void}) for x, void in zip(
        a.measured[0].blocks, ([], ["foreign: x"], ["foreign: y", "compile: z"], [], []), strict=True)]  # fmt: skip
    voided = a.model_copy(update={"measured": [a.measured[0].model_copy(update={"blocks": blocks})]})
    assert list(compare.dropped(voided)) == ["2 of 5 blocks of code are void: foreign 2, compile 1"]
    assert list(compare.dropped(a)) == []
    assert compare.terms(compare.compare(a, arm(PROMPTS, speed=100, seed=1))) == (
        "minimum effect 1.5% step time, 0.05 tokens of acceptance length, 2.0% tok/s; intervals of 95.0% for 1 cell(s)"
    )


def test_two_protocols_with_a_phase_of_one_name_stay_apart() -> None:
    # Both have a phase prose; only the second one regresses, and six cells (two of them made here) are counted as two.
    pair = [protocol.load("prose"), protocol.load("sfxnz-legacy")]
    made = [[arm(p, speed=v, rounds=8, seed=i) for p in pair] for i, v in enumerate((100, 101, 80))]
    whole = [[m.measured[0] for m in results] for results in (made[0], (made[1][0], made[2][1]))]
    a, b = (made[0][0].model_copy(update={"measured": measured}) for measured in whole)
    judged = compare.compare(a, b)
    assert compare.regressions(judged) == ["sfxnz-legacy prose c=1: tok/s is worse"]
    assert "97.5% for 2 cell(s)" in compare.terms(judged)
    assert [len(j.row()) for j in judged] == [len(compare.COLUMNS)] * 6
