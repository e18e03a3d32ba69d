"""The memory floor of unified-memory machines: a boot is aborted before the host locks up."""

from __future__ import annotations

import psutil

from recipectl.serving.plan import Plan

GIB = 1 << 30
# What sfxnz's watch uses on two GB10; a host below it has locked up so that only a power cycle helped.
DEFAULT_FLOOR_GIB = 8.0


def below_floor(plan: Plan) -> str | None:
    """Why the boot must end now, or None. Only where CPU and GPU share memory, or where the recipe sets a floor."""
    floor = plan.gates.memory_floor_gib
    if floor is None:
        if not plan.unified_memory:
            return None
        floor = DEFAULT_FLOOR_GIB
    available = psutil.virtual_memory().available / GIB
    if available >= floor:
        return None
    return f"this host has {available:.1f} GiB of memory left, the floor is {floor:.1f} GiB"
