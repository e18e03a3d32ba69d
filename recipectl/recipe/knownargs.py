"""Types of the engine arguments that rules and geometry compute with. Other arguments are the engine's own business.

A quoted number would pass the engine (it parses words) but blind every rule that needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _positive(value: Any) -> bool:
    return _int(value) and value >= 1


def _sequences(value: Any) -> bool:
    return _positive(value) and value <= MOST_SEQUENCES


def _share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_positive, value))


# Captures are composed for every n up to this many; vLLM's own largest default is 1024.
MOST_SEQUENCES = 4096
Check = tuple[Callable[[Any], bool], str]
_COUNT: Check = (_positive, "a whole number from 1")
_SWITCH: Check = (lambda value: isinstance(value, bool), "true or false")
KNOWN: dict[str, Check] = {
    **dict.fromkeys(
        (
            "max_num_batched_tokens", "context_length", "block_size",
            "kv_cache_memory", "kv_cache_memory_bytes", "max_cudagraph_capture_size",
        ),
        _COUNT,
    ),
    **dict.fromkeys(
        ("max_num_seqs", "max_running_requests"), (_sequences, f"a whole number from 1 to {MOST_SEQUENCES}")
    ),
    # vLLM takes -1 and auto for the longest that fits.
    "max_model_len": (lambda value: _positive(value) or value in (-1, "auto"), "a whole number from 1, -1 or auto"),
    **dict.fromkeys(("gpu_memory_utilization", "mem_fraction_static"), (_share, "a number above 0, at most 1")),
    **dict.fromkeys(("enforce_eager", "trust_remote_code", "enable_prefix_caching"), _SWITCH),
    "cudagraph_capture_sizes": (_sizes, "a list of whole numbers"),
    "compilation_config": (lambda value: isinstance(value, dict | int), "a mapping"),
}  # fmt: skip


def problem(name: str, value: Any) -> str | None:
    """What is wrong with the value of a known argument, or None."""
    check, expected = KNOWN.get(name, (None, ""))
    if check is None or value is None or check(value):
        return None
    shown = f'the text "{value}"' if isinstance(value, str) else str(value)
    return f"expected {expected}, got {shown}"
