"""Verdicts on synthetic arms whose true difference is known, and the refusals."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from recipectl.bench import compare, measure, protocol
from recipectl.bench.compare import Judged
from recipectl.bench.protocol import Protocol
from recipectl.bench.result import Block, Measured, Rates, Request, Result, Server
from recipectl.errors import BenchError, UsageError

PROMPTS = protocol.load("code")  # four prompts: rounds are the clusters


def request(prompt: str, tok_s: float, length: float) -> Request:
    steps = 100
    seconds = length * steps / tok_s
    return Request(
        prompt=prompt, prompt_sha256="0" * 64, text_sha256="0" * 64, counted="token_ids", t_request_ns=0, t_first_ns=0,
        t_last_ns=round(seconds * 1e9), t_end_ns=round(seconds * 1e9), n=round(length * steps), tok_s=tok_s,
        spec={"num_spec_steps": steps, "num_accepted_draft_tokens": round((length - 1) * steps)},
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
    judged = compare.compare(arm(PROMPTS, speed=100, seed=1), arm(PROMPTS, speed=100 * factor, seed=2))
    assert verdicts(judged) == {"step_ms": step, "acceptance_length": "no change", "tok_s": verdict}
    speed = next(j for j in judged if j.metric == "tok_s")
    assert speed.effect.low <= factor - 1 <= speed.effect.high
    assert (speed.rounds, speed.pairs, speed.boots) == (5, 20, 1)
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
