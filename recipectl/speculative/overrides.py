"""--k and --set: a lane with one value changed, held to the same types as the file. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from recipectl.errors import UsageError
from recipectl.recipe import hygiene, knownargs, yamltree
from recipectl.recipe.base import Json
from recipectl.recipe.findings import Finding
from recipectl.recipe.lane import Lane
from recipectl.recipe.merge import Path
from recipectl.recipe.shape import from_pydantic, nearest

SECTIONS = ("args", "env", "container", "gates", "parallel", "speculative", "nodes")


def parse_set(text: str) -> tuple[str, Json]:
    """`PATH=VALUE` as path and value, the value read as in the recipe file. UsageError if it has no such form.

    An empty value removes the key.
    """
    path, sign, value = text.partition("=")
    if not sign or not all(part.strip(" -") for part in path.split(".")):
        raise UsageError("--set needs PATH=VALUE", seen=text, expected="such as --set args.max_model_len=8192")
    tree, findings = yamltree.read(value, "--set")
    if findings:
        raise UsageError(f"--set {path}: {findings[0].message}", seen=value, next_step=findings[0].fix)
    return path.strip(), tree.data


def with_k(lane: Lane, k: int) -> Lane:
    """The lane with another K for every batch size (a schedule falls away). K rules are checked by `check`, not here.

    The acceptance ranges of the gates fall away with another K: they were seen at the lane's own, and a length above
    K + 1 can never be reached. UsageError if the lane drafts nothing.
    """
    if lane.speculative.method == "none":
        raise UsageError("--k on a lane that drafts nothing", seen=f"--k {k}", expected="a lane with a drafter or MTP")
    gates = lane.gates if k == lane.speculative.k else lane.gates.model_copy(update={"acceptance": {}})
    speculative = lane.speculative.model_copy(update={"k": k, "schedule": []})
    return lane.model_copy(update={"speculative": speculative, "gates": gates})


def with_overrides(lane: Lane, sets: Sequence[tuple[str, Json]], k: int | None) -> Lane:
    """The lane after `--k` and `--set` (see `parse_set`), validated one by one. What must hold between values is the
    rules' matter.

    UsageError names a path that does not exist, a wrong type, a placeholder or secret, a flag recipectl composes.
    """
    # K first: a range for the gates that is set beside it is meant for that K.
    lane = lane if k is None else with_k(lane, k)
    for path, value in sets:
        lane = _with(lane, path, value)
    return lane


def _with(lane: Lane, path: str, value: Json) -> Lane:
    parts = path.removeprefix("engine.").split(".")
    if parts[0] in ("args", "env") and len(parts) > 1:
        parts = [parts[0], parts[1].lstrip("-").replace("-", "_") if parts[0] == "args" else parts[1], *parts[2:]]
    _refuse(path, parts, value)
    data: dict[str, Any] = lane.model_dump()
    place: Any = data
    for part in parts[:-1]:
        if place.get(part) is None:
            place[part] = {}
        place = place[part]
        if not isinstance(place, dict):
            raise UsageError(f"--set {path}: {part} holds no keys", seen=path, expected="a path to one value")
    if value is None:
        place.pop(parts[-1], None)
    else:
        place[parts[-1]] = _as_text(value) if parts[0] == "env" else value
    try:
        return Lane.model_validate(data)
    except ValidationError as err:
        first = from_pydantic(err.errors(), data, yamltree.Tree(data), "--set", lambda p: p, Lane)[0]
        raise UsageError(f"--set {first.where or path}: {first.message}", next_step=first.fix) from err


def _refuse(path: str, parts: list[str], value: Json) -> None:
    if parts[0] not in SECTIONS:
        fix = nearest(parts[0], SECTIONS).replace("valid keys", "one of")
        raise UsageError(f"--set {path}: a lane has no such value to change", seen=parts[0], next_step=fix)
    if len(parts) < 2 and parts[0] != "nodes":
        raise UsageError(f"--set {path}: which key of {parts[0]}?", expected=f"--set {path}.KEY=VALUE")
    if parts == ["speculative", "k"]:
        raise UsageError("--set speculative.k: K has its own option", next_step="use --k")
    if isinstance(value, str) and any(hygiene.secrets(value)):
        raise UsageError(f"--set {path}: the value looks like a secret", next_step=hygiene.SECRET_FIX)
    if parts[0] == "args" and len(parts) == 2 and (wrong := knownargs.problem(parts[1], value)):
        raise UsageError(f"--set {path}: {wrong}", seen=f"{path}={value}")
    fragment: Any = value
    for part in reversed(parts):
        fragment = {part: fragment}
    if found := hygiene.check(_plain_finding, {"lanes": {"set": fragment}}):
        raise UsageError(f"--set {path}: {found[0].message}", next_step=found[0].fix)


def _plain_finding(code: str, path: Path, message: str, fix: str | None) -> Finding:
    return Finding(code, "error", "--set", 0, 0, "", message, fix)


def _as_text(value: Json) -> str:
    """Environment values are text: 2 becomes "2", true becomes "true"."""
    return str(value).lower() if isinstance(value, bool) else str(value)
