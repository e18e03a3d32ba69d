"""Intervals and tests by resampling, and Student's t for a handful of clusters. PURE; fixed seeds, so repeatable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

RESAMPLES = 10_000
CELLS = 2_000_000


@dataclass(frozen=True)
class Interval:
    """A point and its confidence interval."""

    point: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half of the width."""
        return (self.high - self.low) / 2


def cluster_bootstrap(clusters: Mapping[str, Sequence[float]], confidence: float, *, seed: int = 1) -> Interval:
    """Median of all values; percentile interval over clusters drawn with replacement, values within them too.

    Prompts (or rounds) are the clusters: verify steps of one request are correlated, and so are requests of a prompt.
    Percentiles are spread by what a few clusters hide (`_tail`).
    """
    import numpy as np

    groups = [np.asarray(v, dtype=float) for v in clusters.values() if len(v)]
    sizes = np.array([len(g) for g in groups])
    widest = int(sizes.max())
    table = np.full((len(groups), widest), np.nan)
    for row, group in zip(table, groups, strict=True):
        row[: len(group)] = group
    draw = np.random.default_rng(seed)
    at_once = min(RESAMPLES, max(1, CELLS // table.size))  # keeps the memory of a draw near 16 MB
    medians: list[float] = []
    while len(medians) < RESAMPLES:
        picked = draw.integers(len(groups), size=(at_once, len(groups)))
        inner = (draw.random((at_once, len(groups), widest)) * sizes[picked][..., None]).astype(int)
        values = table[picked[..., None], inner]
        if sizes.min() == widest:
            medians += np.median(values.reshape(at_once, -1), axis=1).tolist()
            continue
        values[np.arange(widest) >= sizes[picked][..., None]] = np.nan
        medians += np.nanmedian(values.reshape(at_once, -1), axis=1).tolist()
    tail = 100 * _tail(len(groups), confidence)
    low, high = np.percentile(medians[:RESAMPLES], [tail, 100 - tail])
    return Interval(median([x for v in clusters.values() for x in v]), float(low), float(high))


def _tail(clusters: int, confidence: float) -> float:
    """The share to cut at either end. Percentiles of n clusters drawn from n are too narrow by sqrt((n - 1) / n), and
    know nothing of Student's t: both are put back (Hesterberg 2015, expanded percentile interval)."""
    plain = (1 - confidence) / 2
    if clusters < 2:
        return plain
    return NormalDist().cdf(-math.sqrt(clusters / (clusters - 1)) * t_quantile(1 - plain, clusters - 1))


def sign_flip_p(values: Sequence[float], *, seed: int = 1) -> float:
    """Two-sided p of a zero mean under random signs: exact up to 2**12 sign patterns, sampled beyond."""
    import numpy as np

    x = np.asarray(values, dtype=float)
    n = len(x)
    if n == 0:
        return 1.0
    if n <= 12:
        bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        sums = np.abs((1 - 2 * bits) @ x)
        return float(np.mean(sums >= abs(x.sum()) - 1e-12))
    signs = np.random.default_rng(seed).choice((-1.0, 1.0), size=(RESAMPLES, n))
    extreme = int(np.sum(np.abs(signs @ x) >= abs(x.sum()) - 1e-12))
    return (extreme + 1) / (RESAMPLES + 1)


def pooled_length(rows: Sequence[tuple[int, int]], confidence: float = 0.95) -> Interval | None:
    """Pooled acceptance length of (drafts, accepted) rows, with a t interval that takes requests as clusters.

    Ratio estimator: R = sum A / sum D, residuals A - R D. None for fewer than two requests with drafts.
    """
    used = [(d, a) for d, a in rows if d > 0]
    if len(used) < 2:
        return None
    drafts, accepted = sum(d for d, _ in used), sum(a for _, a in used)
    ratio, n = accepted / drafts, len(used)
    spread = math.sqrt(n / (n - 1) * sum((a - ratio * d) ** 2 for d, a in used)) / drafts
    half = t_quantile(1 - (1 - confidence) / 2, n - 1) * spread
    return Interval(1 + ratio, 1 + ratio - half, 1 + ratio + half)


def t_quantile(share: float, df: int) -> float:
    """The quantile of Student's t: exact for 1 and 2 degrees of freedom, by bisection on its distribution above."""
    if df < 1 or not 0.5 <= share < 1:
        raise ValueError(f"no t quantile for {share} and {df} degrees of freedom")
    if df == 1:
        return math.tan(math.pi * (share - 0.5))
    if df == 2:
        return (2 * share - 1) * math.sqrt(2 / (1 - (2 * share - 1) ** 2))
    if df > 500:
        return NormalDist().inv_cdf(share)
    low, high = 0.0, 100.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_cdf(middle, df) < share else (low, middle)
    return (low + high) / 2


def _t_cdf(t: float, df: int) -> float:
    """Closed form by parity of the degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4), t >= 0."""
    theta = math.atan(t / math.sqrt(df))
    cos2 = math.cos(theta) ** 2
    if df % 2:
        term, total = math.cos(theta), math.cos(theta)
        for i in range(3, df - 1, 2):
            term *= (i - 1) / i * cos2
            total += term
        inside = 2 / math.pi * (theta + math.sin(theta) * (total if df > 1 else 0))
    else:
        term, total = 1.0, 1.0
        for i in range(2, df - 1, 2):
            term *= (i - 1) / i * cos2
            total += term
        inside = math.sin(theta) * total
    return 0.5 + inside / 2
