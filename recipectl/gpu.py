"""The GPUs of this machine, read through NVML. The only importer of pynvml."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recipectl.recipe.families import Family, family_of_capability


@dataclass(frozen=True)
class Gpu:
    """One GPU. `memory` is in bytes; None where NVML cannot say (GB10 has no memory of its own)."""

    index: int
    uuid: str
    name: str
    capability: tuple[int, int]
    memory: int | None
    driver: str

    @property
    def family(self) -> Family | None:
        """The SM family, or None for a GPU that no lane is for."""
        return family_of_capability(self.capability)


def gpus() -> list[Gpu]:
    """All GPUs, in NVML's order. Empty without an NVIDIA driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        return [_read(index, driver) for index in range(pynvml.nvmlDeviceGetCount())]
    finally:
        pynvml.nvmlShutdown()


@dataclass(frozen=True)
class Clocks:
    """One sample of one GPU. None where this GPU does not say (GB10 lacks several). `throttled` names the reasons."""

    index: int
    sm_mhz: int | None
    power_w: float | None
    temperature_c: int | None
    throttled: tuple[str, ...]
    power_capped: bool


# Idle, application clocks and sync boost are settings, and a power cap is how data-centre GPUs run; these are faults.
_THROTTLES = {"HwSlowdown": 0x8, "SwThermalSlowdown": 0x20, "HwThermalSlowdown": 0x40, "HwPowerBrakeSlowdown": 0x80}
_POWER_CAP = 0x4


def clocks() -> list[Clocks]:
    """SM clock, power, temperature and throttle reasons of all GPUs now. Empty without an NVIDIA driver."""
    import pynvml as nv

    try:
        nv.nvmlInit()
    except nv.NVMLError:
        return []
    try:
        return [_clocks(index) for index in range(nv.nvmlDeviceGetCount())]
    finally:
        nv.nvmlShutdown()


def _clocks(index: int) -> Clocks:
    import pynvml as nv

    handle = nv.nvmlDeviceGetHandleByIndex(index)

    def ask(question: Callable[..., int], *more: int) -> int | None:
        try:
            return int(question(handle, *more))
        except nv.NVMLError:
            return None

    power = ask(nv.nvmlDeviceGetPowerUsage)
    mask = ask(nv.nvmlDeviceGetCurrentClocksThrottleReasons) or 0
    return Clocks(
        index, ask(nv.nvmlDeviceGetClockInfo, nv.NVML_CLOCK_SM), power / 1000 if power is not None else None,
        ask(nv.nvmlDeviceGetTemperature, nv.NVML_TEMPERATURE_GPU),
        tuple(name for name, bit in _THROTTLES.items() if mask & bit), bool(mask & _POWER_CAP),
    )  # fmt: skip


def _read(index: int, driver: str) -> Gpu:
    import pynvml as nv

    handle = nv.nvmlDeviceGetHandleByIndex(index)
    try:
        memory: int | None = int(nv.nvmlDeviceGetMemoryInfo(handle).total) or None
    except nv.NVMLError:
        memory = None
    major, minor = nv.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(
        index, _text(nv.nvmlDeviceGetUUID(handle)), _text(nv.nvmlDeviceGetName(handle)), (major, minor), memory, driver
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
