"""A recipe file from text to `Recipe`, with every finding at the line that the author wrote. PURE.

Stages: compose with positions -> schema version -> merge `shared`, lanes and variants -> hygiene -> typed models.
All findings of a stage are reported together; a later stage runs as far as the earlier ones allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from recipectl.recipe import hygiene, yamltree
from recipectl.recipe.codes import level_of
from recipectl.recipe.findings import Finding, Level, in_file_order
from recipectl.recipe.merge import Path, merge, source_of
from recipectl.recipe.schema import LANE_NAMES, SCHEMA_VERSION, Recipe
from recipectl.recipe.shape import from_pydantic, nearest, show_value
from recipectl.recipe.yamltree import Tree, dotted

# First part of an origin that is a place in the merged lane, not in the file.
LANE = ""


@dataclass
class Document:
    """One parsed file. `recipe` is None if anything is wrong with it; `origin` leads from merged paths to the file."""

    file: str
    tree: Tree
    recipe: Recipe | None = None
    findings: list[Finding] = field(default_factory=list)
    origin: dict[Path, Path] = field(default_factory=dict)

    def locate(self, path: Path) -> Path:
        """The path in the file of a path of the merged recipe (`("lanes", "sm121", "args")`), or of its parent."""
        found = source_of(self.origin, path)
        while found[:1] == (LANE,):  # a variant took it over from its lane, which has its own origin for it
            found = source_of(self.origin, found[1:])
        while found and found not in self.tree.places:
            found = found[:-1]
        return found

    def finding(
        self, code: str, path: Path, message: str, fix: str | None = None, *, level: Level | None = None
    ) -> Finding:
        """A finding about a path of the merged recipe, at its line in the file."""
        at = self.locate(path)
        line, column = self.tree.place(at)
        return Finding(code, level or level_of(code), self.file, line, column, dotted(at), message, fix)


def parse_text(text: str, name: str) -> tuple[Recipe | None, list[Finding]]:
    """The recipe and all findings; None if a finding is an error. Never raises on any text.

    `name` is the file name that findings carry.
    """
    document = parse_document(text, name)
    return document.recipe, document.findings


def parse_document(text: str, name: str) -> Document:
    """As `parse_text`, with the places of everything, for rules that run later."""
    tree, findings = yamltree.read(text, name)
    document = Document(name, tree, findings=findings)
    if not _readable(document):
        return document
    merged = _merge(document)
    document.findings += hygiene.check(document.finding, merged)
    document.findings += _secrets(document, text)
    if named := _names(document, merged):
        document.findings += named
    document.recipe = _typed(document, merged)
    if any(f.level == "error" for f in document.findings):
        document.recipe = None
    document.findings = in_file_order(document.findings)
    return document


def unreadable(name: str, line: int, why: str, fix: str | None = None) -> Document:
    """The document of a file that holds no text."""
    return Document(name, Tree(), findings=[Finding("P001", level_of("P001"), name, line, 1, "", why, fix)])


def _say(document: Document, code: str, path: Path, message: str, fix: str | None = None) -> None:
    line, column = document.tree.place(path)
    document.findings.append(Finding(code, level_of(code), document.file, line, column, dotted(path), message, fix))


def _secrets(document: Document, text: str) -> list[Finding]:
    """Secrets anywhere in the file, comments included, except on lines whose key has been called one already."""
    known = {f.line for f in document.findings if f.code == "P012"}
    places = [(line, column) for line, column in hygiene.secrets(text) if line not in known]
    return [
        Finding("P012", level_of("P012"), document.file, *place, "", "this looks like a secret", hygiene.SECRET_FIX)
        for place in places
    ]


def _readable(document: Document) -> bool:
    """Whether the file is a mapping of a schema that this version reads. Checked before anything else is."""
    data = document.tree.data
    if data is None and not document.findings:
        _say(document, "P005", (), "the file is empty", "start from an example: `recipectl new NAME --from NAME`")
    elif data is not None and not isinstance(data, dict):
        _say(document, "P004", (), f"expected a mapping of keys, got {show_value(data)}", "start with `schema: 1`")
    if not isinstance(data, dict):
        return False
    schema = data.get("schema")
    if isinstance(schema, int) and not isinstance(schema, bool) and schema > SCHEMA_VERSION:
        document.findings.clear()  # what else looks wrong may be right in that schema
        _say(
            document, "P010", ("schema",), f"schema {schema} needs a newer recipectl: this one reads {SCHEMA_VERSION}",
            "upgrade recipectl: `pip install --upgrade recipectl`",
        )  # fmt: skip
        return False
    return True


def _merge(document: Document) -> dict[str, Any]:
    """The file's data with complete lanes and variants; `origin` is filled on the way."""
    data, origin = document.tree.data, document.origin
    out: dict[str, Any] = {}
    for key, value in data.items():
        if key == "variants":
            _say(document, "P003", (key,), "unknown key `variants`", "variants stand inside their lane")
        elif key not in ("shared", "lanes"):
            out[key] = value
            origin[(key,)] = (key,)
    origin[()] = ()
    if "lanes" not in data:
        return out
    lanes, shared = _mapping(document, ("lanes",)), _mapping(document, ("shared",))
    origin[("lanes",)] = ("lanes",)
    out["lanes"], out["variants"] = lanes if lanes is None else {}, {}
    for name in lanes or {}:
        if (lane := _mapping(document, ("lanes", name))) is None:
            continue
        variants = _mapping(document, ("lanes", name, "variants")) if "variants" in lane else {}
        own = {k: v for k, v in lane.items() if k != "variants"}
        at: Path = ("lanes", name)
        out["lanes"][name] = merge(shared or {}, own, origin, ("shared",), at, at)
        out["variants"][name] = _variants(document, name, variants or {}, out["lanes"][name])
    return out


def _variants(document: Document, name: str, variants: Mapping[str, Any], lane: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for variant in variants:
        over_at: Path = ("lanes", name, "variants", variant)
        if (over := _mapping(document, over_at)) is None:
            continue
        here: Path = ("variants", name, variant)
        out[variant] = merge(lane, over, document.origin, (LANE, "lanes", name), over_at, here)
    return out


def _mapping(document: Document, path: Path) -> dict[str, Any] | None:
    """The mapping at a path of the file; None, with a finding, if something else stands there."""
    value = document.tree.data
    for part in path:
        if part not in value:
            return {}
        value = value[part]
    if isinstance(value, dict):
        return value
    fix = "remove the empty key, or indent its content below it" if value is None else None
    _say(document, "P004", path, f"expected a mapping, got {show_value(value)}", fix)
    return None


def _names(document: Document, merged: Mapping[str, Any]) -> list[Finding]:
    """Lane names that exist, models that are listed, roles that fit: each at its own line.

    `Recipe` checks the models once more, but stops at the first and only when all else is right.
    """
    models = merged.get("models")
    models = models if isinstance(models, dict) else {}
    out: dict[Path, Finding] = {}
    for path, lane in _lanes(merged):
        for role in ("target", "drafter"):
            name, at = lane.get(role), (*path, role)
            if not isinstance(name, str):
                continue
            model = models.get(name)
            if name not in models:
                text, fix = f"`{name}` is not under `models`", nearest(name, models).replace("keys", "names")
            elif isinstance(model, dict) and isinstance(model.get("role"), str) and model["role"] != role:
                text, fix = f"`{name}` has role {model['role']}, not {role}, under `models`", "name another model"
            else:
                continue
            out.setdefault(document.locate(at), document.finding("P006", at, text, fix))
    return list(out.values())


def _lanes(merged: Mapping[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    """Every lane and variant of the merged data that is a mapping."""
    out: list[tuple[Path, dict[str, Any]]] = []
    for name, lane in (merged.get("lanes") or {}).items():
        out.append((("lanes", name), lane))
        out += [(("variants", name, v), x) for v, x in (merged.get("variants") or {}).get(name, {}).items()]
    return [(path, lane) for path, lane in out if isinstance(lane, dict)]


def _typed(document: Document, merged: dict[str, Any]) -> Recipe | None:
    try:
        return Recipe.model_validate(merged)
    except ValidationError as err:
        errors = [e for e in err.errors(include_url=False) if _is_news(document, e["loc"], e["type"])]
    known = {(f.line, f.column) for f in document.findings}
    found = from_pydantic(errors, merged, document.tree, document.file, document.locate)
    document.findings += [f for f in found if (f.line, f.column) not in known or f.code in ("P003", "P005")]
    return None


def _is_news(document: Document, loc: tuple[int | str, ...], kind: str) -> bool:
    """Whether an error is not the echo of a finding that stands already.

    Names that do not resolve are found by `_names`; variants of a lane with a wrong name repeat the lane's finding.
    """
    if not loc and kind == "value_error":
        return False
    if loc[:1] == ("variants",) and len(loc) > 1 and loc[1] not in LANE_NAMES:
        return False
    return loc != ("lanes",) or not any(f.where == "lanes" for f in document.findings)
