"""How each engine spells a launch: argv from typed arguments. PURE, and the differences are data.

Recipes spell arguments by flag name with underscores. vLLM takes lists as further words (`--flag 1 2 4`), mappings as
JSON and `false` as `--no-flag`; SGLang takes the same but has no `--no-` form. Names that changed between versions are
in `RENAMED`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from recipectl.errors import RecipeError
from recipectl.recipe.base import Json
from recipectl.recipe.hygiene import OWNED


@dataclass(frozen=True)
class Rename:
    """`canonical` is what recipes may write; `spelled` is what engines matching `engine` and `version` want."""

    engine: str
    version: re.Pattern[str]
    canonical: str
    spelled: str
    source: str


# The forks that GB10 images are built from report 0.1.dev versions and keep the flag's first name.
RENAMED = (
    Rename("vllm", re.compile(r"^0\.1\.dev"), "kv_cache_memory_bytes", "kv_cache_memory", "field report 2c"),
    Rename("vllm", re.compile(r"^(?!0\.1\.dev)"), "kv_cache_memory", "kv_cache_memory_bytes", "vLLM 0.32.0 --help"),
)


@dataclass(frozen=True)
class Launch:
    """What decides an engine's argv besides the recipe's own arguments. Paths are those that the engine sees."""

    target: str
    drafter: str | None
    served_name: str
    host: str
    port: int
    tensor: int = 1
    pipeline: int = 1
    decode_context: int = 1
    data: int = 1
    expert: bool = False
    nodes: int = 1
    rank: int = 0
    master: str | None = None
    master_port: int | None = None


def render(args: Mapping[str, Json], *, negatable: bool = True) -> list[str]:
    """Typed arguments as argv words, in the order of their names. None leaves an argument out."""
    out: list[str] = []
    for name, value in sorted(args.items()):
        flag = "--" + name.replace("_", "-")
        match value:
            case None:
                continue
            case True:
                out.append(flag)
            case False:
                if negatable:
                    out.append("--no-" + flag[2:])
            case list() if all(isinstance(v, str | int | float) and not isinstance(v, bool) for v in value):
                out += [flag, *map(str, value)]
            case dict() | list():
                out += [flag, json.dumps(value, separators=(",", ":"))]
            case _:
                out += [flag, str(value)]
    return out


def spelled(args: Mapping[str, Json], engine: str, version: str | None) -> dict[str, Json]:
    """The arguments as this engine version names them. RecipeError for one that recipectl owns."""
    owned = sorted(set(OWNED) & set(args))
    if owned:
        raise RecipeError(
            "the recipe sets engine arguments that recipectl composes", seen=", ".join(owned),
            next_step="use the lane's parallel, nodes, speculative and target keys, and --port",
        )  # fmt: skip
    out = dict(args)
    for rename in RENAMED:
        if engine.startswith(rename.engine) and rename.canonical in out and rename.version.search(version or ""):
            out[rename.spelled] = out.pop(rename.canonical)
    return out


def argv(
    engine: str, version: str | None, args: Mapping[str, Json], speculative: Mapping[str, Json] | None, launch: Launch
) -> list[str]:
    """The engine's words after its program: `serve MODEL ...` for vLLM, options of the module for SGLang."""
    plain = spelled(args, engine, version)
    plain["served_model_name"] = launch.served_name
    return _sglang(plain, speculative, launch) if engine == "sglang" else _vllm(plain, speculative, launch)


def _vllm(args: dict[str, Json], speculative: Mapping[str, Json] | None, launch: Launch) -> list[str]:
    parallel: dict[str, Json] = {
        "tensor_parallel_size": launch.tensor, "pipeline_parallel_size": launch.pipeline,
        "decode_context_parallel_size": launch.decode_context, "data_parallel_size": launch.data,
    }  # fmt: skip
    own: dict[str, Json] = {k: v for k, v in parallel.items() if v != 1}
    if launch.expert:
        own["enable_expert_parallel"] = True
    if launch.nodes > 1:
        own |= {
            "distributed_executor_backend": "mp", "nnodes": launch.nodes, "node_rank": launch.rank,
            "master_addr": launch.master, "master_port": launch.master_port,
        }  # fmt: skip
        if launch.rank > 0:
            own["headless"] = True
    if launch.rank == 0:
        own |= {"host": launch.host, "port": launch.port}
    if speculative is not None:
        own["speculative_config"] = dict(speculative)
    return ["serve", launch.target, *render({**args, **own})]


def _sglang(args: dict[str, Json], speculative: Mapping[str, Json] | None, launch: Launch) -> list[str]:
    own: dict[str, Json] = {"model_path": launch.target, "host": launch.host, "port": launch.port}
    if launch.tensor > 1:
        own["tp_size"] = launch.tensor
    if launch.pipeline > 1:
        own["pp_size"] = launch.pipeline
    if launch.nodes > 1:
        own |= {
            "nnodes": launch.nodes, "node_rank": launch.rank,
            "dist_init_addr": f"{launch.master}:{launch.master_port}",
        }  # fmt: skip
    # `speculative.compose` gives SGLang's own flags, with its count of draft tokens (K + 1).
    return render({**args, **own, **(speculative or {})}, negatable=False)
