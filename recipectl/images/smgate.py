"""The SM gate: recipe, image, overlay and drafter kernels against the machine. PURE.

A family is not a floor. Code for 10.0 runs on 10.3 unless it was compiled for `100a` alone; nothing of SM100 runs on
12.1; the B12X kernels that MXFP8 drafters need exist on SM12x only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from recipectl.recipe.families import Family

Verdict = Literal["PASS", "FAIL", "NOT_CHECKED"]
Capability = tuple[int, int]
_ARCH = re.compile(r"(sm|compute)_(\d{2,3})([af]?)\Z")
_BARE = re.compile(r"(\d{1,2})\.(\d)([af]?)(\+PTX)?\Z")
PLATFORMS = {"x86_64": "linux/amd64", "amd64": "linux/amd64", "aarch64": "linux/arm64", "arm64": "linux/arm64"}


class GpuLike(Protocol):
    """What the gate needs of a GPU; `recipectl.gpu.Gpu` is one."""

    @property
    def uuid(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def capability(self) -> Capability: ...


@dataclass(frozen=True)
class Row:
    """One question of the gate and its answer."""

    subject: str
    verdict: Verdict
    message: str
    fix: str | None = None


@dataclass(frozen=True)
class Subject:
    """What is to run: a lane's family, and what image, overlay and drafter say about themselves (None: not stated)."""

    family: Family
    image_platform: str | None = None
    arch_list: tuple[str, ...] | None = None
    overlay_families: tuple[str, ...] | None = None
    overlay_capabilities: tuple[Capability, ...] = ()
    drafter: str | None = None
    kernels: tuple[str, ...] = ()
    alternative_drafter: str | None = None


def covers(arch: str, capability: Capability) -> bool:
    """Whether code compiled for `arch` runs on a GPU of this capability.

    `sm_100` runs on later minors of its major; `sm_100f` the same, by promise of its family; `sm_100a` on 10.0 alone;
    `compute_90` is PTX and runs on anything from 9.0; `10.0+PTX` is both.
    """
    if bare := _BARE.match(arch):
        major, minor, suffix, ptx = int(bare[1]), int(bare[2]), bare[3], bool(bare[4])
        forms = [f"sm_{major}{minor}{suffix}", *([f"compute_{major}{minor}"] if ptx else [])]
        return any(covers(form, capability) for form in forms)
    found = _ARCH.match(arch)
    if not found:
        return False
    built = (int(found[2][:-1]), int(found[2][-1]))
    if found[3] == "a":
        return capability == built
    if found[1] == "compute" and found[3] == "":
        return capability >= built
    return capability[0] == built[0] and capability[1] >= built[1]


def check(subject: Subject, gpus: Sequence[GpuLike], machine: str) -> list[Row]:
    """All rows of the gate. `machine` is `platform.machine()`; without GPUs only what needs none is decided."""
    rows = [_gpu_row(subject.family, gpus), _platform_row(subject, machine)]
    targets = sorted({g.capability for g in gpus if g.capability in subject.family.capabilities})
    rows += _code_rows(subject, targets or list(subject.family.capabilities), bool(targets))
    rows += _overlay_rows(subject, targets)
    rows += _kernel_rows(subject)
    return rows


def matching(family: Family, gpus: Sequence[GpuLike]) -> list[GpuLike]:
    """The GPUs of this machine that belong to the family, told apart by UUID: a Station may hold another card too."""
    return [g for g in gpus if g.capability in family.capabilities]


def dotted(capability: Capability) -> str:
    """`10.3`."""
    return f"{capability[0]}.{capability[1]}"


def _gpu_row(family: Family, gpus: Sequence[GpuLike]) -> Row:
    if not family.capabilities:
        return Row("gpu", "PASS", f"{family.name} needs no GPU")
    wanted = " or ".join(dotted(c) for c in family.capabilities)
    if not gpus:
        return Row(
            "gpu", "NOT_CHECKED", f"no NVIDIA GPU is visible here: whether this machine is {family.name} ({wanted}) is "
            "decided by --sm alone",
        )  # fmt: skip
    seen = "; ".join(f"{g.name} {dotted(g.capability)} {g.uuid}" for g in gpus)
    fitting = matching(family, gpus)
    if not fitting:
        return Row("gpu", "FAIL", f"{family.name} needs {wanted}, this machine has {seen}",
                   "choose the lane of this GPU with --sm, or run on " + family.machines)  # fmt: skip
    if len(fitting) < len(gpus):
        chosen = ", ".join(g.uuid for g in fitting)
        return Row("gpu", "PASS", f"of {seen}, {chosen} is used, chosen by UUID: an index can change")
    return Row("gpu", "PASS", seen)


def _platform_row(subject: Subject, machine: str) -> Row:
    here = PLATFORMS.get(machine, machine)
    if subject.image_platform is None:
        return Row("platform", "NOT_CHECKED", f"the image's platform is not known yet; this machine is {here}",
                   "recipectl lock")  # fmt: skip
    if subject.image_platform == here:
        return Row("platform", "PASS", here)
    return Row("platform", "FAIL", f"the image is {subject.image_platform}, this machine is {here}",
               "lock the image for this machine's platform, or build on the machine that will serve")  # fmt: skip


def _code_rows(subject: Subject, targets: Sequence[Capability], certain: bool) -> list[Row]:
    if not subject.family.capabilities:
        return []
    if not subject.arch_list:
        return [Row("code", "NOT_CHECKED", "the image does not state for which architectures it was compiled",
                    "the proof of `recipectl build` reads it from the image")]  # fmt: skip
    listed = " ".join(subject.arch_list)
    missing = [c for c in targets if not any(covers(a, c) for a in subject.arch_list)]
    if not missing:
        return [Row("code", "PASS", f"{listed} covers {', '.join(dotted(c) for c in targets)}")]
    names = ", ".join(dotted(c) for c in missing)
    major = missing[0][0] * 10
    only_a = any(a in (f"sm_{major}a", f"compute_{major}a", f"{missing[0][0]}.0a") for a in subject.arch_list)
    why = f": code built for {major}a alone runs on {missing[0][0]}.0 only" if only_a else ""
    return [Row("code", "FAIL" if certain or len(missing) == len(targets) else "NOT_CHECKED",
                f"nothing in {listed} runs on {names}{why}",
                f"an image compiled for {names}, for the family ({major}f) or with PTX")]  # fmt: skip


def _overlay_rows(subject: Subject, targets: Sequence[Capability]) -> list[Row]:
    if subject.overlay_families is None:
        return []
    if subject.family.name not in subject.overlay_families:
        return [Row("overlay", "FAIL", f"the overlay is for {', '.join(subject.overlay_families)}, not for "
                    f"{subject.family.name}", "name the overlay of this family in the lane")]  # fmt: skip
    beyond = [dotted(c) for c in targets if subject.overlay_capabilities and c not in subject.overlay_capabilities]
    if beyond:
        stated = ", ".join(dotted(c) for c in subject.overlay_capabilities)
        return [
            Row(
                "overlay", "FAIL", f"the overlay is for {stated}, this GPU is {', '.join(beyond)}", "extend the overlay"
            )
        ]
    return [Row("overlay", "PASS", f"is for {', '.join(subject.overlay_families)}")]


def _kernel_rows(subject: Subject) -> list[Row]:
    if "b12x" not in subject.kernels:
        return []
    if subject.family.b12x:
        return [Row("drafter kernels", "PASS", f"B12X runs on {subject.family.name}")]
    other = subject.alternative_drafter or "the BF16 drafter incoai/GLM-5.3-Flash-DFlash2"
    return [Row("drafter kernels", "FAIL", f"{subject.drafter or 'the drafter'} needs the B12X kernels, which exist on "
                f"SM12x only, not on {subject.family.name}", f"use {other}")]  # fmt: skip


def failures(rows: Sequence[Row]) -> list[Row]:
    """The rows that forbid to go on."""
    return [r for r in rows if r.verdict == "FAIL"]
