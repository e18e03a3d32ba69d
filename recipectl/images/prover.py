"""Runs inside a built image, without network, and reports what it finds as one JSON line. Standard library only.

recipectl sends this file's text to the container as `python3 -c`; nothing of it runs in recipectl itself, and it must
run on any Python from 3.8. What it says is judged outside (`proof.py`): it only looks.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Callable  # noqa: UP035 - Python 3.8 runs this

MARK = "RECIPECTL-PROOF "


def look_at(path: str) -> dict[str, str]:
    """sha256 of a file and whether it compiles."""
    try:
        data = Path(path).read_bytes()
    except OSError as err:
        return {"error": str(err.strerror)}
    found = {"sha256": hashlib.sha256(data).hexdigest()}
    if path.endswith(".py"):
        try:
            compile(data, path, "exec")
        except (SyntaxError, ValueError) as err:
            found["error"] = f"does not compile: {err}"
    return found


def version(check: dict[str, Any]) -> str:
    from importlib import metadata

    try:
        return metadata.version(check["distribution"])
    except metadata.PackageNotFoundError:
        return "not installed"


def registered(check: dict[str, Any]) -> list[str]:
    from vllm.model_executor.models.registry import ModelRegistry

    known = set(ModelRegistry.get_supported_archs())
    return [name for name in check["architectures"] if name not in known]


def arch(check: dict[str, Any]) -> list[str]:
    import torch

    # torch.cuda.get_arch_list() is empty without a GPU in older releases, and a proof has none: ask the library.
    flags = torch._C._cuda_getArchFlags() if hasattr(torch._C, "_cuda_getArchFlags") else None
    return flags.split() if flags else []


def geometry(check: dict[str, Any]) -> list[dict[str, int]]:
    import torch
    from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator
    from vllm.v1.kv_cache_interface import MambaSpec, MLAAttentionSpec

    out = []
    for case in check["cases"]:
        shapes = MambaStateShapeCalculator.kda_state_shape(
            case["tensor"], case["linear_heads"], case["linear_head_dim"],
            conv_kernel_size=case["linear_kernel"], num_spec=case["k"],
        )  # fmt: skip
        state = MambaSpec(block_size=16, shapes=shapes, dtypes=(torch.bfloat16, torch.float32)).page_size_bytes
        width = torch.uint8 if case["kv_bytes"] == 1 else torch.bfloat16
        token = MLAAttentionSpec(block_size=1, num_kv_heads=1, head_size=case["latent"], dtype=width).page_size_bytes
        out.append({"state_page": state, "token_bytes": token})
    return out


def script(check: dict[str, Any]) -> dict[str, Any]:
    argv = [sys.executable, "-"]  # through stdin: an argument has at most 128 KiB
    done = subprocess.run(
        argv, input=check["text"], capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    return {"rc": done.returncode, "stdout": done.stdout[-4000:], "stderr": done.stderr[-4000:]}


KINDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "version": version,
    "registered": registered,
    "arch": arch,
    "geometry": geometry,
    "script": script,
}


def end_after(seconds: float) -> None:
    """Whoever started this ends it in time, unless they were killed; then it must not run for ever."""
    timer = threading.Timer(seconds, os._exit, (124,))
    timer.daemon = True
    timer.start()


def main(spec: dict[str, Any]) -> None:
    end_after(spec["timeout_s"] + 30)
    checks: list[dict[str, Any]] = []
    report = {"python": sys.version.split()[0], "files": {p: look_at(p) for p in spec["files"]}, "checks": checks}
    for check in spec["checks"]:
        start = time.time()
        try:
            seen = {"seen": KINDS[check["kind"]](check)}
        except Exception as err:  # noqa: BLE001 - whatever a check of a foreign engine raises is its result
            seen = {"error": f"{type(err).__name__}: {err}", "trace": traceback.format_exc()[-4000:]}
        checks.append({**seen, "seconds": round(time.time() - start, 2)})
    print("\n" + MARK + json.dumps(report), flush=True)


if __name__ == "__main__":
    main(json.loads("".join(sys.argv[1:])))
