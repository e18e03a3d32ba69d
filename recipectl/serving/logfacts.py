"""What an engine's boot log states about itself: K, KV pool, taps, runner, graphs, version. PURE."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_K = (
    re.compile(r"num_spec_tokens=(\d+)"),
    re.compile(r"\bnum_spec=(\d+)"),
    re.compile(r"['\"]num_speculative_tokens['\"]: (\d+)"),
)
_POOL = re.compile(r"(?:GPU|CPU) KV cache size: ([\d,]+) tokens")
_TAPS = re.compile(r"Using (?:Eagle3 )?auxiliary layers from (?:speculative )?config: \(([\d, ]+)\)")
_VERSION = re.compile(r"(?:LLM engine \(v|vLLM \(v|\bversion )(\d+\.\d+[\w.+]*)")


@dataclass(frozen=True)
class LogFacts:
    """None: the log does not say. `taps` are as logged, which is one more than in the drafter's config.json."""

    k: int | None = None
    kv_pool_tokens: int | None = None
    taps: tuple[int, ...] | None = None
    v2_runner: bool = False
    graphs: bool = False
    version: str | None = None


def read(lines: Iterable[str]) -> LogFacts:
    """Collect the facts of one rank's log. A later statement replaces an earlier one (the pool is printed twice)."""
    ks: list[int | None] = [None] * len(_K)
    pool: int | None = None
    taps: tuple[int, ...] | None = None
    version: str | None = None
    v2 = graphs = False
    for line in lines:
        for i, pattern in enumerate(_K):
            if match := pattern.search(line):
                ks[i] = int(match[1])
        if match := _POOL.search(line):
            pool = int(match[1].replace(",", ""))
        elif match := _TAPS.search(line):
            taps = tuple(int(t) for t in match[1].split(",") if t.strip())
        elif version is None and (match := _VERSION.search(line)):
            version = match[1]
        v2 = v2 or "Using V2 Model Runner" in line
        graphs = graphs or "Graph capturing finished in" in line
    # The engine's own config outranks the warm-up line, and both outrank the arguments as given.
    return LogFacts(next((k for k in ks if k is not None), None), pool, taps, v2, graphs, version)
