"""What of a model decides the size of its KV cache, read from config.json. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_LINEAR = ("linear_attention", "kda", "mamba")
_GLM5_KEYS = {
    "linear_num_heads": "num_heads",
    "linear_head_dim": "head_dim",
    "linear_conv_kernel_dim": "short_conv_kernel_size",
}


@dataclass(frozen=True)
class KvModel:
    """KV-relevant numbers of one model.

    `latent` and `rope` are widths of an MLA cache entry (0: ordinary K and V). Linear-attention layers keep one state a
    request instead of KV a token. `indexer_bytes` is one compressed entry of the sparse-attention indexer, which
    covers `indexer_pool` tokens. `sliding_window` is set where every attention layer slides.
    """

    name: str
    attention_layers: int
    kv_heads: int
    head_dim: int
    latent: int = 0
    rope: int = 0
    sliding_window: int | None = None
    linear_layers: int = 0
    linear_heads: int = 0
    linear_head_dim: int = 0
    linear_kernel: int = 0
    indexer_layers: int = 0
    indexer_bytes: int = 0
    indexer_pool: int = 1


def kv_numbers(config: Mapping[str, Any]) -> dict[str, int]:
    """The numbers that `model_of` needs, from a parsed config.json: what the lock keeps under `facts.kv`.

    Nested text configs are looked into, as engines do. Empty where the file does not describe a decoder.
    """
    text = config.get("text_config") if isinstance(config.get("text_config"), Mapping) else config
    assert isinstance(text, Mapping)
    layers = _int(text, "num_hidden_layers")
    heads = _int(text, "num_attention_heads")
    if not layers or not heads:
        return {}
    types = _layer_types(text, layers)
    linear = sum(any(mark in t for mark in _LINEAR) for t in types)
    out = {
        "attention_layers": layers - linear,
        "kv_heads": _int(text, "num_key_value_heads") or heads,
        "head_dim": _int(text, "head_dim") or _int(text, "hidden_size") // heads,
        "latent": _int(text, "kv_lora_rank"),
        "rope": _int(text, "qk_rope_head_dim") if _int(text, "kv_lora_rank") else 0,
        "linear_layers": linear,
        "sliding_window": _window(text, types),
    }
    if linear:
        nested = text.get("linear_attn_config") or {}
        values = {key: _int(text, key) or _int(nested, old) for key, old in _GLM5_KEYS.items()}
        out |= {
            "linear_heads": values["linear_num_heads"],
            "linear_head_dim": values["linear_head_dim"],
            "linear_kernel": values["linear_conv_kernel_dim"],
        }
    if width := _int(text, "index_head_dim"):
        # One fp8 entry of the indexer with a float32 scale for every 128 numbers.
        out |= {
            "indexer_layers": layers - linear,
            "indexer_bytes": width + width // 128 * 4,
            "indexer_pool": _int(text, "index_kpool") or 1,
        }
    return {key: value for key, value in out.items() if value}


def model_of(name: str, numbers: Mapping[str, int]) -> KvModel | None:
    """The model that `kv_numbers` described; None where too little is known to compute anything."""
    if not numbers.get("attention_layers") or not (numbers.get("latent") or numbers.get("head_dim")):
        return None
    window = numbers.get("sliding_window")
    rest = {k: v for k, v in numbers.items() if k != "sliding_window"}
    return KvModel(name=name, sliding_window=window, **{"kv_heads": 1, "head_dim": 0, **rest})


def _int(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _layer_types(text: Mapping[str, Any], layers: int) -> list[str]:
    given = text.get("layer_types")
    if isinstance(given, list) and len(given) == layers:
        return [str(t) for t in given]
    listed = (text.get("linear_attn_config") or {}).get("kda_layers")
    if isinstance(listed, list):
        return ["linear_attention"] * len(listed) + ["full_attention"] * (layers - len(listed))  # only counts matter
    if str(text.get("model_type", "")).startswith("glm5_next"):  # its config class: every fourth layer attends
        return ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(layers)]
    return []


def _window(text: Mapping[str, Any], types: list[str]) -> int:
    """The window, where every layer slides; 0 where one keeps everything, because that one decides."""
    window = _int(text, "sliding_window")
    if types:
        return window if all(t == "sliding_attention" for t in types) else 0
    flagged = text.get("use_sliding_window") or (text.get("dflash_config") or {}).get("use_swa") or text.get("use_swa")
    return window if flagged else 0
