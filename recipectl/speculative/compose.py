"""From a lane to what the engine is told: the --speculative-config and the CUDA graph capture sizes. PURE."""

from __future__ import annotations

from typing import Any

from recipectl.recipe.base import Json
from recipectl.recipe.lane import KTier, Lane

# Sizes below one verify step, for steps without drafts (prefill tails, a request's first token).
SMALL_SIZES = (1, 2, 4)
# recipectl's method -> SGLang's --speculative-algorithm.
SGLANG_ALGORITHMS = {
    "dflash": "DFLASH",
    "dspark": "DSPARK",
    "mtp": "EAGLE",
    "ngram": "NGRAM",
    "draft_model": "STANDALONE",
}
MODES_WITHOUT_FULL_GRAPHS = ("NONE", "PIECEWISE")


def compose(lane: Lane, drafter_path: str | None) -> dict[str, Json] | None:
    """What the engine gets for speculation; None if the lane drafts nothing.

    For vLLM the exact `--speculative-config` in the field's key order; for SGLang its flags, by underscore name, whose
    draft-token count is K + 1 (it counts the bonus token). `drafter_path` is the verified local folder; ValueError if
    the lane has a drafter and it is None.
    """
    spec = lane.speculative
    if spec.method == "none" or spec.k is None:
        return None
    if lane.drafter is not None and drafter_path is None:
        raise ValueError(f"method {spec.method} needs the folder of {lane.drafter}")
    drafter = drafter_path if lane.drafter is not None else None
    return _sglang(lane, drafter) if lane.engine.name == "sglang" else _vllm(lane, drafter)


def _vllm(lane: Lane, drafter_path: str | None) -> dict[str, Json]:
    spec = lane.speculative
    out: dict[str, Json] = {"method": spec.method}
    if drafter_path is not None:
        out["model"] = drafter_path
    out["num_speculative_tokens"] = spec.k
    if spec.schedule:
        out["num_speculative_tokens_per_batch_size"] = [[t.low, t.high, t.k] for t in spec.schedule]
    if spec.draft_tensor_parallel is not None:
        out["draft_tensor_parallel_size"] = spec.draft_tensor_parallel
    return {**out, **spec.options}


def _sglang(lane: Lane, drafter_path: str | None) -> dict[str, Json]:
    spec = lane.speculative
    k = spec.k or 0
    out: dict[str, Json] = {"speculative_algorithm": SGLANG_ALGORITHMS[spec.method]}
    if drafter_path is not None:
        out["speculative_draft_model_path"] = drafter_path
    if spec.method in ("mtp", "draft_model"):  # drafted one after the other, without a tree
        out |= {"speculative_num_steps": k, "speculative_eagle_topk": 1}
    out["speculative_num_draft_tokens"] = k + 1
    return {**out, **spec.options}


def capture_sizes(lane: Lane) -> tuple[int, ...] | None:
    """The CUDA graph sizes (tokens a step) of the lane: the recipe's own, else composed from K and max_num_seqs.

    Composed are (K + 1) x n for n = 1..max_num_seqs, each tier of a schedule with its own K, and 1, 2, 4 below them
    (sfxnz: K 5 with 4 sequences gives 1, 2, 4, 6, 12, 18, 24). None where the engine's own list stays: eager, CPU,
    piecewise, no speculation, max_num_seqs not set, or a largest size given (vLLM refuses a list that ends elsewhere).
    """
    if graphs_off(lane):
        return None
    if (own := own_sizes(lane)) is not None:
        return own
    steps = verify_steps(lane)
    if not steps or largest_size(lane) is not None:
        return None
    return tuple(sorted({*steps.values(), *(s for s in SMALL_SIZES if s < max(steps.values()))}))


def graphs_off(lane: Lane) -> str | None:
    """Why the lane has no full CUDA graphs, or None if it has."""
    mode = str(_compilation(lane).get("cudagraph_mode", "")).upper()
    if lane.engine.name == "vllm-cpu":
        return "the CPU has no CUDA graphs"
    if lane.args.get("enforce_eager") is True:
        return "eager"
    if mode in MODES_WITHOUT_FULL_GRAPHS:
        return f"cudagraph_mode is {mode}"
    if lane.engine.name == "sglang":
        return "SGLang sizes its own graphs"
    return None


def own_sizes(lane: Lane) -> tuple[int, ...] | None:
    """The capture sizes that the recipe itself gives."""
    given = lane.args.get("cudagraph_capture_sizes", _compilation(lane).get("cudagraph_capture_sizes"))
    if not isinstance(given, list):
        return None
    return tuple(sorted({s for s in given if isinstance(s, int) and not isinstance(s, bool)}))


def engine_sizes(largest: int) -> tuple[int, ...]:
    """The sizes that vLLM 0.32.0 chooses up to a largest one: 1, 2, 4, then steps of 8, from 256 steps of 16."""
    sizes = [*SMALL_SIZES, *range(8, min(largest + 1, 256), 8), *range(256, largest + 1, 16)]
    return tuple(s for s in sizes if s <= largest)


def largest_size(lane: Lane) -> int | None:
    """The recipe's max_cudagraph_capture_size, in tokens."""
    name = "max_cudagraph_capture_size"
    return as_int(lane.args.get(name, _compilation(lane).get(name)))


def verify_steps(lane: Lane) -> dict[int, int]:
    """Running requests n -> tokens of one verify step, (K + 1) x n; empty if K or max_num_seqs is not known."""
    spec, seqs = lane.speculative, max_num_seqs(lane)
    if spec.k is None or seqs is None or spec.method == "none":
        return {}
    return {n: (_k_at(spec.schedule, n, spec.k) + 1) * n for n in range(1, seqs + 1)}


def _k_at(schedule: list[KTier], n: int, default: int) -> int:
    return next((t.k for t in schedule if t.low <= n <= t.high), default)


def max_num_seqs(lane: Lane) -> int | None:
    """How many requests run at once, where the recipe says so."""
    name = "max_running_requests" if lane.engine.name == "sglang" else "max_num_seqs"
    found = as_int(lane.args.get(name))
    return found if found is not None and found >= 1 else None


def as_int(value: Any) -> int | None:
    """A JSON value as int; None for anything else (true is no number)."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _compilation(lane: Lane) -> dict[str, Any]:
    config = lane.args.get("compilation_config")
    return config if isinstance(config, dict) else {}
