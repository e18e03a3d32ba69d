"""Two results, one verdict per cell: better, worse, no change, inconclusive. PURE.

Step time is judged first, then acceptance length, then tok/s, since tok/s is the quotient of the two. Values are
paired by prompt and round; intervals come from a bootstrap over prompts, rounds or boots, whichever is widest. The
minimum effect is stated before: a difference inside it is no change.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from recipectl.bench import measure, resample, stats
from recipectl.bench.acceptance import of_request
from recipectl.bench.result import Block, Measured, Request, Result
from recipectl.errors import BenchError, UsageError

Metric = Literal["step_ms", "acceptance_length", "tok_s"]
Verdict = Literal["better", "worse", "no change", "inconclusive"]
METRICS: tuple[Metric, ...] = ("step_ms", "acceptance_length", "tok_s")
# Stated before any run (bench.md section 5): log ratios for times and rates, tokens for the length.
MIN_EFFECT: dict[str, float] = {"step_ms": 0.015, "acceptance_length": 0.05, "tok_s": 0.02}
# Three rounds reach p = 0.1 at best: below this number nothing is called.
MIN_ROUNDS = 5
MANY = 1000  # rounds that nobody runs
ALPHA = 0.05
Key = tuple[int, int, str]  # ordinal of the boot, round, prompt
SHOWN: dict[str, str] = {"step_ms": "step ms", "acceptance_length": "length", "tok_s": "tok/s"}
COLUMNS = ("cell", "figure", "A", "B", "change", "interval", "verdict", "rests on")


@dataclass(frozen=True)
class Judged:
    """One metric of one cell. `effect` is B against A: a relative change, or tokens for the acceptance length."""

    phase: str
    concurrency: int
    metric: Metric
    a: float
    b: float
    effect: resample.Interval
    p: float
    rounds: int
    boots: int
    pairs: int
    verdict: Verdict
    needs: int | None
    cv: tuple[float | None, float | None] = (None, None)
    by_boot: tuple[tuple[float, float], ...] = ()

    def row(self) -> tuple[str, ...]:
        """The cells under `COLUMNS`."""
        return (f"{self.phase} c={self.concurrency}", SHOWN[self.metric], f"{self.a:.4g}", f"{self.b:.4g}",
                *self._effect(), self.verdict, f"{self._basis()}{self._wanted()}")  # fmt: skip

    def line(self) -> str:
        """The row as text."""
        change, between = self._effect()
        return (
            f"{self.phase} c={self.concurrency} {self.metric}: {self.a:.4g} -> {self.b:.4g} ({change}, {between}), "
            f"{self._basis()}: {self.verdict}{self._wanted()}"
        )

    def _effect(self) -> tuple[str, str]:
        unit, scale = (" tokens", 1.0) if self.metric == "acceptance_length" else (" %", 100.0)
        e = self.effect
        return f"{scale * e.point:+.2f}{unit}", f"{scale * e.low:+.2f} to {scale * e.high:+.2f}"

    def _basis(self) -> str:
        cv = ", CV {:.1%} and {:.1%}".format(*self.cv) if None not in self.cv else ""
        boots = ", by boot " + " ".join(f"{a:.4g}->{b:.4g}" for a, b in self.by_boot) if self.boots > 1 else ""
        return (f"p {self.p:.3f}, {self.pairs} pairs, {self.rounds} rounds, {self.boots} "
                f"{'boot' if self.boots == 1 else 'boots'}{cv}{boots}")  # fmt: skip

    def _wanted(self) -> str:
        if not self.needs:
            return ""
        return f", would take {f'over {MANY}' if self.needs >= MANY else f'about {self.needs}'} rounds"


def require_same_protocol(a: Measured, b: Measured) -> None:
    """UsageError that names every difference: figures of different protocols do not compare."""
    if a.digest == b.digest:
        return
    x, y = (m.protocol.model_dump(mode="json", exclude={"summary", "sources", "note"}) for m in (a, b))
    details = [f"{key}: {_short(x[key])} against {_short(y[key])}" for key in x if x[key] != y[key]]
    names = f"{a.protocol.name} and {b.protocol.name}"
    raise UsageError("the two results follow different protocols", seen=names, details=details,
                     next_step="bench both under the same protocol")  # fmt: skip


def compare(
    a: Result, b: Result, *, min_effect: Mapping[str, float] | None = None, metrics: Sequence[Metric] = METRICS
) -> list[Judged]:
    """Every metric of every cell that both results hold. UsageError where they share no protocol, BenchError where
    no valid round of one pairs with one of the other.

    With several cells the confidence is raised (Bonferroni), so that one lucky cell in many is no finding.
    """
    least = {**MIN_EFFECT, **(min_effect or {})}
    pairs = [(x, y) for x in a.measured for y in b.measured if x.protocol.name == y.protocol.name]
    if not pairs:
        names = [", ".join(m.protocol.name for m in r.measured) or "nothing" for r in (a, b)]
        raise UsageError("the two results share no protocol", seen=f"{names[0]} and {names[1]}")
    for x, y in pairs:
        require_same_protocol(x, y)
    cells = [(x, y, c.phase, c.concurrency) for x, y in pairs for c in x.cells]
    confidence = 1 - ALPHA / max(1, len(cells))
    judged = [
        one
        for x, y, phase, c in cells
        for metric in metrics
        if (one := _judge(x, y, phase, c, metric, least[metric], confidence)) is not None
    ]
    if not judged:
        raise BenchError("no valid round of one result pairs with one of the other",
                         next_step="see the VOID lines of `recipectl report`")  # fmt: skip
    return judged


def terms(judged: Sequence[Judged], min_effect: Mapping[str, float] = MIN_EFFECT) -> str:
    """What a verdict had to reach, stated beside the verdicts."""
    cells = len({(j.phase, j.concurrency) for j in judged})
    e = {**MIN_EFFECT, **min_effect}
    return (f"minimum effect {e['step_ms']:.1%} step time, {e['acceptance_length']:g} tokens of acceptance length, "
            f"{e['tok_s']:.1%} tok/s; intervals of {1 - ALPHA / cells:.1%} for {cells} cell(s)")  # fmt: skip


def dropped(result: Result) -> Iterator[str]:
    """The void blocks of a result by rule: what a comparison leaves out must be seen."""
    for m in result.measured:
        rules = Counter(reason.partition(":")[0] for b in m.blocks for reason in b.void)
        if rules:
            void = sum(bool(b.void) for b in m.blocks)
            yield f"{void} of {len(m.blocks)} blocks of {m.protocol.name} are void: " + ", ".join(
                f"{rule} {n}" for rule, n in rules.most_common()
            )


def join(results: Sequence[Result]) -> Result:
    """Several boots of one arm as one result, cells recomputed. UsageError if their protocols differ."""
    first, *rest = results
    measured = []
    for i, m in enumerate(first.measured):
        for other in rest:
            require_same_protocol(m, other.measured[i])
        blocks = [b for r in results for b in r.measured[i].blocks]
        cells = [
            measure.cell(name, c, [b for b in blocks if (b.phase, b.concurrency) == (name, c)],
                         max_num_seqs=first.server.max_num_seqs)
            for name, c in m.protocol.cells()
        ]  # fmt: skip
        measured.append(m.model_copy(update={"blocks": blocks, "cells": cells}))
    return first.model_copy(update={"measured": measured, "ended": results[-1].ended})


def regressions(judged: Sequence[Judged]) -> list[str]:
    """Cells that regress: tok/s is worse; or it is not called, and step time or length is worse without the other
    being better."""
    cells: dict[tuple[str, int], dict[str, Verdict]] = defaultdict(dict)
    for j in judged:
        cells[j.phase, j.concurrency][j.metric] = j.verdict
    out = []
    for (phase, c), seen in cells.items():
        parts = [seen.get("step_ms"), seen.get("acceptance_length")]
        speed = seen.get("tok_s", "inconclusive")
        if speed == "worse":
            out.append(f"{phase} c={c}: tok/s is worse")
        elif speed == "inconclusive" and "worse" in parts and "better" not in parts:
            which = "step time" if parts[0] == "worse" else "acceptance length"
            out.append(f"{phase} c={c}: {which} is worse")
    return out


def _judge(
    a: Measured, b: Measured, phase: str, c: int, metric: Metric, least: float, confidence: float
) -> Judged | None:
    left, right, keys = _paired(a, b, phase, c, metric)
    if not keys:
        return None
    additive = metric == "acceptance_length"
    effects = {k: right[k] - left[k] if additive else math.log(right[k] / left[k]) for k in keys}
    rounds, boots = len({(boot, r) for boot, r, _ in keys}), sorted({boot for boot, _, _ in keys})
    found, clusters = interval(effects, confidence)
    e = found if additive else resample.Interval(*(math.expm1(v) for v in (found.point, found.low, found.high)))
    enough = rounds_to_call(confidence, prompts=len({p for _, _, p in keys}))
    verdict = _verdict(e, least, lower_is_better=metric == "step_ms") if rounds >= enough else "inconclusive"
    return Judged(
        a.place(phase), c, metric, _middle(left, keys), _middle(right, keys), e,
        resample.sign_flip_p([sum(v) / len(v) for v in clusters.values()]), rounds, len(boots), len(keys), verdict,
        _rounds_needed(e, least, rounds, enough) if verdict == "inconclusive" else None,
        (_cv(left, keys), _cv(right, keys)),
        tuple((_middle(left, own), _middle(right, own)) for i in boots if (own := [k for k in keys if k[0] == i])),
    )  # fmt: skip


def interval(effects: Mapping[Key, float], confidence: float) -> tuple[resample.Interval, dict[str, list[float]]]:
    """The interval of the median effect, with the clusters that it rests on.

    Pairs of one prompt are alike, so are pairs of one round (a clock that drifts hits all prompts) and of one boot.
    Clusters of each kind give an interval where there are enough of them; the widest is the one to believe.
    """
    ways: dict[str, dict[str, list[float]]] = {"prompt": {}, "round": {}, "boot": {}}
    for (boot, r, prompt), effect in effects.items():
        for way, cluster in (("prompt", prompt), ("round", f"{boot}/{r}"), ("boot", str(boot))):
            ways[way].setdefault(cluster, []).append(effect)
    enough = [c for c in ways.values() if len(c) >= MIN_ROUNDS] or [ways["round"]]
    found = [(resample.cluster_bootstrap(clusters, confidence), clusters) for clusters in enough]
    return max(found, key=lambda pair: pair[0].half)


def rounds_to_call(confidence: float, *, prompts: int) -> int:
    """How many rounds a verdict takes. With one prompt a round is one value, and the range of n values misses their
    median with probability 2 ** (1 - n), whatever is resampled: 6 rounds for 95 %, more for several cells."""
    return MIN_ROUNDS if prompts > 1 else max(MIN_ROUNDS, math.ceil(1 - math.log2(1 - confidence)))


def _rounds_needed(e: resample.Interval, least: float, rounds: int, enough: int) -> int:
    """Rounds until the interval would lie on one side of the minimum effect, its width falling with their root."""
    room = abs(abs(e.point) - least)
    wanted = math.ceil(min(MANY, rounds * (e.half / room) ** 2)) if room else MANY
    return max(enough, min(MANY, rounds + 1), wanted) if rounds >= enough else max(enough, wanted)


def _verdict(e: resample.Interval, least: float, *, lower_is_better: bool) -> Verdict:
    if -least < e.low and e.high < least:
        return "no change"
    if e.low >= least:
        return "worse" if lower_is_better else "better"
    if e.high <= -least:
        return "better" if lower_is_better else "worse"
    return "inconclusive"


def _paired(
    a: Measured, b: Measured, phase: str, c: int, metric: Metric
) -> tuple[dict[Key, float], dict[Key, float], list[Key]]:
    """Both sides and the keys they share; by block where only one side knows the metric of a request."""
    for by_block in (False, True):
        left, right = (_values(m, phase, c, metric, by_block=by_block) for m in (a, b))
        if keys := sorted(set(left) & set(right)):
            return left, right, keys
    return {}, {}, []


def _values(m: Measured, phase: str, c: int, metric: Metric, *, by_block: bool) -> dict[Key, float]:
    """The metric by (boot, round, prompt). Where a request does not say it, its whole block stands in for the prompt.

    Boots are numbered by their order, so that the first boots of both arms pair.
    """
    boots = list(dict.fromkeys(b.boot for b in m.blocks))
    out: dict[Key, list[float]] = defaultdict(list)
    for b in m.blocks:
        if b.phase != phase or b.concurrency != c or not b.valid:
            continue
        boot = boots.index(b.boot)
        rows = () if by_block else b.requests
        by_request = [(r.prompt, v) for r in rows if (v := _of_request(r, metric, b)) is not None]
        for prompt, value in by_request:
            out[boot, b.round, prompt].append(value)
        if not by_request and (whole := _of_block(b, metric)) is not None:
            out[boot, b.round, "block"].append(whole)
    return {k: sum(v) / len(v) for k, v in out.items() if sum(v) > 0}


def _of_request(r: Request, metric: Metric, b: Block) -> float | None:
    if r.failure:
        return None
    if metric == "tok_s":
        return r.tok_s
    if metric == "acceptance_length":  # counts stand, also where the times of a stream do not
        told = of_request(r.spec)
        return told.length if told else None
    if r.tok_s is None or r.t_first_ns is None or r.t_last_ns is None:
        return None
    if b.acceptance is None:  # one token a step
        return 1e3 / r.tok_s
    return measure.step_ms_of(r)


def _of_block(b: Block, metric: Metric) -> float | None:
    value = getattr(b.rates, metric)
    return float(value) if value is not None else None


def _middle(values: Mapping[Key, float], keys: Sequence[Key]) -> float:
    return median([values[k] for k in keys])


def _cv(values: Mapping[Key, float], keys: Sequence[Key]) -> float | None:
    """Variation from round to round, of the mean over a round's prompts."""
    rounds: dict[tuple[int, int], list[float]] = defaultdict(list)
    for boot, r, prompt in keys:
        rounds[boot, r].append(values[boot, r, prompt])
    return stats.cv([sum(v) / len(v) for v in rounds.values()])


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) < 120 else text[:117] + "..."
