"""Short programs in helper containers of the lane's own image: what can only be known or checked where it will run."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from recipectl.errors import EngineError
from recipectl.images.port import ContainerEngine, ContainerSpec, Mount
from recipectl.lockfile import LockedModel
from recipectl.serving import fabric, far_probe
from recipectl.serving.containers import LABEL, MODELS

POLL_S = 0.1
HASHES = "/recipectl-hashes"
# A cold 110 GB model reads at 1 GB/s at best; after that the hashes are remembered.
PROBE_S = 1800.0
CHECK_S = 180.0
# vLLM moves its parser: 0.32.0 has it under launchers, the forks of August 2026 under openai.
CHECK = """
import importlib, sys
def first(name, *modules):
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(name)
places = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
Parser = first("FlexibleArgumentParser", "vllm.utils.argparse_utils", "vllm.utils")
args = first("make_arg_parser", *places)(Parser()).parse_args(sys.argv[1:])
args.model = getattr(args, "model_tag", None) or args.model
first("validate_parsed_serve_args", *places)(args)
"""


def run(
    engine: ContainerEngine, image: str, argv: Sequence[str], *, mounts: Sequence[Mount] = (), network: str = "none",
    timeout_s: float = 60.0,
) -> tuple[int, str]:  # fmt: skip
    """Run a program to its end in a container that is gone afterwards; its exit code and output.

    EngineError if it takes longer than `timeout_s`.
    """
    spec = ContainerSpec(
        name=f"recipectl-helper-{secrets.token_hex(6)}", image=image, entrypoint=(argv[0],), command=tuple(argv[1:]),
        mounts=tuple(mounts), network=network, labels={LABEL + "helper": "1"},
    )  # fmt: skip
    container = engine.create(spec)
    try:
        engine.start(container)
        deadline = time.monotonic() + timeout_s
        while (found := engine.container(container)) is not None and found.exit_code is None:
            if time.monotonic() > deadline:
                raise EngineError("a helper container took too long", on=spec.name, seen=f"over {timeout_s:.0f} s")
            time.sleep(POLL_S)
        output = b"".join(engine.logs(container)).decode(errors="replace")
        return (found.exit_code or 0) if found else 1, output
    finally:
        engine.stop(container, 1)
        engine.remove(container)


def probe(
    engine: ContainerEngine, image: str, folders: Mapping[str, str], models: Mapping[str, LockedModel], hashes: Path
) -> fabric.Facts:
    """What a host says about its network and about the model files that it has. `hashes` is a folder on that host that
    keeps what was hashed. EngineError if the program fails there."""
    mounts = [Mount(folder, f"{MODELS}/{role}") for role, folder in sorted(folders.items())]
    mounts.append(Mount(str(hashes), HASHES, read_only=False))
    order = {
        "models": {
            role: {"folder": f"{MODELS}/{role}", "files": {f.path: f.sha256 for f in m.files}}
            for role, m in models.items()
        },
        "cache": f"{HASHES}/hashes.json",
    }
    script = Path(far_probe.__file__).read_text()
    code, output = run(engine, image, ["python3", "-c", script, json.dumps(order)], mounts=mounts, network="host",
                       timeout_s=PROBE_S)  # fmt: skip
    try:
        return fabric.facts(json.loads(output.strip().splitlines()[-1]))
    except (ValueError, KeyError, TypeError, IndexError) as err:
        raise EngineError("a host could not be looked at", seen=output.strip()[-400:] or f"exit code {code}",
                          next_step="the image needs python3") from err  # fmt: skip


def check_arguments(engine: ContainerEngine, image: str, words: Sequence[str]) -> str | None:
    """Have the engine's own parser read an argv, before 20 minutes of loading are spent on it.

    The parser's complaint, or None where it has none. An image whose vLLM has no such parser says nothing.
    """
    code, output = run(engine, image, ["python3", "-c", CHECK, *words], timeout_s=CHECK_S)
    lines = [line for line in output.strip().splitlines() if line.strip()]
    if code == 0:
        return None
    if code == 2:  # argparse: usage, then `error: ...`
        return next((line for line in reversed(lines) if "error:" in line), lines[-1] if lines else "refused")
    if any("ModuleNotFoundError" in line or "ImportError" in line for line in lines):
        return None
    return lines[-1] if lines else f"exit code {code}"
