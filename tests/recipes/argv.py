"""Command lines as comparable data: flags to values, JSON parsed, spellings that mean the same made one."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

# Two spellings of one flag: engines renamed them, and argparse takes unambiguous beginnings.
SAME = {"kv_cache_memory": "kv_cache_memory_bytes", "model": "target", "model_path": "target"}


def flags(argv: list[str]) -> dict[str, Any]:
    """`--flag value...` as a mapping; the model stands under `target`, whichever way it was named.

    Capture sizes inside --compilation-config are moved to the flag that means the same.
    """
    words = _without_program(argv)
    out: dict[str, Any] = {}
    name = "target"
    for word in words:
        if word.startswith("--"):
            plain = word[2:].replace("-", "_")
            name = SAME.get(plain, plain)
            out.setdefault(name, [])
        else:
            out.setdefault(name, []).append(_value(word))
    found = {k: True if not v else v[0] if len(v) == 1 else v for k, v in out.items()}
    config = found.get("compilation_config")
    if isinstance(config, dict) and "cudagraph_capture_sizes" in config:
        found["cudagraph_capture_sizes"] = config.pop("cudagraph_capture_sizes")
        if not config:
            del found["compilation_config"]
    return found


def _without_program(argv: list[str]) -> list[str]:
    if argv[:3] == ["python3", "-m", "sglang.launch_server"]:
        return argv[3:]
    return argv[1:] if argv[0] == "serve" else argv


def _value(word: str) -> Any:
    try:
        value = json.loads(word)
    except json.JSONDecodeError:
        return word
    if isinstance(value, dict) and isinstance(value.get("model"), str):
        value["model"] = "DRAFTER"
    return value


def differences(ours: dict[str, Any], published: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Flag -> (ours, published) where they differ; None is a flag that is not there."""
    names = ours.keys() | published.keys()
    pairs = {n: (ours.get(n), published.get(n)) for n in names}
    return {n: (a, b) for n, (a, b) in pairs.items() if _plain(a) != _plain(b)}


def _plain(value: Any) -> Any:
    """Folders of models differ between machines; what is compared is everything else."""
    return "PATH" if isinstance(value, str) and ("/" in value) and PurePosixPath(value).parts else value
