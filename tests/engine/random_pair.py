"""Make a seeded random target and DFlash drafter for tests: real shapes, weights that know nothing.

Run it with the engine's Python (`python random_pair.py FOLDER`): it needs torch, safetensors and tokenizers, which
recipectl itself never imports. The pair boots in a real vLLM, drafts, and has its drafts refused or accepted by chance:
what random weights cannot show (counting, acceptance) must end SKIPPED in the gates.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

HIDDEN, INTER, HEADS, KV_HEADS, HEAD_DIM, LAYERS = 128, 256, 2, 1, 64, 6
POSITIONS, BLOCK, MASK, TAPS = 1024, 8, 3, [1, 3, 4]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"]
ROPE = {"rope_theta": 10000.0, "rope_type": "default"}
CHAT = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def tokenizer(folder: Path) -> int:
    """A byte-level tokenizer without merges: four special tokens and 256 bytes. Returns the vocabulary size."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {t: i for i, t in enumerate([*SPECIAL, *alphabet])}
    tok = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens(SPECIAL)
    tok.save(str(folder / "tokenizer.json"))
    write(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIAL[1], "eos_token": SPECIAL[2],
        "pad_token": SPECIAL[0], "unk_token": SPECIAL[0], "model_max_length": POSITIONS, "chat_template": CHAT,
    })  # fmt: skip
    return len(vocab)


def write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def layer(prefix: str, *, qk_norm: bool) -> dict[str, torch.Tensor]:
    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns) * 0.05

    out = {
        "self_attn.q_proj": matrix(HEADS * HEAD_DIM, HIDDEN), "self_attn.k_proj": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj": matrix(KV_HEADS * HEAD_DIM, HIDDEN), "self_attn.o_proj": matrix(HIDDEN, HEADS * HEAD_DIM),
        "mlp.gate_proj": matrix(INTER, HIDDEN), "mlp.up_proj": matrix(INTER, HIDDEN),
        "mlp.down_proj": matrix(HIDDEN, INTER),
        "input_layernorm": torch.ones(HIDDEN), "post_attention_layernorm": torch.ones(HIDDEN),
    }  # fmt: skip
    if qk_norm:
        out |= {"self_attn.q_norm": torch.ones(HEAD_DIM), "self_attn.k_norm": torch.ones(HEAD_DIM)}
    return {f"{prefix}.{name}.weight": tensor for name, tensor in out.items()}


def shape(architecture: str, model_type: str, layers: int, vocab: int) -> dict[str, object]:
    return {
        "architectures": [architecture], "model_type": model_type, "hidden_size": HIDDEN, "intermediate_size": INTER,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "num_hidden_layers": layers, "vocab_size": vocab, "max_position_embeddings": POSITIONS, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "rope_parameters": ROPE, "hidden_act": "silu", "attention_bias": False,
        "mlp_bias": False, "dtype": "float32",
    }  # fmt: skip


def main(root: Path, seed: int = 7) -> None:
    torch.manual_seed(seed)
    target, drafter = root / "target", root / "drafter"
    for folder in (target, drafter):
        folder.mkdir(parents=True, exist_ok=True)
    vocab = tokenizer(target)
    weights = {"model.embed_tokens.weight": torch.randn(vocab, HIDDEN) * 0.05, "model.norm.weight": torch.ones(HIDDEN)}
    for i in range(LAYERS):
        weights |= layer(f"model.layers.{i}", qk_norm=False)
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    write(target / "config.json", {**shape("LlamaForCausalLM", "llama", LAYERS, vocab), **ids,
                                   "tie_word_embeddings": True})  # fmt: skip
    write(target / "generation_config.json", {**ids, "do_sample": False})
    draft = {
        "fc.weight": torch.randn(HIDDEN, HIDDEN * len(TAPS)) * 0.05, "hidden_norm.weight": torch.ones(HIDDEN),
        "norm.weight": torch.ones(HIDDEN), **layer("layers.0", qk_norm=True),
    }  # fmt: skip
    save_file(draft, drafter / "model.safetensors", metadata={"format": "pt"})
    torch.save({"mask_token_id": MASK, "embedding": torch.randn(HIDDEN) * 0.05}, drafter / "mask_embedding.pt")
    write(drafter / "config.json", {
        **shape("DFlashDraftModel", "qwen3", 1, vocab), "tie_word_embeddings": False, "block_size": BLOCK,
        "num_target_layers": LAYERS,
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": TAPS, "block_size": BLOCK},
    })  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
