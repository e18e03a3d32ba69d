"""Run inside the patched engine: the guard on shapes that must and must not pass."""

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

from vllm.config import dflash_guard


def refuses(k: int, taps: list[int], folder: str, mask: str = "0") -> bool:
    os.environ[dflash_guard.REQUIRE_MASK] = mask
    config = SimpleNamespace(dflash_config={"block_size": 8, "target_layer_ids": taps}, block_size=16)
    draft = SimpleNamespace(hf_config=config, model=folder)
    target = SimpleNamespace(get_total_num_hidden_layers=lambda: 45)
    try:
        dflash_guard.refuse_what_dflash_cannot_run(target, draft, k)
    except ValueError:
        return True
    return False


with tempfile.TemporaryDirectory() as bare, tempfile.TemporaryDirectory() as whole:
    Path(whole, dflash_guard.MASK_FILE).touch()
    taps = [5, 14, 24, 33, 42]
    wrong = [refuses(8, taps, bare), refuses(7, [5, 45], bare), refuses(7, [-1], bare), refuses(7, taps, bare, "1")]
    right = [not refuses(7, taps, bare), not refuses(7, taps, whole, "1")]
print(f"dflash-guard refuses {sum(wrong)} of {len(wrong)}, lets {sum(right)} of {len(right)} pass")
