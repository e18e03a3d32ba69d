"""The boot watch against recorded boots, with the clock of their own time stamps."""

from __future__ import annotations

import re

from recipectl.serving import logfacts
from recipectl.serving.boot import Boot
from tests.serving.logs import read

STAMP = re.compile(r" (\d\d):(\d\d):(\d\d) \[")


def fed(name: str, budgets: dict[str, int] | None = None) -> tuple[Boot, list[str], float]:
    """A boot fed with a recorded log; the phases in order; the last time."""
    boot, phases, first, now = Boot(budgets or {}), ["start"], None, 0.0
    for line in read(name):
        if match := STAMP.search(line):
            seconds = int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3])
            first = seconds if first is None else first
            now = float(seconds - first)
        boot.feed(line, now)
        if boot.phase != phases[-1]:
            phases.append(boot.phase)
    return boot, phases, now


def test_the_phases_of_a_cpu_boot() -> None:
    boot, phases, _ = fed("cpu-dflash-k7")
    assert phases == ["start", "weights", "drafter", "kv", "ready"]
    # Log: 15:44:14 first line, 15:44:48 loads weights, 15:44:50 drafter, 15:44:51 KV, 15:44:54 serves.
    assert boot.elapsed == {"start": 34.0, "weights": 2.0, "drafter": 1.0, "kv": 3.0}
    assert boot.fatal is None


def test_the_phases_of_a_gpu_boot_with_graphs() -> None:
    boot, phases, _ = fed("h200-dflash2-k7-graphs")
    assert {"weights", "drafter", "compile", "capture", "kv", "ready"} <= set(phases)
    assert phases[-1] == "ready" and boot.fatal is None
    # Log: from 16:03:17 to the API at 16:04:47.
    assert sum(boot.elapsed.values()) == 90.0


def test_the_first_fatal_line_is_kept() -> None:
    boot, _, now = fed("h200-boot-fails-kernel-missing")
    assert boot.fatal is not None and "EngineCore failed to start" in boot.fatal
    assert boot.fatal_at is not None and boot.fatal_at <= now


def test_a_phase_over_its_budget_is_told() -> None:
    boot = Boot({"weights": 60})
    boot.feed("(W pid=1) INFO 11-29 10:00:00 [a.py:1] Starting to load model x", 10.0)
    assert boot.over_budget(69.0) is None
    assert boot.over_budget(71.0) == "loading weights takes 61 s, its budget is 60 s"


def test_the_facts_that_the_logs_state() -> None:
    cpu = logfacts.read(read("cpu-dflash-k7"))
    assert (cpu.k, cpu.kv_pool_tokens, cpu.taps) == (7, 43_648, (6, 15, 25))
    assert (cpu.v2_runner, cpu.graphs, cpu.version) == (False, False, "0.32.0")
    gpu = logfacts.read(read("h200-dflash2-k7-graphs"))
    assert (gpu.k, gpu.kv_pool_tokens, gpu.taps) == (7, 780_512, (2, 9, 16, 23, 30))
    assert (gpu.v2_runner, gpu.graphs) == (True, True)
    plain = logfacts.read(read("cpu-2-nodes-tp2-rank0"))
    assert plain.k is None and plain.taps is None


def test_k_from_the_warm_up_line_alone() -> None:
    line = "Warming up spec-decode rejection sampler kernels (vocab=154880, num_spec=7, max_num_reqs=6)"
    assert logfacts.read([line]).k == 7
