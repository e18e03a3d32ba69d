"""The geometry of one lane, from the recipe and its lock, as rows and as JSON. PURE: `show --geometry` prints it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from recipectl.errors import PinError
from recipectl.geometry import Geometry, Layout, Pool, check_claim, compute, pool
from recipectl.geometry_model import KvModel, model_of
from recipectl.lockfile import Lock
from recipectl.recipe.lane import GeometryClaim, Lane
from recipectl.recipe.schema import Recipe

# What a lane that sets no token budget is assumed to schedule at once (vLLM's default for online serving).
DEFAULT_IN_FLIGHT = 8192


@dataclass(frozen=True)
class LaneGeometry:
    """Geometry of a lane, its pools (where the lane pins a KV budget) and published claims with what they miss."""

    geometry: Geometry
    budget: int | None
    shared: Pool | None
    own: Pool | None
    claims: tuple[tuple[GeometryClaim, tuple[str, ...]], ...]
    assumed: tuple[str, ...]


def for_lane(recipe: Recipe, lane: Lane, lock: Lock | None) -> LaneGeometry:
    """Compute the lane's geometry. PinError where neither lock nor recipe says how large a KV entry is."""
    assumed: list[str] = []
    target = _model(recipe, lane.target, lock, assumed)
    if target is None:
        raise PinError(
            f"the KV shape of {lane.target} is not known yet: it is read from its config.json",
            expected="facts.kv in the lock", next_step=f"recipectl lock {recipe.name}",
        )  # fmt: skip
    drafter = _model(recipe, lane.drafter, lock, assumed) if lane.drafter else None
    if lane.drafter and drafter is None:
        assumed.append(f"the KV shape of {lane.drafter} is not known: no drafter rows")
    geometry = compute(target, drafter, _layout(lane, assumed))
    budget = _int(lane, "kv_cache_memory_bytes") or _int(lane, "kv_cache_memory")
    length = _int(lane, "max_model_len")
    shared = own = None
    if budget and length:
        shared = pool(geometry, budget, length)
        own = pool(geometry, budget, length, draft_block=geometry.block) if drafter else None
    claims = tuple((c, tuple(check_claim(geometry, c.model_dump()))) for c in lane.geometry)
    return LaneGeometry(geometry, budget, shared, own, claims, tuple(assumed))


def _model(recipe: Recipe, name: str, lock: Lock | None, assumed: list[str]) -> KvModel | None:
    locked = lock.models.get(name) if lock else None
    if locked and locked.facts.kv:
        return model_of(name, locked.facts.kv)
    expect = recipe.models[name].expect
    window = expect.sliding_window if expect.attention == "sliding" else None
    plain = {"attention_layers": expect.layers, "kv_heads": expect.kv_heads, "head_dim": expect.head_dim}
    numbers = expect.kv or {k: v for k, v in {**plain, "sliding_window": window}.items() if v}
    found = model_of(name, numbers)
    if found:
        assumed.append(f"{name}: from the recipe's expected facts, not locked yet")
    return found


def _layout(lane: Lane, assumed: list[str]) -> Layout:
    in_flight = _int(lane, "max_num_batched_tokens")
    if in_flight is None:
        in_flight = DEFAULT_IN_FLIGHT
        assumed.append(f"max_num_batched_tokens is not set: {DEFAULT_IN_FLIGHT} tokens in flight assumed")
    dtype = str(lane.args.get("kv_cache_dtype", "auto"))
    spec = lane.speculative
    return Layout(
        tensor=lane.parallel.tensor, draft_tensor=spec.draft_tensor_parallel or lane.parallel.tensor, kv_dtype=dtype,
        draft_kv_dtype=str(spec.options.get("kv_cache_dtype", dtype)).replace("fp8_ds_mla", "fp8"), k=spec.k or 0,
        block_size=_int(lane, "block_size"), in_flight=in_flight,
    )  # fmt: skip


def _int(lane: Lane, key: str) -> int | None:
    value = lane.args.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def rows(view: LaneGeometry) -> list[tuple[str, str]]:
    """The geometry as label and value, in reading order; all bytes are per rank."""
    g = view.geometry
    t = g.target
    out = [
        ("target", f"{t.name}: {t.attention_layers} attention layers"
                   + (f", {t.linear_layers} linear" if t.linear_layers else "")),
        ("target KV", f"{g.token_bytes} B a token and layer ({g.layout.kv_dtype}, TP {g.layout.tensor}), "
                      f"{g.token_bytes * t.attention_layers} B a token in all"),
    ]  # fmt: skip
    if g.state_page:
        out.append(("linear state", f"{g.state_page} B a layer and request (K {g.layout.k} widens the convolution)"))
    out.append(("target block", f"{g.block} tokens, page {g.page} B"))
    if t.indexer_layers:
        out.append(("indexer", f"{g.indexer_page} B a page, one entry for {t.indexer_pool} tokens"))
    out += _draft_rows(g)
    for label, p in (("pool, slots shared", view.shared), ("pool, draft on its own", view.own)):
        if p:
            out.append((label, f"{p.tokens:,} tokens of {view.budget:,} B: {p.blocks} blocks, a full request takes "
                               f"{p.blocks_per_request} ({p.concurrency:.2f}x)"))  # fmt: skip
    for claim, problems in view.claims:
        says = (f"page {claim.page_bytes} B, target block {claim.target_block}, draft block {claim.draft_block} "
                f"({claim.draft_kv_heads} draft KV heads)")  # fmt: skip
        verdict = "DISPUTED: " + "; ".join(problems) if problems else "agrees"
        out += [("published", f"{says}, by {claim.evidence[0].source}"), ("", verdict)]
    return out + [("assumed", line) for line in view.assumed]


def _draft_rows(g: Geometry) -> list[tuple[str, str]]:
    if g.drafter is None or g.draft is None:
        return []
    d = g.draft
    window = f", window {g.drafter.sliding_window}" if g.drafter.sliding_window else ", full attention"
    same = f"{d.block} tokens make its page {g.page} B" if d.block else "no whole number of tokens gives the same page"
    if d.block and not d.divides_target_block:
        same += " (does not divide the target block: its own tensors are needed)"
    extra = g.block_bytes_own(g.block) - g.block_bytes_shared
    return [
        ("drafter", f"{g.drafter.name}: {g.drafter.attention_layers} layers{window}"),
        ("drafter KV", f"{d.token_bytes} B a token and layer ({d.kv_heads_rank} KV heads on a rank), "
                       f"{d.token_bytes * g.drafter.attention_layers} B a token in all"),
        ("drafter block", same),
        ("draft KV cost", f"slots shared: 0 B a block of {g.block_bytes_shared} B; own group: {extra} B a block "
                          f"(+{100 * extra / g.block_bytes_shared:.0f}%)"),
    ]  # fmt: skip


def to_json(view: LaneGeometry) -> dict[str, Any]:
    """The same for programs."""
    return {
        "geometry": asdict(view.geometry),
        "budget_bytes": view.budget,
        "pool_shared": asdict(view.shared) if view.shared else None,
        "pool_own": asdict(view.own) if view.own else None,
        "claims": [{**c.model_dump(mode="json"), "problems": list(p)} for c, p in view.claims],
        "assumed": list(view.assumed),
    }
