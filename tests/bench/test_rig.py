"""What the machine does during a block: compiles in a real engine log, clocks of several GPUs."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from recipectl.bench.rig import LogWatch, summary
from recipectl.gpu import Clocks

LOGS = Path(__file__).parents[1] / "data" / "logs"


def test_a_kernel_compiled_inside_a_block_is_found_in_a_real_log(tmp_path: Path) -> None:
    # The H200 server became ready and compiled _prepare_dflash_inputs_kernel in its first request.
    head, found, rest = gzip.decompress((LOGS / "h200-dflash2-k7-graphs.log.gz").read_bytes()).decode().partition(
        "Triton kernel JIT compilation during inference: _prepare_dflash_inputs_kernel")  # fmt: skip
    assert found
    log = tmp_path / "engine.log"
    log.write_text(head)
    watch = LogWatch(log)
    assert watch.compiled() == (), "what was compiled before the block is none of it"
    log.write_text(head + found + rest)
    assert "_prepare_dflash_inputs_kernel" in watch.compiled()[0]


@pytest.mark.parametrize(
    ("line", "compiles"),
    [  # as vLLM 0.32.0 logs them
        ("INFO 11-29 16:03:51 [monitor.py:40] [dflash2_candidate_selector] Starting torch.compile", True),
        ("INFO 11-29 16:03:47 [monitor.py:62] [backbone] torch.compile took 3.65 s in total", True),
        ("INFO 11-29 16:05:00 [loggers.py:271] Engine 000: Avg prompt throughput: 3.4 tokens/s", False),
        ("WARNING [vllm.py:1703] Enforce eager set, disabling torch.compile, CUDAGraphs", False),
    ],
)
def test_lines_of_the_engine(tmp_path: Path, line: str, compiles: bool) -> None:
    log = tmp_path / "engine.log"
    watch = LogWatch(log)
    log.write_text(line + "\n")
    assert bool(watch.compiled()) is compiles


def test_no_log_and_a_log_that_went_away(tmp_path: Path) -> None:
    assert LogWatch(None).compiled() == () and LogWatch(tmp_path / "none").compiled() == ()


def clock(index: int, mhz: int | None, **more: object) -> Clocks:
    return Clocks(**{"index": index, "sm_mhz": mhz, "power_w": 100.0, "temperature_c": 60, "throttled": (),
                     "power_capped": False, **more})  # type: ignore[arg-type] # fmt: skip


def test_a_gpu_that_idles_beside_the_server_is_no_drop() -> None:
    # GPU 0 idles, boosts to 1980 with a dip to 1900, and idles again; GPU 1 idles at 345 all along.
    samples = [s for mhz in (345, 1980, 1900, 1980, 345) for s in (clock(0, mhz), clock(1, 345))]
    seen = summary(samples)
    assert (seen["sm_min_mhz"], seen["sm_median_mhz"], seen["samples"]) == (1900, 1980, 10)


def test_the_gpu_that_fell_furthest_speaks_for_all() -> None:
    samples = [s for a, b in ((1980, 2200), (1980, 2200), (1980, 690), (1980, 2200), (1980, 2200))
               for s in (clock(0, a), clock(1, b, throttled=("HwThermalSlowdown",), temperature_c=91))]  # fmt: skip
    seen = summary(samples)
    assert (seen["sm_min_mhz"], seen["sm_median_mhz"]) == (690, 2200)
    assert (seen["throttled"], seen["temperature_max_c"]) == ("HwThermalSlowdown", 91)


def test_a_gpu_that_says_little() -> None:
    assert summary([]) == {}
    silent = summary([clock(0, None, power_w=None, temperature_c=None)] * 5)
    assert silent == {"samples": 5, "power_capped": False}
