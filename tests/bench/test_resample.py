"""Quantiles against printed tables, intervals against cases whose answer is known."""

from __future__ import annotations

import random

import pytest

from recipectl.bench import resample


@pytest.mark.parametrize(
    ("df", "share", "value"),
    # Any printed table of Student's t.
    [(1, 0.975, 12.706), (2, 0.975, 4.303), (3, 0.975, 3.182), (4, 0.95, 2.132), (5, 0.975, 2.571), (10, 0.995, 3.169),
     (30, 0.975, 2.042), (31, 0.95, 1.696), (600, 0.975, 1.960)],
)  # fmt: skip
def test_students_t(df: int, share: float, value: float) -> None:
    assert resample.t_quantile(share, df) == pytest.approx(value, abs=6e-4)


def test_no_quantile_without_degrees_of_freedom() -> None:
    with pytest.raises(ValueError, match="no t quantile"):
        resample.t_quantile(0.975, 0)


def test_seed_zero_interval() -> None:
    # Field study: four rows, standard deviation .056, t95 half width about .089.
    found = resample.pooled_length([(333, 179), (325, 187), (310, 202), (335, 177)])
    assert found is not None and found.point == pytest.approx(1.5718, abs=5e-5)
    assert found.half == pytest.approx(0.089, abs=0.005)


def test_pooled_length_covers_the_truth_as_often_as_it_says() -> None:
    draw = random.Random(3)
    truth, covered, trials = 1 + 7 * 0.4, 0, 300
    for _ in range(trials):
        rows = [(100, sum(draw.random() < 0.4 for _ in range(700))) for _ in range(12)]
        found = resample.pooled_length(rows)
        assert found is not None
        covered += found.low <= truth <= found.high
    assert 0.91 <= covered / trials <= 0.985


@pytest.mark.parametrize("requests", [4, 32])
def test_it_covers_the_truth_where_requests_differ_and_steps_hang_together(requests: int) -> None:
    # Requests of 200 tokens at K 7: each has its own difficulty, and three of ten steps repeat the one before. Hard
    # requests take more drafts, so drafts and length are correlated. 500 blocks; three standard errors of .95 are .029.
    draw = random.Random(5)

    def request() -> tuple[int, int]:
        rate, tokens, drafts, accepted, last = draw.betavariate(6, 3), 1, 0, 0, -1
        while tokens < 200:
            if last < 0 or draw.random() > 0.3:
                last = next((j for j in range(7) if draw.random() > rate), 7)
            drafts, accepted, tokens = drafts + 1, accepted + last, tokens + last + 1
        return drafts, accepted

    pool = [request() for _ in range(4000)]
    truth = 1 + sum(a for _, a in pool) / sum(d for d, _ in pool)
    blocks = [resample.pooled_length(draw.sample(pool, requests)) for _ in range(500)]
    assert sum(b is not None and b.low <= truth <= b.high for b in blocks) / 500 >= 0.95 - 0.029


def test_bootstrap_keeps_clusters_together() -> None:
    # Two prompts that differ: an interval that forgot the clusters would be ten times too narrow.
    clusters = {"a": [1.0] * 50, "b": [2.0] * 50}
    found = resample.cluster_bootstrap(clusters, 0.95)
    assert (found.low, found.high) == (1.0, 2.0)
    alone = resample.cluster_bootstrap({str(i): [1.0] for i in range(8)}, 0.95)
    assert (alone.low, alone.point, alone.high) == (1.0, 1.0, 1.0)
    uneven = resample.cluster_bootstrap({"a": [1.0], "b": [1.0, 1.0, 1.0], "c": [1.0, 1.0]}, 0.95)
    assert (uneven.low, uneven.high) == (1.0, 1.0)


def test_sign_flips() -> None:
    # All five of one sign: 2 of 32 patterns are as extreme. Six: 2 of 64. That is why five rounds cannot reach .05.
    assert resample.sign_flip_p([1, 2, 3, 4, 5]) == 2 / 32
    assert resample.sign_flip_p([1, 2, 3, 4, 5, 6]) == 2 / 64
    assert resample.sign_flip_p([1.0, -1.0]) == 1.0
    assert resample.sign_flip_p([]) == 1.0
    assert resample.sign_flip_p([1.0 + 0.01 * i for i in range(40)]) < 0.001
