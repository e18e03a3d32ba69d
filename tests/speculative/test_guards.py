"""G001: the KV pin of two GB10 and its kind. 4.14 GiB good, 5.0 slow and wedged, 5.14 crashed."""

from __future__ import annotations

from typing import Any

import pytest

from recipectl.speculative import RuleVerdict, check, with_overrides

from .builder import recipe, the_lane

GIB = 2**30
# Seed 3 and sfxnz's launcher: 4445787956 bytes are 4.14 GiB.
GOOD = 4445787956


def point(value: float, outcome: str, **evidence: Any) -> dict[str, Any]:
    return {"value": value, "outcome": outcome, "evidence": [{"source": "sfxnz PR 1", **evidence}]}


PIN = [point(GOOD, "good"), point(5 * GIB, "slow"), point(5.14 * GIB, "crashed")]


def judged(points: list[dict[str, Any]], key: str = "kv_cache_memory", sets: Any = (), **guard: Any) -> RuleVerdict:
    found = recipe({"guards": [{"key": f"args.{key}", "points": points, **guard}], "args": {key: GOOD}})
    name, lane = the_lane(found)
    return next(v for v in check(found, name, with_overrides(lane, sets, None), None) if v.code == "G001")


@pytest.mark.parametrize(
    ("value", "expected", "told"),
    [
        (GOOD, "PASS", "4445787956 (4.14 GiB) ran well"),
        (4 * GIB, "PASS", "is on the safe side of 4445787956 (4.14 GiB)"),
        (int(4.5 * GIB), "WARN", "nobody ran"),
        (5 * GIB, "FAIL", "was slow"),
        (int(5.07 * GIB), "FAIL", "is beyond 5368709120 (5.00 GiB), which was slow"),
        (6 * GIB, "FAIL", "crashed"),
    ],
)
def test_the_kv_pin_of_two_gb10(value: int, expected: str, told: str) -> None:
    seen = judged(PIN, sets=[("args.kv_cache_memory", value)])
    assert seen.verdict == expected and told in seen.message
    if expected == "FAIL":
        assert seen.fix == "set args.kv_cache_memory to 4445787956"


def test_another_spelling_of_the_flag_is_guarded_too() -> None:
    seen = judged(PIN, sets=[("args.kv_cache_memory", None), ("args.kv_cache_memory_bytes", 5 * GIB)])
    assert seen.verdict == "FAIL" and seen.where == ("args", "kv_cache_memory_bytes")


def test_less_can_be_worse() -> None:
    points = [point(2, "crashed"), point(8, "good")]
    assert judged(points, "cpu_offload_gb", [("args.cpu_offload_gb", 1)]).verdict == "FAIL"
    assert judged(points, "cpu_offload_gb", [("args.cpu_offload_gb", 4)]).verdict == "WARN"
    assert judged(points, "cpu_offload_gb", [("args.cpu_offload_gb", 16)]).verdict == "PASS"


def test_mixed_evidence_decides_only_about_what_was_run() -> None:
    points = [point(1, "good"), point(2, "wedged"), point(3, "good")]
    verdicts = [judged(points, "cpu_offload_gb", [("args.cpu_offload_gb", v)]).verdict for v in (1, 2, 2.5, 3, 4)]
    assert verdicts == ["PASS", "FAIL", "WARN", "PASS", "WARN"]


def test_retracted_points_do_not_count() -> None:
    points = [point(GOOD, "good"), point(5 * GIB, "wedged", status="retracted")]
    assert judged(points, sets=[("args.kv_cache_memory", 5 * GIB)]).verdict == "WARN"


def test_out_of_scope_or_unset_is_not_applicable() -> None:
    assert judged(PIN, scope={"lane": "sm100"}).verdict == "NOT_APPLICABLE"
    assert judged(PIN, sets=[("args.kv_cache_memory", None)]).verdict == "NOT_APPLICABLE"


def test_sizes_with_units_are_numbers() -> None:
    # canada-quant caps the container at 118g
    key = {"key": "container.memory", "points": [point(118 * GIB, "good"), point(120 * GIB, "wedged")]}
    found = recipe({"guards": [key], "container": {"memory": "120g"}})
    name, lane = the_lane(found)
    assert next(v for v in check(found, name, lane, None) if v.code == "G001").verdict == "FAIL"
