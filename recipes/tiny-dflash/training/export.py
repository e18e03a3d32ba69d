"""The two folders that vLLM serves: config.json and safetensors of each model, and the drafter's mask embedding."""

import json
from pathlib import Path
from typing import Any

import torch
from model import (
    BLOCK,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INTERMEDIATE,
    KV_HEADS,
    LAYERS,
    NORM_EPS,
    ROPE_THETA,
    TAPS,
    Drafter,
    Target,
)
from safetensors.torch import load_file, save_file
from tokenizer import END, MASK, MAX_LENGTH, PAD, START, VOCABULARY
from torch import Tensor

SHARED: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "hidden_act": "silu",
    "attention_bias": False,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": MAX_LENGTH,
    "rms_norm_eps": NORM_EPS,
    "rope_theta": ROPE_THETA,
    "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
    "dtype": "bfloat16",
}


def write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_weights(path: Path, tensors: dict[str, Tensor]) -> None:
    stored = {name: tensor.detach().to("cpu", torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    save_file(stored, str(path), metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors writes for the owner alone


def export_target(target: Target, folder: Path) -> None:
    write_weights(folder / "model.safetensors", {f"model.{name}": value for name, value in target.state_dict().items()})
    special = {"bos_token_id": START, "eos_token_id": END, "pad_token_id": PAD}
    write_json(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            **SHARED,
            "intermediate_size": INTERMEDIATE,
            "num_hidden_layers": LAYERS,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "use_cache": True,
            **special,
        },
    )
    write_json(folder / "generation_config.json", {**special, "do_sample": False})


def load_target(target: Target, folder: Path) -> None:
    stored = load_file(str(folder / "model.safetensors"))
    target.load_state_dict({name.removeprefix("model."): value for name, value in stored.items()})


def export_drafter(drafter: Drafter, folder: Path) -> None:
    """Embedding and head are absent on purpose: the engine lends the target's own."""
    tensors = drafter.state_dict()
    embedding = tensors.pop("mask_embedding").detach().to("cpu", torch.bfloat16)
    write_weights(folder / "model.safetensors", tensors)
    torch.save({"mask_token_id": MASK, "embedding": embedding.clone()}, folder / "mask_embedding.pt")
    write_json(
        folder / "config.json",
        {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            **SHARED,
            "intermediate_size": drafter.layers[0].mlp.gate_proj.out_features,
            "num_hidden_layers": len(drafter.layers),
            "tie_word_embeddings": False,
            "num_target_layers": LAYERS,
            "block_size": BLOCK,
            "dflash_config": {"mask_token_id": MASK, "target_layer_ids": list(TAPS), "block_size": BLOCK},
        },
    )
