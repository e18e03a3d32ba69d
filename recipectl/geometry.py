"""KV page and block arithmetic of a target with its drafter. PURE, usable before any build.

The rules are those of vLLM 0.32.0 (`_align_hybrid_block_size`, `kda_state_shape`, `SlidingWindowSpec`), in bytes per
rank. In a hybrid model the attention page must hold one linear-attention state, which fixes the attention block; the
drafter's block is then chosen so that its page equals the target's, or the drafter gets tensors of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recipectl.errors import RecipeError
from recipectl.geometry_model import KvModel

# Bytes of one cached number. `auto` is the model's dtype, bf16 wherever this tool is used. fp8_ds_mla packs a whole
# MLA token: 512 fp8 + 16 of scales + 64 bf16 of rope = 656 B, and exists for a rope width of 64 only.
KV_BYTES = {"auto": 2, "bfloat16": 2, "float16": 2, "float32": 4, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
DS_MLA_TOKEN = 656
# FlashInfer's and TRTLLM's MLA kernels need manager blocks in multiples of 128 tokens; others take 16.
MLA_ALIGNMENT = 128
DENSE_ALIGNMENT = 16


@dataclass(frozen=True)
class Layout:
    """How a lane runs the pair: ranks, KV dtypes, K, and the engine's block size where the recipe sets one.

    `in_flight` are tokens scheduled but not settled; a sliding-window drafter keeps their blocks too.
    """

    tensor: int = 1
    draft_tensor: int = 1
    kv_dtype: str = "auto"
    draft_kv_dtype: str = "auto"
    k: int = 0
    block_size: int | None = None
    in_flight: int = 8192


@dataclass(frozen=True)
class DraftFit:
    """The drafter's KV against a target page. `block` is None where no whole number of tokens gives that page."""

    kv_heads_rank: int
    token_bytes: int
    block: int | None
    divides_target_block: bool


@dataclass(frozen=True)
class Geometry:
    """The result, in tokens and bytes per rank; see `rows` for what each number means."""

    layout: Layout
    target: KvModel
    drafter: KvModel | None
    token_bytes: int
    state_page: int
    block: int
    page: int
    indexer_page: int
    draft: DraftFit | None

    @property
    def block_bytes_shared(self) -> int:
        """Bytes of one pool block where the drafter aliases target pages (slot sharing), or without a drafter."""
        return self.target.attention_layers * self.page + self.target.indexer_layers * self.indexer_page

    def block_bytes_own(self, draft_block: int) -> int:
        """Bytes of one pool block where the drafter has tensors of its own with `draft_block` tokens a page."""
        if self.drafter is None or self.draft is None:
            return self.block_bytes_shared
        return self.block_bytes_shared + self.drafter.attention_layers * draft_block * self.draft.token_bytes


@dataclass(frozen=True)
class Pool:
    """A KV pool of a byte budget: `tokens` as vLLM logs it (requests of `max_model_len` that fit, times that)."""

    blocks: int
    tokens: int
    blocks_per_request: int
    draft_blocks_per_request: int
    state_blocks_per_request: int
    concurrency: float


def token_bytes(model: KvModel, tensor: int, kv_dtype: str) -> int:
    """KV bytes of one token in one attention layer on one rank. RecipeError for a dtype that does not fit."""
    if kv_dtype == "fp8_ds_mla":
        if not model.latent or model.rope != 64:
            raise RecipeError(
                "fp8_ds_mla needs an MLA model with a rope width of 64",
                on=model.name,
                seen=f"latent {model.latent}, rope {model.rope}",
                next_step="use kv_cache_dtype fp8",
            )
        return DS_MLA_TOKEN
    if kv_dtype not in KV_BYTES:
        raise RecipeError(
            "geometry does not know this KV dtype", seen=kv_dtype, expected=", ".join([*KV_BYTES, "fp8_ds_mla"])
        )
    width = KV_BYTES[kv_dtype]
    if model.latent:
        return (model.latent + model.rope) * width  # one latent vector, the same on every rank
    return 2 * heads_per_rank(model, tensor) * model.head_dim * width


def heads_per_rank(model: KvModel, tensor: int) -> int:
    """KV heads on one rank: split evenly, repeated where there are fewer heads than ranks."""
    return max(1, model.kv_heads // tensor)


def state_bytes(model: KvModel, tensor: int, k: int) -> int:
    """Bytes of one linear-attention state on one rank; 0 without such layers.

    Convolution state of q, k and v over (kernel - 1 + K) tokens in bf16, recurrent state in float32. K counts because
    a verify step slides the window over the drafted tokens.
    """
    if not model.linear_layers:
        return 0
    channels = 3 * model.linear_heads * model.linear_head_dim // tensor
    recurrent = (model.linear_heads // tensor) * model.linear_head_dim**2 * 4
    return channels * (model.linear_kernel - 1 + k) * 2 + recurrent


def attention_block(model: KvModel, per_token: int, state: int, block_size: int | None) -> int:
    """Tokens of one attention block: the smallest aligned one whose page holds a linear-attention state."""
    align = max(MLA_ALIGNMENT if model.latent else DENSE_ALIGNMENT, block_size or 0)
    return align * max(1, -(-state // (align * per_token)))


def fit_drafter(drafter: KvModel, layout: Layout, page: int, block: int, kv_heads: int | None = None) -> DraftFit:
    """The drafter block whose page equals `page`; `kv_heads` overrides the drafter's own, to test a claim."""
    heads = max(1, kv_heads // layout.draft_tensor) if kv_heads else heads_per_rank(drafter, layout.draft_tensor)
    per_token = 2 * heads * drafter.head_dim * KV_BYTES[layout.draft_kv_dtype]
    exact = page // per_token if page % per_token == 0 else None
    return DraftFit(heads, per_token, exact, exact is not None and block % exact == 0)


def compute(target: KvModel, drafter: KvModel | None, layout: Layout) -> Geometry:
    """The geometry of a pair under a layout."""
    per_token = token_bytes(target, layout.tensor, layout.kv_dtype)
    state = state_bytes(target, layout.tensor, layout.k)
    block = attention_block(target, per_token, state, layout.block_size)
    page = block * per_token
    indexer = block // max(1, target.indexer_pool) * target.indexer_bytes
    fit = fit_drafter(drafter, layout, page, block) if drafter else None
    return Geometry(layout, target, drafter, per_token, state, block, page, indexer, fit)


def pool(geometry: Geometry, budget: int, max_model_len: int, draft_block: int | None = None) -> Pool:
    """The pool of `budget` bytes. `draft_block` None: slot sharing where it fits; else the drafter's own block."""
    g, sharing = geometry, draft_block is None
    bytes_each = g.block_bytes_shared if sharing else g.block_bytes_own(draft_block or g.block)
    blocks = budget // bytes_each
    # Layers are grouped by the number of attention layers, and each group of states takes block ids of its own.
    groups = -(-g.target.linear_layers // max(1, g.target.attention_layers))
    states = groups * (1 + g.layout.k)
    drafts = _draft_blocks(g, draft_block, max_model_len)
    per_request = -(-max_model_len // g.block) + states + drafts
    return Pool(blocks, blocks * max_model_len // per_request, per_request, drafts, states, blocks / per_request)


def _draft_blocks(g: Geometry, draft_block: int | None, max_model_len: int) -> int:
    """Block ids that one request's drafter holds at `max_model_len`; 0 where it shares the target's own group."""
    size = draft_block or (g.draft.block if g.draft else None)
    if g.drafter is None or size is None or (size == g.block and not g.target.linear_layers):
        return 0
    held = max_model_len
    if g.drafter.sliding_window:
        held = min(g.drafter.sliding_window - 1 + g.layout.in_flight, max_model_len)
        return -(-held // size) + 1
    return -(-held // size)


def check_claim(geometry: Geometry, claim: Mapping[str, Any]) -> list[str]:
    """A published geometry held against the inputs: one line a disagreement, none if it follows from them.

    `claim` has `page_bytes`, `target_block`, `draft_kv_heads` and `draft_block`, as a lane's `geometry` lists them.
    """
    g, out = geometry, []
    if claim["target_block"] * g.token_bytes != claim["page_bytes"]:
        out.append(f"page {claim['page_bytes']} is not {claim['target_block']} x {g.token_bytes} B")
    if (g.block, g.page) != (claim["target_block"], claim["page_bytes"]):
        out.append(f"with K {g.layout.k} vLLM 0.32.0 would take block {g.block}, page {g.page} B")
    if g.drafter is None:
        return out
    heads = claim["draft_kv_heads"]
    if heads != g.drafter.kv_heads:
        ours = fit_drafter(g.drafter, g.layout, claim["page_bytes"], claim["target_block"])
        out.append(
            f"it assumes {heads} draft KV heads, the drafter's config.json says {g.drafter.kv_heads}: "
            f"{ours.token_bytes} B a token on a rank, so block {ours.block or 'none'} instead of {claim['draft_block']}"
        )
    return out
