"""pydantic's errors about merged data, turned into findings at the line that the author wrote. PURE."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from recipectl.recipe.codes import level_of
from recipectl.recipe.findings import Finding
from recipectl.recipe.lane import Lane
from recipectl.recipe.merge import Path
from recipectl.recipe.schema import Recipe
from recipectl.recipe.yamltree import Tree, dotted

# pydantic's error type -> what was expected, in words. Types of one place are joined with "or".
_TYPES = {
    "int_type": "a whole number", "int_from_float": "a whole number", "float_type": "a number",
    "string_type": "text", "bool_type": "true or false", "list_type": "a list", "tuple_type": "a list",
    "dict_type": "a mapping", "model_type": "a mapping", "model_attributes_type": "a mapping",
    "mapping_type": "a mapping", "date_type": "a date as YYYY-MM-DD", "none_required": "nothing",
}  # fmt: skip
# pydantic's bounds in words, with what it knows about them.
_BOUNDS = {
    "greater_than_equal": "{ge:g} or more", "greater_than": "more than {gt:g}", "less_than_equal": "{le:g} or less",
    "less_than": "less than {lt:g}", "too_short": "{min_length} or more",
    "string_too_short": "{min_length} characters or more", "string_too_long": "{max_length} characters or less",
}  # fmt: skip
# Patterns of the schema in words.
_FORMS = {
    r"^[a-z0-9][a-z0-9.\-]*$": "lower case letters, digits, dots and hyphens",
    r"^[0-9a-f]{64}$": "a sha256 of 64 hex digits",
    r"^[0-9a-f]{8,64}$": "8 to 64 hex digits of a sha256",
    r"^sha256:[0-9a-f]{64}$": "sha256: and 64 hex digits",
    r"^[\w.\-]+/[\w.\-]+$": "a hub repository as OWNER/NAME",
    r"^[\w.\-/:]+$": "an image as registry/name:tag",
    r"^linux/(arm64|amd64)$": "linux/arm64 or linux/amd64",
    r"^\d+[kmg]$": "a size such as 32g",
    r"^/": "an absolute path",
}
# Most names that a fix lists.
MANY = 12
_FLOAT = re.compile(r"-?\d+(\.\d+)?\Z")
TOP_KEYS = [*(f.alias or n for n, f in Recipe.model_fields.items() if n != "variants"), "shared"]

Locate = Callable[[Path], Path]


def from_pydantic(
    errors: Iterable[ErrorDetails],
    data: Mapping[str, Any],
    tree: Tree,
    file: str,
    locate: Locate,
    root: type[BaseModel] = Recipe,
) -> list[Finding]:
    """Findings for pydantic's errors about `data`; `locate` maps a path of the merged data to one of the file.

    What several lanes inherit from one line of `shared` is reported once. The alternatives of one place (text or a
    number) become one finding.
    """
    out: dict[tuple[str, Path, str], Finding] = {}
    alternatives: dict[Path, list[str]] = {}
    for error in errors:
        extra = error["type"] == "extra_forbidden"
        path = _known_part(error["loc"][:-1] if extra else error["loc"], data)
        code, message, fix = _say(error, path, data, tree, locate, root)
        shown = locate(path)
        if code == "P003":
            shown = locate((*path, error["loc"][-1]))
        if code == "P004":
            wanted = alternatives.setdefault(shown, [])
            wanted += [w for w in [_TYPES.get(error["type"], "another type")] if w not in wanted]
            message = f"expected {' or '.join(wanted)}, got {show_value(_at(data, path), tree.raw.get(shown))}"
        line, column = tree.place(shown)
        out[(code, shown, message if code == "P005" else "")] = Finding(
            code, level_of(code), file, line, column, dotted(shown), message, fix
        )
    return _without_echoes(list(out.values()))


def _without_echoes(findings: list[Finding]) -> list[Finding]:
    """Without `X is missing` where an unknown key of the same mapping was meant to be X."""
    meant = {(f.where.rpartition(".")[0], f.fix) for f in findings if f.code == "P003"}
    return [f for f in findings if f.code != "P005" or (f.where, f"write {f.message.split()[2]}") not in meant]


def nearest(name: str, valid: Iterable[str]) -> str:
    """A fix that names the nearest valid name, or all of them."""
    names = list(valid)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"write `{close[0]}`"
    return "valid keys: " + ", ".join(names[:MANY]) + (", ..." if len(names) > MANY else "")


def show_value(value: Any, raw: str | None = None) -> str:
    """A value as a message names it, with its type where that is what went wrong."""
    if isinstance(value, str):
        short = value if len(value) <= 60 else value[:57] + "..."
        return f'the text "{short}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "nothing (null)"
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return f"the number {raw or value}"


def _say(
    error: ErrorDetails, path: Path, data: Mapping[str, Any], tree: Tree, locate: Locate, root: type[BaseModel]
) -> tuple[str, str, str | None]:
    """Code, message and fix of one error."""
    kind, ctx, value = error["type"], error.get("ctx") or {}, _at(data, path)
    name = str(error["loc"][-1]) if error["loc"] else ""
    raw = tree.raw.get(locate(path))
    shown = f"the key `{path[-1]}`" if name == "[key]" else show_value(value, raw)
    said: tuple[str, str, str | None]
    match kind:
        case "extra_forbidden":
            said = "P003", f"unknown key `{name}`", _fix_unknown(name, path, root)
        case "missing":
            said = (
                "P005",
                f"the key `{name}` is missing",
                f"add `{name}:`" if name != "schema" else "start with `schema: 1`",
            )
        case "value_error":
            said = "P006", str(ctx.get("error", error["msg"])), None
        case "literal_error":
            wanted = str(ctx.get("expected", "")).replace("'", "")
            said = (
                "P007",
                f"expected {wanted}, got {shown}",
                _fix_choice(path[-1] if name == "[key]" else value, wanted),
            )
        case "string_pattern_mismatch":
            form = _FORMS.get(str(ctx.get("pattern")), f"text of the form {ctx.get('pattern')}")
            said = "P007", f"expected {form}, got {shown}", None
        case _ if kind in _TYPES:
            said = "P004", "", _fix_type(kind, value, raw)
        case _ if kind.startswith("date"):
            said = "P007", f"{shown} is not a date", "write YYYY-MM-DD"
        case _:
            bound = _BOUNDS.get(kind)
            wanted = f"expected {bound.format(**ctx)}" if bound else _lower(error["msg"])
            said = "P007", f"{wanted}, got {shown}", None
    return said


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _fix_unknown(name: str, parent: Path, root: type[BaseModel]) -> str:
    model = _model_at(parent, root)
    names = [f.alias or n for n, f in model.model_fields.items()] if model else []
    names = TOP_KEYS if not parent and root is Recipe else names
    if model is Lane and not difflib.get_close_matches(name, names, n=1, cutoff=0.6):
        return "if it is an engine argument, put it under `args`; `recipectl check --schema` lists the keys of a lane"
    return nearest(name.replace("-", "_"), names)


def _fix_choice(value: Any, wanted: str) -> str | None:
    close = difflib.get_close_matches(str(value), wanted.replace(" or ", ", ").split(", "), n=1, cutoff=0.6)
    return f"write {close[0]}" if close else None


def _fix_type(kind: str, value: Any, raw: str | None) -> str | None:
    fix: str | None = None
    if kind in ("int_type", "float_type") and isinstance(value, str):
        fix = f"write {value} without quotes" if _FLOAT.match(value) else None
    elif kind.startswith("int_") and isinstance(value, float) and value.is_integer():
        fix = f"write {int(value)}"
    elif kind == "string_type" and raw and value is not None:
        fix = f'put it in quotes: "{raw}"'
    elif kind == "string_type" and isinstance(value, dict) and len(value) == 1 and None in value.values():
        fix = "recipes hold no placeholders: write the value itself, in quotes if it has braces"
    elif kind == "bool_type" and isinstance(value, str) and value.lower() in ("true", "false"):
        fix = f"write {value.lower()} without quotes"
    elif kind == "list_type" and isinstance(value, str | int | float):
        fix = f"write it as a list: [{raw or value}]"
    elif kind in ("model_type", "dict_type") and value is None:
        fix = "indent its keys below it, or remove the empty key"
    return fix


def _known_part(loc: tuple[int | str, ...], data: Any) -> Path:
    """The part of pydantic's location that is a path of the data: names of union members and `[key]` fall off."""
    path: list[str | int] = []
    for part in loc:
        inside = part in data if isinstance(data, dict) else isinstance(data, list) and part in range(len(data))
        if not inside:
            break
        data = data[part]
        path.append(part)
    return tuple(path)


def _at(data: Any, path: Path) -> Any:
    for part in path:
        data = data[part]
    return data


def _model_at(path: Path, root: type[BaseModel]) -> type[BaseModel] | None:
    """The model whose keys stand at a path of the merged data."""
    kind: Any = root
    for part in path:
        kind = _bare(kind)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            field = kind.model_fields.get(str(part)) or next(
                (f for f in kind.model_fields.values() if f.alias == part), None
            )
            if field is None:
                return None
            kind = field.annotation
        else:
            arguments = get_args(kind)
            kind = arguments[-1] if arguments else None
    kind = _bare(kind)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _bare(kind: Any) -> Any:
    """Without Annotated and `| None`."""
    while True:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        elif get_origin(kind) in (Union, types.UnionType):
            inner = [a for a in get_args(kind) if a is not type(None)]
            if len(inner) != 1:
                return kind
            kind = inner[0]
        else:
            return kind
