"""What a recipe must not hold: placeholders, secrets, shell, flags that recipectl composes. PURE."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from recipectl.recipe.findings import Finding
from recipectl.recipe.merge import Path

Say = Callable[[str, Path, str, str | None], Finding]

_PLACEHOLDER = re.compile(
    r"\{\{.*?\}\}|\$\{\w+[^}]*\}|\$[A-Za-z_]\w*|(?<![\w\"'])\{[A-Za-z_][\w.\-]*\}"
    r"|<[A-Z_]{2,}>|<[a-z]+(?:[ \-][a-z\d]+)+>|<[a-z_]*(?:ip|host|path|dir|user|port)>|%[A-Z_]{3,}%"
    r"|\b(?:CHANGE_?ME|TODO|FIXME|XXX+)\b|\byour[-_]\w[\w\-]*"
)
_SHELL = re.compile(r"\$\(|`|&&|\|\||;\s|\s\|\s|\s>>?\s|^\s*(?:ba|z)?sh\s+-c\b|\s--[a-z][\w\-]*|^--?[a-z][\w\-]*")
# What any of the two must contain.
_SUSPECT = re.compile(r"[${<%`&|;#>]|--|^\s*-|sh\s|CHANGE|TODO|FIXME|XXX|your")
_COMMENT = re.compile(r"\s#(?:\s|$)")
# What a secret's text must contain -> its form. The plain search comes first: it costs nothing on a clean file.
_SECRET_VALUES = {
    "hf_": re.compile(r"\bhf_[A-Za-z0-9]{16,}"),
    "sk-": re.compile(r"\bsk-[A-Za-z0-9_\-]{16,}"),
    "gh": re.compile(r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}"),
    "nvapi-": re.compile(r"\bnvapi-[\w\-]{16,}"),
    "AKIA": re.compile(r"\bAKIA[A-Z0-9]{16}\b"),
    "glpat-": re.compile(r"\bglpat-[\w\-]{16,}"),
    "PRIVATE KEY": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"),
    "earer ": re.compile(r"\b[Bb]earer\s+[\w.\-]{16,}"),
    "://": re.compile(r"://[^/\s:@]+:[^/\s@]+@"),
}
_SECRET_NAME = re.compile(
    r"(?i)(?:^|[_\-])(?:token|api[_\-]?key|secret|password|passwd|access[_\-]?key|private[_\-]?key)\Z"
)

SECRET_FIX = (
    "remove it and revoke it: recipes are shared. `pull` reads HF_TOKEN from its environment, nothing else does"
)

# Flags that recipectl composes, by underscore name -> where the recipe says it instead.
OWNED: dict[str, str] = {
    "host": "`serve` binds 127.0.0.1, `serve --expose` opens it",
    "port": "`serve --port` sets it",
    "model": "say `target` and `models`",
    "model_path": "say `target` and `models`",
    "served_model_name": "the recipe's name is served",
    "api_key": "`serve --expose` makes one and keeps it in a 0600 file",
    "hf_token": "only `pull` and `lock` read a token, from HF_TOKEN",
    "speculative_config": "say `speculative`",
    "speculative_algorithm": "say `speculative.method`",
    "speculative_draft_model_path": "say `drafter` and `models`",
    "speculative_num_steps": "say `speculative.k`",
    "speculative_num_draft_tokens": "say `speculative.k` (SGLang counts one more for the same K)",
    "num_speculative_tokens": "say `speculative.k`",
    "tensor_parallel_size": "say `parallel.tensor`",
    "tp_size": "say `parallel.tensor`",
    "pipeline_parallel_size": "say `parallel.pipeline`",
    "pp_size": "say `parallel.pipeline`",
    "decode_context_parallel_size": "say `parallel.decode_context`",
    "data_parallel_size": "say `parallel.data`",
    "dp_size": "say `parallel.data`",
    "enable_expert_parallel": "say `parallel.expert`",
    "distributed_executor_backend": "say `nodes`",
    "nnodes": "say `nodes`",
    "node_rank": "say `nodes`, each host gets its rank",
    "master_addr": "the first of `serve --hosts` is the head",
    "master_port": "`serve` chooses it",
    "dist_init_addr": "the first of `serve --hosts` is the head",
    "headless": "say `nodes`, ranks above 0 run headless",
    "revision": "say `models.NAME.revision`",
    "code_revision": "say `models.NAME.revision` and `remote_code`",
    "tokenizer_revision": "say `models.NAME.revision`",
}


def looks_secret(name: str, value: str) -> bool:
    """Whether a variable's name says that it holds a secret, or its value has the form of one."""
    return any(secrets(value)) or bool(value and _SECRET_NAME.search(name))


def check(say: Say, merged: Mapping[str, Any]) -> list[Finding]:
    """Findings P011 to P014, each line of the file once."""
    found: dict[tuple[str, int, int], Finding] = {}
    for code, path, message, fix in _all(merged):
        finding = say(code, path, message, fix)
        found.setdefault((code, finding.line, finding.column), finding)
    return list(found.values())


def secrets(text: str) -> Iterator[tuple[int, int]]:
    """Line and column (from 1) of everything in a file that looks like a secret, comments included."""
    for part, pattern in _SECRET_VALUES.items():
        for found in pattern.finditer(text) if part in text else ():
            yield text.count("\n", 0, found.start()) + 1, found.start() - text.rfind("\n", 0, found.start())


def _all(merged: Mapping[str, Any]) -> Iterator[tuple[str, Path, str, str | None]]:
    for section in ("lanes", "variants"):
        for path, lane in _lane_paths(merged.get(section), (section,), 1 if section == "lanes" else 2):
            yield from _in_lane(lane, path)


def _lane_paths(value: Any, path: Path, depth: int) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    if not isinstance(value, dict):
        return
    if depth == 0:
        yield path, value
        return
    for key, inner in value.items():
        yield from _lane_paths(inner, (*path, key), depth - 1)


def _in_lane(lane: Mapping[str, Any], path: Path) -> Iterator[tuple[str, Path, str, str | None]]:
    speculative = lane.get("speculative")
    options = speculative.get("options") if isinstance(speculative, dict) else None
    sections: list[tuple[Path, Any]] = [
        ((*path, "args"), lane.get("args")),
        ((*path, "env"), lane.get("env")),
        ((*path, "container"), lane.get("container")),
        ((*path, "speculative", "options"), options),
    ]
    for at, section in sections:
        for where, text in _texts(section, at):
            if found := _in_text(text):
                yield found[0], where, found[1], found[2]
    for at, section in (*sections[:2], sections[3]):
        yield from _in_keys(at, section)


@lru_cache(maxsize=4096)  # lanes and variants repeat most values
def _in_text(text: str) -> tuple[str, str, str] | None:
    """Code, message and fix for a value that is no plain data, or None."""
    if not _SUSPECT.search(text):
        return None
    if found := _PLACEHOLDER.search(text):
        fix = "write the value itself; a value that differs per host is named under `per_rank_env`"
        return "P011", f"`{found.group()}` is a placeholder", fix
    if _COMMENT.search(text):
        return "P013", "a comment stands inside the value and would be passed on", "take it out of the quotes"
    if found := _SHELL.search(text):
        message = f"`{found.group().strip()}` is shell or a second flag: values are passed on as they are"
        return "P013", message, "write each flag as its own key under `args`, without dashes in front"
    return None


def _in_keys(at: Path, section: Any) -> Iterator[tuple[str, Path, str, str | None]]:
    for key, value in section.items() if isinstance(section, dict) else ():
        name = str(key).lstrip("-").replace("-", "_")
        if _SECRET_NAME.search(name) and name not in OWNED and value not in ("", None):
            yield "P012", (*at, key), f"`{key}` is the name of a secret", SECRET_FIX
        if at[-1] == "env":
            continue
        if name in OWNED:
            yield "P014", (*at, key), f"recipectl composes `{name}` itself", f"remove it: {OWNED[name]}"
        elif name != key:
            yield "P007", (*at, key), f"`{key}` is not an argument name", f"write `{name}`, with underscores"


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Every text below a value, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, (*path, index))
