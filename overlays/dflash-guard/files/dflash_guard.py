# SPDX-License-Identifier: Apache-2.0
"""Refuse at boot what DFlash speculation cannot run and vLLM 0.32.0 accepts silently.

Written for the recipectl overlay `dflash-guard`; `vllm/config/speculative.py` and
`vllm/model_executor/models/qwen3_dflash.py` call it.
"""

import os
from pathlib import Path
from typing import Any

REQUIRE_MASK = "DFLASH_GUARD_REQUIRE_MASK_EMBEDDING"
MASK_FILE = "mask_embedding.pt"


def _trained(config: Any, name: str) -> Any:
    """A value of the drafter: nested under dflash_config first, as the model reads it."""
    nested = getattr(config, "dflash_config", None) or {}
    value = nested.get(name)
    return getattr(config, name, None) if value is None else value


def _problems(target: Any, draft: Any, k: int) -> list[str]:
    config = draft.hf_config
    out = []
    block = _trained(config, "block_size")
    if isinstance(block, int) and k > block - 1:
        out.append(
            f"num_speculative_tokens={k} exceeds {block - 1}: the drafter is trained on blocks of {block}, and one "
            "slot of each block holds the last accepted token"
        )
    layers = target.get_total_num_hidden_layers()
    taps = _trained(config, "target_layer_ids") or []
    missing = [tap for tap in taps if not 0 <= tap < layers]
    if missing:
        out.append(
            f"target_layer_ids {missing} do not exist: the target has layers 0 to {layers - 1} (wrong drafter for "
            "this target?)"
        )
    folder = Path(str(draft.model))
    if _mask_required() and folder.is_dir() and not (folder / MASK_FILE).is_file():
        out.append(_missing_mask(str(folder)))
    return out


def _mask_required() -> bool:
    return os.environ.get(REQUIRE_MASK, "0") not in ("", "0")


def _missing_mask(model: str) -> str:
    return (
        f"{MASK_FILE} is not in {model}, and {REQUIRE_MASK} is set: without it masked slots are fed the vocabulary's "
        "row and acceptance collapses without an error"
    )


def refuse_what_dflash_cannot_run(target: Any, draft: Any, k: int) -> None:
    """ValueError with every reason why this pair cannot draft with this K."""
    problems = _problems(target, draft, k)
    if problems:
        raise ValueError("dflash-guard: " + "; ".join(problems))


def refuse_missing_mask_embedding(model: str) -> None:
    """ValueError if the recipe requires a mask embedding and the loader found none (a hub repository, say)."""
    if _mask_required():
        raise ValueError("dflash-guard: " + _missing_mask(model))
