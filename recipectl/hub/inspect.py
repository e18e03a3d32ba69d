"""Facts about a model from its config.json and its safetensors headers, for the rules that hold recipe and drafter
together. No torch, no model code."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from recipectl.errors import PinError
from recipectl.fsio import sha256_file
from recipectl.geometry_model import kv_numbers
from recipectl.hub.safetensors import Header, count, read_header
from recipectl.lockfile import Facts

# Names of the dtype that a config would use for what a header calls otherwise.
_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F8_E4M3": "float8_e4m3fn", "U8": "uint8"}
_MASK_KEYS = ("mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id")


def facts_of(folder: Path, tensor_parts: Iterable[str] = ()) -> Facts:
    """Facts of a model folder. `tensor_parts` are the name parts that the recipe wants counted.

    PinError if config.json is missing or no JSON object, or a safetensors file cannot be what it says.
    """
    headers = {p.name: read_header(p) for p in sorted(folder.glob("*.safetensors"))}
    tokenizer = folder / "tokenizer.json"
    sha = sha256_file(tokenizer) if tokenizer.is_file() else None
    return facts(read_config(folder / "config.json"), headers, tensor_parts, sha)


def read_config(path: Path) -> dict[str, Any]:
    """config.json as a mapping. PinError if there is none, or it is no JSON object."""
    try:
        return parse_config(path.read_bytes(), str(path))
    except OSError as err:
        raise PinError(
            "the model has no readable config.json",
            on=str(path),
            seen=err.strerror,
            next_step="is this a model folder?",
        ) from err


def parse_config(raw: bytes, on: str) -> dict[str, Any]:
    """The bytes of a config.json as a mapping. PinError if they are no JSON object."""
    try:
        config = json.loads(raw)
    except (ValueError, RecursionError) as err:
        raise PinError("config.json is not JSON", on=on, seen=err) from err
    if not isinstance(config, dict):
        raise PinError("config.json is not a JSON object", on=on, seen=type(config).__name__)
    return config


def facts(
    config: Mapping[str, Any],
    headers: Mapping[str, Header],
    tensor_parts: Iterable[str] = (),
    tokenizer: str | None = None,
) -> Facts:
    """The same facts from what was read: config.json, safetensors headers by file, sha256 of tokenizer.json.

    PinError for a config.json that holds something else where facts stand.
    """
    try:
        return _facts(config, headers, tensor_parts, tokenizer)
    except ValidationError as err:
        bad = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}, got {e['input']!r:.80}" for e in err.errors()[:8]]
        raise PinError(
            "config.json does not say what a model's does", on="config.json", details=bad,
            next_step="get it anew, or do not use it",
        ) from err  # fmt: skip


def _facts(
    config: Mapping[str, Any], headers: Mapping[str, Header], tensor_parts: Iterable[str], tokenizer: str | None
) -> Facts:
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else {}
    dflash = config.get("dflash_config") if isinstance(config.get("dflash_config"), dict) else {}
    assert isinstance(text, dict) and isinstance(dflash, dict)

    def number(key: str) -> int | None:
        value = config.get(key, text.get(key))
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    hidden, heads = number("hidden_size"), number("num_attention_heads")
    attention, window = _attention(config, dflash)
    architectures = config.get("architectures")
    return Facts(
        model_type=config.get("model_type"),
        architecture=architectures[0] if isinstance(architectures, list) and architectures else architectures or None,
        dtype=config.get("dtype") or config.get("torch_dtype") or text.get("dtype") or _main_dtype(headers.values()),
        vocab_size=number("vocab_size"),
        hidden_size=hidden,
        layers=number("num_hidden_layers"),
        heads=heads,
        kv_heads=number("num_key_value_heads"),
        head_dim=number("head_dim") or (hidden // heads if hidden and heads else None),
        max_positions=number("max_position_embeddings"),
        # Nested first: a reader of the top level alone gets the library's default of 16 for a block of 8.
        block_size=dflash.get("block_size", config.get("block_size")),
        taps=_taps(config, dflash),
        fc_inputs=_fc_inputs(headers.values()),
        mask_token_id=dflash.get("mask_token_id", next((config[k] for k in _MASK_KEYS if k in config), None)),
        sample_from_anchor=dflash.get("sample_from_anchor", config.get("sample_from_anchor")),
        attention=attention,
        sliding_window=window,
        quantization=_quantization(config),
        tensors={part: count(headers.values(), part) for part in sorted({"*", *tensor_parts})} if headers else {},
        tokenizer_sha256=tokenizer,
        kv=kv_numbers(config),
    )


def _taps(config: Mapping[str, Any], dflash: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Target layers that the drafter reads, as its config numbers them (vLLM logs each plus one)."""
    eagle = config.get("eagle_config")
    eagle = eagle if isinstance(eagle, dict) else {}
    for value in (
        dflash.get("target_layer_ids"),
        eagle.get("target_layer_ids"),
        config.get("dspark_target_layer_ids"),
        config.get("target_layer_ids"),
        config.get("eagle_aux_hidden_state_layer_ids"),
    ):
        if isinstance(value, list) and value:
            return tuple(value)
    return None


def _attention(
    config: Mapping[str, Any], dflash: Mapping[str, Any]
) -> tuple[Literal["full", "sliding"] | None, int | None]:
    """Attention kind and window, by the table in vLLM's qwen3_dflash.py: layer types first, then use_swa, else full."""
    types = config.get("layer_types")
    sliding = "sliding_attention" in types if isinstance(types, list) else False
    if not sliding and not dflash.get("use_swa"):
        return ("full" if dflash or isinstance(types, list) else None), None
    return "sliding", dflash.get("swa_window_size", config.get("sliding_window"))


def _fc_inputs(headers: Iterable[Header]) -> int | None:
    """Input width of the drafter's `fc` layer: torch keeps a linear weight as (outputs, inputs)."""
    for header in headers:
        for name, tensor in header.items():
            if (name == "fc.weight" or name.endswith(".fc.weight")) and len(tensor.shape) == 2:
                return tensor.shape[1]
    return None


def _main_dtype(headers: Iterable[Header]) -> str | None:
    """The dtype that holds most bytes, in config.json's spelling."""
    size: Counter[str] = Counter()
    for header in headers:
        for tensor in header.values():
            size[tensor.dtype] += tensor.end - tensor.start
    return _DTYPES.get(top := size.most_common(1)[0][0], top) if size else None


def _quantization(config: Mapping[str, Any]) -> str | None:
    """Quantization method and algorithm as config.json says them, such as `modelopt NVFP4`."""
    quant = config.get("quantization_config")
    if not isinstance(quant, dict):
        return None
    algorithm = quant.get("quant_algo") or quant.get("format")
    return " ".join(str(v) for v in (quant.get("quant_method"), algorithm) if v) or None
