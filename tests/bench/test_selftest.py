"""The self-test keeps its own limits here, and would notice a client that errs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recipectl.bench import selftest
from tests.conftest import Cli

ROW = selftest.Row(4, 0.001, 0.01, 0.001, 0.001, 0.1, True, True, 0.1, 1.0, 80.0, 0.1)


@pytest.mark.parametrize(
    "change",
    [{"window_median": 0.003}, {"aggregate": 0.003}, {"tokens_exact": False}, {"acceptance_exact": False},
     {"core": 0.61}, {"memory_mb": 301.0}],
)  # fmt: skip
def test_every_limit_is_held(change: dict[str, object]) -> None:
    assert ROW.failures() == []
    assert len(replace(ROW, **change).failures()) == 1  # type: ignore[arg-type]


def test_the_limit_is_wider_at_256_streams() -> None:
    assert replace(ROW, concurrency=256, window_median=0.009, aggregate=0.009).failures() == []


def test_counts_and_faults_are_exact(cli: Cli) -> None:
    # Times are judged by hand and in docs/bench.md: this machine may be busy. Counts may never err.
    done = cli("bench", "--selftest", "--concurrency", "2,8", "--json")
    import json

    report = json.loads(done.stdout)
    assert [(r["concurrency"], r["tokens_exact"], r["acceptance_exact"]) for r in report["rows"]] == [
        (2, True, True), (8, True, True)]  # fmt: skip
    assert all(r["window_median"] < 0.05 for r in report["rows"])
    assert not [f for f in report["failures"] if f.startswith("fault")]
    assert done.returncode == (9 if report["failures"] else 0)
