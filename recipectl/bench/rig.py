"""What the machine did during a block: GPU clocks, kernels compiled late, and which machine it was."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from recipectl.fsio import sha256_file
from recipectl.gpu import Clocks, clocks, gpus
from recipectl.recipe.base import Json

SAMPLE_S = 0.5
# What vLLM 0.32 and Triton, Inductor and FlashInfer log when they compile after warm-up.
_COMPILES = re.compile(
    r"jit[_ ]monitor|JIT compil|post-warm-?up compil|Compiling a graph|torch\.compile (takes|took)|"
    r"Starting torch\.compile|autotun\w+ .*(start|begin)",
    re.IGNORECASE,
)


class LogWatch:
    """The part of the engine log that was written since this was made."""

    def __init__(self, log: Path | None) -> None:
        self._log = log
        self._at = self._size()

    def _size(self) -> int:
        try:
            return self._log.stat().st_size if self._log else 0
        except OSError:
            return 0

    def compiled(self) -> tuple[str, ...]:
        """Lines that say that something was compiled meanwhile."""
        if self._log is None:
            return ()
        try:
            with self._log.open("rb") as handle:
                handle.seek(self._at)
                text = handle.read().decode(errors="replace")
        except OSError:
            return ()
        return tuple(line.strip()[:200] for line in text.splitlines() if _COMPILES.search(line))


class ClockWatch:
    """Clocks of all GPUs twice a second while a block runs."""

    def __init__(self) -> None:
        self._samples: list[Clocks] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="clock-watch", daemon=True)

    def start(self) -> None:
        """Begin sampling."""
        self._thread.start()

    def stop(self) -> None:
        """End sampling; one last sample is taken."""
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while True:
            self._samples += clocks()
            if self._stop.wait(SAMPLE_S):
                return

    def summary(self) -> dict[str, Json]:
        """What was seen so far (`summary`)."""
        return summary(self._samples)


def summary(samples: Sequence[Clocks]) -> dict[str, Json]:
    """Min and median SM clock in MHz of the GPU whose clock fell furthest, max temperature in C, mean power in W of one
    GPU, throttle reasons; {} without a GPU.

    GPUs are told apart: one that idles beside the server has a low clock all along, which is no drop.
    """
    if not samples:
        return {}
    sm: dict[int, list[int]] = {}
    for s in samples:
        if s.sm_mhz is not None:
            sm.setdefault(s.index, []).append(s.sm_mhz)
    # The first and the last sample may show a GPU that idles before or after the block.
    busy = [clocks_[1:-1] for clocks_ in sm.values() if len(clocks_) > 2]
    fell = min(busy, key=lambda mhz: min(mhz) / (median(mhz) or 1), default=[])
    hot = [s.temperature_c for s in samples if s.temperature_c is not None]
    power = [s.power_w for s in samples if s.power_w is not None]
    reasons = sorted({r for s in samples for r in s.throttled})
    return {
        "samples": len(samples),
        **({"sm_min_mhz": min(fell), "sm_median_mhz": median(fell)} if fell else {}),
        **({"temperature_max_c": max(hot)} if hot else {}),
        **({"power_mean_w": round(sum(power) / len(power), 1)} if power else {}),
        **({"throttled": ", ".join(reasons)} if reasons else {}),
        "power_capped": any(s.power_capped for s in samples),
    }


@contextlib.contextmanager
def clock_watch(gpu: bool) -> Iterator[ClockWatch]:
    """Watch the clocks while the block runs; nothing is sampled without a GPU lane."""
    watch = ClockWatch()
    if not gpu:
        yield watch
        return
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()


def describe() -> dict[str, Json]:
    """The machine the client runs on."""
    import psutil

    found = gpus()
    return {
        "host": platform.node(), "system": platform.platform(), "cpu": _cpu_name(), "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1), "python": platform.python_version(),
        "gpus": [g.name for g in found], "driver": found[0].driver if found else None,
    }  # fmt: skip


def digest(log: Path | None) -> str | None:
    """sha256 of the engine log as it stands, or None."""
    try:
        return sha256_file(log) if log else None
    except OSError:
        return None


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
