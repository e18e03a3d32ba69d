"""Is speculation lossless? Teacher-forced gaps of each arm's own text, held against a control arm. PURE.

Text equality is no verdict: near ties flip with batch and kernel shape. Each emitted token is scored by a fresh prefill
(`prompt_logprobs`), which runs neither drafter nor verify kernel. gap = logprob of the best token - logprob of the
emitted one. vLLM's `rank` counts logits >= the token's own, so an exact tie shows rank 2: a rank says that a token
differs from the best one listed, and only the gap says whether that means anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from recipectl.recipe.base import Json

Verdict = Literal["LOSSLESS", "LOSSY", "INCONCLUSIVE"]
# One unit in the last place of a logit of 16 to 32, in nats. The published 0.125-nat near tie is one of bfloat16.
ULP: dict[str, float] = {"bfloat16": 2.0**-3, "float16": 2.0**-6, "float32": 2.0**-19}
SOFT_ULP, HARD_ULP = 2, 4
MIN_TOKENS = 200
ALPHA = 0.05


@dataclass(frozen=True)
class Scored:
    """One text of one arm, token by token. `gaps` in nats; `differs` where another token is listed first;
    `drift` is decode logprob minus prefill logprob of the emitted token, where the server gave the former; `broken`
    are the signs of a broken decode path in its text (`textprobe`)."""

    prompt: str
    token_ids: tuple[int, ...]
    gaps: tuple[float, ...]
    differs: tuple[bool, ...]
    drift: tuple[float, ...] = ()
    broken: tuple[str, ...] = ()


@dataclass(frozen=True)
class Arm:
    """All texts of one arm, counted. `broken` says of each text that looks broken what is wrong with it."""

    tokens: int
    differs: int
    exact_ties: int
    near_ties: int
    over_soft: int
    max_gap: float
    mean_abs_drift: float | None
    mean_drift: float | None
    max_abs_drift: float | None
    broken: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """For receipts."""
        return {**vars(self), "broken": list(self.broken)}


@dataclass(frozen=True)
class Judgement:
    """The verdict with everything it rests on."""

    verdict: Verdict
    why: str
    ulp: float
    soft: float
    hard: float
    spec: Arm
    control: Arm | None
    p: float | None
    first_divergence: tuple[int | None, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """For receipts."""
        return {
            "verdict": self.verdict, "why": self.why, "ulp": self.ulp, "soft": self.soft, "hard": self.hard,
            "spec": self.spec.to_json(), "control": self.control.to_json() if self.control else None, "p": self.p,
            "first_divergence": list(self.first_divergence),
        }  # fmt: skip


def score(
    prompt: str,
    token_ids: Sequence[int],
    forced: Sequence[Mapping[str, Mapping[str, Any]]],
    decoded: Sequence[float] = (),
    broken: Sequence[str] = (),
) -> Scored:
    """One text from the prompt_logprobs of its own tokens. ValueError where a token was not scored."""
    gaps, differs = [], []
    drift = []
    for place, (token, row) in enumerate(zip(token_ids, forced, strict=True)):
        own = row[str(token)]["logprob"]
        best = max(float(r["logprob"]) for r in row.values())
        if not (math.isfinite(own) and math.isfinite(best)):
            raise ValueError(f"token {place} of {prompt!r} has no finite logprob")
        gaps.append(best - own)
        differs.append(row[str(token)]["rank"] != 1)
        if decoded:
            drift.append(decoded[place] - own)
    return Scored(prompt, tuple(token_ids), tuple(gaps), tuple(differs), tuple(drift), tuple(broken))


def count(texts: Sequence[Scored], soft: float) -> Arm:
    """An arm's figures: exact ties apart from near ties, and those above the soft limit apart from both."""
    gaps = [g for t in texts for g, d in zip(t.gaps, t.differs, strict=True) if d]
    drift = [x for t in texts for x in t.drift]
    return Arm(
        tokens=sum(len(t.gaps) for t in texts),
        differs=len(gaps),
        exact_ties=sum(g == 0 for g in gaps),
        near_ties=sum(0 < g <= soft for g in gaps),
        over_soft=sum(g > soft for g in gaps),
        max_gap=max(gaps, default=0.0),
        mean_abs_drift=sum(map(abs, drift)) / len(drift) if drift else None,
        mean_drift=sum(drift) / len(drift) if drift else None,
        max_abs_drift=max(map(abs, drift)) if drift else None,
        broken=tuple(f"{t.prompt}: {b}" for t in texts for b in t.broken),
    )


def judge(spec: Sequence[Scored], control: Sequence[Scored] | None, dtype: str) -> Judgement:
    """The verdict. Without a control arm only a perfect match, or a gap beyond any near tie, can be called.

    The hard limit is 4 ULP, or what the control arm itself shows without speculation (its largest gap, its largest
    drift between decode and prefill), whichever is largest.
    """
    ulp = ULP[dtype]
    soft = SOFT_ULP * ulp
    s = count(spec, soft)
    c = count(control, soft) if control else None
    floor = max(c.max_gap, c.max_abs_drift or 0.0) if c else 0.0
    hard = max(HARD_ULP * ulp, floor)
    p = rate_p(spec, control) if control else None
    first = first_divergence(spec, control) if control else ()
    verdict, why = _verdict(s, c, hard, max(soft, floor), p)
    return Judgement(verdict, why, ulp, soft, hard, s, c, p, first)


def _verdict(s: Arm, c: Arm | None, hard: float, soft: float, p: float | None) -> tuple[Verdict, str]:
    if s.tokens < MIN_TOKENS:
        return "INCONCLUSIVE", f"only {s.tokens} tokens were scored, {MIN_TOKENS} are needed"
    if s.max_gap > (hard if c is not None else 10 * hard):
        return "LOSSY", f"a token lies {s.max_gap:.4g} nats below the best, beyond the hard limit {hard:.4g}"
    if s.differs == 0:
        return "LOSSLESS", f"every one of {s.tokens} tokens is the best under teacher forcing"
    if c is None or p is None:
        return (
            "INCONCLUSIVE",
            f"{s.differs} of {s.tokens} tokens differ, and no control arm without speculation was run",
        )
    return _against(s, c, soft, p)


def _against(s: Arm, c: Arm, soft: float, p: float) -> tuple[Verdict, str]:
    rates = f"{s.differs} of {s.tokens} against {c.differs} of {c.tokens} in the control arm, p {p:.3f}"
    if p < ALPHA and s.differs / s.tokens > c.differs / c.tokens:
        return "LOSSY", f"tokens differ more often than without speculation: {rates}"
    if s.max_gap > soft:
        return "INCONCLUSIVE", f"a gap of {s.max_gap:.4g} nats is above a near tie; {rates}"
    return "LOSSLESS", f"all differences are near ties, as often as without speculation: {rates}"


def rate_p(spec: Sequence[Scored], control: Sequence[Scored]) -> float:
    """p of the difference of disagreement rates, paired by prompt (sign flips); 1 where no prompt pairs."""
    from recipectl.bench.resample import sign_flip_p

    other = {t.prompt: t for t in control}
    pairs = [(t, other[t.prompt]) for t in spec if t.prompt in other and t.gaps and other[t.prompt].gaps]
    if not pairs:
        return 1.0
    return sign_flip_p([sum(a.differs) / len(a.differs) - sum(b.differs) / len(b.differs) for a, b in pairs])


def first_divergence(spec: Sequence[Scored], control: Sequence[Scored]) -> tuple[int | None, ...]:
    """Where each text leaves that of the control arm; None where it never does. Descriptive only."""
    other = {t.prompt: t.token_ids for t in control}
    out = []
    for t in spec:
        if t.prompt in other:
            pairs = enumerate(zip(t.token_ids, other[t.prompt], strict=False))
            out.append(next((i for i, (a, b) in pairs if a != b), None))
    return tuple(out)


def lines(j: Judgement) -> list[str]:
    """The verdict as text."""
    out = [f"losslessness: {j.verdict}. {j.why}",
           f"  1 ULP {j.ulp:.3g} nats, near tie up to {j.soft:.3g}, hard limit {j.hard:.3g}"]  # fmt: skip
    for name, arm in (("speculation", j.spec), ("control", j.control)):
        if arm is None:
            out.append(f"  {name}: not run")
            continue
        drift = f", mean |drift| {arm.mean_abs_drift:.4g}" if arm.mean_abs_drift is not None else ""
        out.append(
            f"  {name}: {arm.differs} of {arm.tokens} tokens differ ({arm.exact_ties} exact ties, {arm.near_ties} near "
            f"ties, {arm.over_soft} above), largest gap {arm.max_gap:.4g} nats ({arm.max_gap / j.ulp:.2g} ULP){drift}"
        )
        if arm.broken:
            out.append(f"  {name}: {len(arm.broken)} signs of a broken text, first {arm.broken[0]}")
    if j.first_divergence:
        split = [str(d) for d in j.first_divergence if d is not None]
        equal = len(j.first_divergence) - len(split)
        parted = f", others part at token {', '.join(split)}" if split else ""
        out.append(f"  texts: {equal} of {len(j.first_divergence)} equal to the control's{parted}")
    return out
