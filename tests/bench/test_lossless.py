"""Recorded arms of a real server (bf16, ngram K 4 against no speculation, 5 prompts x 160 tokens)."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from recipectl.bench import lossless
from recipectl.bench.lossless import Scored, judge, score
from tests.bench.conftest import text_of


def arm(name: str) -> list[Scored]:
    rows: list[dict[str, Any]] = json.loads(text_of(f"lossless-{name}.json"))
    return [score(r["prompt"], r["tid"], r["tf"], r["lp"]) for r in rows]


def test_the_recorded_arms_are_lossless() -> None:
    j = judge(arm("spec"), arm("control"), "bfloat16")
    assert j.verdict == "LOSSLESS" and j.control is not None
    # Field study: 18 of 800 differ (11 exact ties, rest 0.0625 to 0.25) against 16 (11 exact ties, up to 0.125).
    assert (j.spec.tokens, j.spec.differs, j.spec.exact_ties, j.spec.max_gap) == (800, 18, 11, 0.25)
    assert (j.control.differs, j.control.exact_ties, j.control.max_gap) == (16, 11, 0.125)
    assert j.spec.mean_abs_drift == pytest.approx(0.0193, abs=5e-5)
    assert j.control.mean_abs_drift == pytest.approx(0.0184, abs=5e-5)
    assert j.spec.max_abs_drift == pytest.approx(0.1604, abs=5e-5)
    assert j.first_divergence == (32, 51, None, None, 12)
    assert j.ulp == 0.125 and j.spec.over_soft == 0


def test_a_rerun_is_the_same_and_text_is_never_the_verdict() -> None:
    j = judge(arm("spec"), arm("spec-rerun"), "bfloat16")
    assert j.first_divergence == (None,) * 5 and j.verdict == "LOSSLESS"


def test_without_a_control_arm_near_ties_cannot_be_called() -> None:
    j = judge(arm("spec"), None, "bfloat16")
    assert j.verdict == "INCONCLUSIVE" and "no control arm" in j.why
    assert "control: not run" in "\n".join(lossless.lines(j))


def made(gaps: dict[int, float], n: int = 300, prompt: str = "p") -> Scored:
    at = [gaps.get(i, 0.0) for i in range(n)]
    return Scored(prompt, tuple(range(n)), tuple(at), tuple(i in gaps for i in range(n)))


def test_a_wrong_token_is_lossy() -> None:
    j = judge([made({40: 3.0})], [made({7: 0.125})], "bfloat16")
    assert j.verdict == "LOSSY" and "3 nats below the best" in j.why
    assert judge([made({40: 6.0})], None, "bfloat16").verdict == "LOSSY", "beyond ten times the hard limit"


def test_between_near_tie_and_hard_limit_is_inconclusive() -> None:
    assert judge([made({40: 0.4})], [made({7: 0.125})], "bfloat16").verdict == "INCONCLUSIVE"


def test_too_many_near_ties_are_lossy() -> None:
    draw = random.Random(1)
    spec = [made({draw.randrange(300): 0.125 for _ in range(30)}, prompt=str(i)) for i in range(12)]
    control = [made({draw.randrange(300): 0.125 for _ in range(6)}, prompt=str(i)) for i in range(12)]
    j = judge(spec, control, "bfloat16")
    assert j.verdict == "LOSSY" and j.p is not None and j.p < 0.05
    assert judge(control, control, "bfloat16").verdict == "LOSSLESS"


def test_a_perfect_arm_needs_no_control_but_enough_tokens() -> None:
    assert judge([made({})], None, "float32").verdict == "LOSSLESS"
    assert judge([made({}, n=50)], None, "float32").verdict == "INCONCLUSIVE"


def test_the_controls_own_drift_is_the_floor_in_float32() -> None:
    # 4 ULP of float32 are 8e-6 nats, far below the drift of any engine between decode and prefill.
    control = Scored("p", tuple(range(300)), (0.0,) * 300, (False,) * 300, (1e-4,) * 300)
    assert judge([made({5: 5e-5})], [control], "float32").verdict == "LOSSLESS"


def test_scores_that_are_none() -> None:
    row = {"1": {"logprob": float("nan"), "rank": 1}}
    with pytest.raises(ValueError, match="no finite logprob"):
        score("p", [1], [row])
    with pytest.raises(KeyError):
        score("p", [2], [{"1": {"logprob": -1.0, "rank": 1}}])
    with pytest.raises(ValueError):
        score("p", [1, 2], [row])
