"""The gates in the order of their layers. The flag says whether the layers above make no sense without it. PURE."""

from __future__ import annotations

from recipectl.serving import checks_boot as boot
from recipectl.serving import checks_live as live
from recipectl.serving.gates import Gate

GATES: dict[str, tuple[Gate, bool]] = {
    "alive": (boot.alive, True),
    "required-log": (boot.required_log, False),
    "forbidden-log": (boot.forbidden_log, False),
    "health": (boot.health, True),
    "model": (boot.served_name, True),
    "unauthorized": (boot.exposure, False),
    "kv-pool": (boot.kv_pool, False),
    "v2-runner": (boot.runner, False),
    "graphs": (boot.graphs, False),
    "taps": (boot.taps, False),
    "k-log": (boot.k_in_log, False),
    "generation": (live.generation, True),
    "counters": (live.counters, False),
    "k-metrics": (live.k_in_metrics, False),
    "acceptance": (live.acceptance, False),
    "prose-acceptance": (live.prose, False),
    "temperature": (live.temperature, False),
    "needle": (live.needle, False),
}
