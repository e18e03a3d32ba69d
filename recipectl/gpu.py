"""The GPUs of this machine, read through NVML. The only importer of pynvml."""

from __future__ import annotations

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
