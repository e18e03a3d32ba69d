"""YAML text to plain data plus the place of every key. PURE.

PyYAML's C loader composes nodes that carry line and column. Plain scalars follow JSON: only `true` and `false` are
booleans, only JSON numbers are numbers, dates stay text. What YAML 1.1 and 1.2 readers disagree about is a finding,
because a recipe must mean the same in every tool that reads it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from recipectl.recipe.codes import level_of
from recipectl.recipe.findings import Finding
from recipectl.recipe.merge import Path
from recipectl.recipe.yamlhints import explain

_INT = re.compile(r"-?(0|[1-9]\d*)\Z")
_FLOAT = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?\Z")
_AMBIGUOUS = re.compile(
    r"(?:True|TRUE|False|FALSE|Null|NULL|[Yy]es|YES|[Nn]o|NO|[Oo]n|ON|[Oo]ff|OFF"
    r"|[-+]?0\d+|[-+]?0(?:x[\da-fA-F_]+|o[0-7_]+|b[01_]+)|[-+]?\d[\d_]*_[\d_]*(?:\.\d*)?|\+\d+(?:\.\d*)?|[-+]?\.\d+"
    r"|[-+]?\d+\.(?:[eE]\d+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)|=|<<)\Z"
)
# What escapes of double-quoted text can spell; YAML itself refuses them elsewhere. Lines and tabs are text.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TAG = "tag:yaml.org,2002:"
MAX_DEPTH = 60


class _Loader(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]
    """Composes nodes; resolves plain scalars by JSON's rules."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode and implicit[0]:
            return _TAG + _plain(value)
        return str(super().resolve(kind, value, implicit))

    # Path resolvers, which recipes have none of: without these two, each node pays for the look.
    def descend_resolver(self, current_node: Any, current_index: Any) -> None: ...
    def ascend_resolver(self) -> None: ...


def _plain(text: str) -> str:
    if text in ("", "~", "null"):
        return "null"
    if text in ("true", "false"):
        return "bool"
    if _INT.match(text):
        return "int"
    if _FLOAT.match(text) and math.isfinite(float(text)):
        return "float"
    return "str"


@dataclass
class Tree:
    """`data` is plain Python; `places` gives line and column (from 1) of each key or list item; `raw` the text of plain
    scalars as the author typed it."""

    data: Any = None
    places: dict[Path, tuple[int, int]] = field(default_factory=dict)
    raw: dict[Path, str] = field(default_factory=dict)

    def place(self, path: Path) -> tuple[int, int]:
        """Line and column of a path, or of the nearest parent that stands in the file."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, (1, 1))


def dotted(path: Path) -> str:
    """`lanes.sm121.models[0].k`, as findings print it."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).removeprefix(".")


def read(text: str, file: str) -> tuple[Tree, list[Finding]]:
    """Compose a YAML text. Never raises: what cannot be read ends as a finding and `data` None."""
    walker = _Walker(file)
    text = text.removeprefix("\ufeff")
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except (yaml.YAMLError, UnicodeError) as err:
        line, column, message, fix = explain(err, text)
        code = "P009" if isinstance(err, yaml.composer.ComposerError) else "P001"
        walker.say(code, (line, column), (), message, fix)
        return walker.tree, walker.findings
    if root is not None:
        walker.tree.places[()] = _place(root)
        walker.tree.data = walker.value(root, ())
    return walker.tree, walker.findings


def _place(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


class _Walker:
    """Turns nodes into data, collecting places and findings."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.tree = Tree()
        self.findings: list[Finding] = []
        self._seen: set[int] = set()

    def say(self, code: str, place: tuple[int, int], path: Path, message: str, fix: str | None) -> None:
        self.findings.append(Finding(code, level_of(code), self.file, *place, dotted(path), message, fix))

    def value(self, node: yaml.Node, path: Path) -> Any:
        if id(node) in self._seen:
            self.say(
                "P009", self.tree.place(path), path, "an alias (*name) repeats another value",
                "write the value out, or put what lanes share under `shared`",
            )  # fmt: skip
            return None
        self._seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if len(path) > MAX_DEPTH:
            self.say("P001", _place(node), path[:3], f"nested deeper than {MAX_DEPTH} levels", "flatten the value")
            return None
        if node.tag not in (_TAG + "map", _TAG + "seq"):
            self._tag(node, path)
        if isinstance(node, yaml.SequenceNode):
            out = []
            for index, item in enumerate(node.value):
                self.tree.places[(*path, index)] = _place(item)
                out.append(self.value(item, (*path, index)))
            return out
        return self._mapping(node, path)

    def _mapping(self, node: yaml.Node, path: Path) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = _place(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self._bad_key(path)
                continue
            key, here = key_node.value, (*path, key_node.value)
            if key == "<<" and not key_node.style:
                self.say(
                    "P009", place, here, "merge keys (<<) are not used in recipes",
                    "put what lanes share under `shared`: it is merged into every lane",
                )  # fmt: skip
            elif key in out:
                first = self.tree.places[here][0]
                self.say(
                    "P002", place, here, f"key `{key}` stands twice, on lines {first} and {place[0]}",
                    "keep one of the two",
                )  # fmt: skip
            else:
                self.tree.places[here] = place
                out[key] = self.value(value_node, here)
        return out

    def _tag(self, node: yaml.Node, path: Path) -> None:
        shown = "!!" + node.tag.removeprefix(_TAG) if node.tag.startswith(_TAG) else node.tag
        self.say(
            "P009", self.tree.place(path), path, f"YAML tags are not used in recipes, got {shown}", "remove the tag"
        )

    def _bad_key(self, path: Path) -> None:
        self.say(
            "P011", self.tree.place(path), path,
            "a mapping or list stands where a key should be, as in an unfilled {{ template }}",
            "recipes hold no placeholders: write the value itself, in quotes if it has braces",
        )  # fmt: skip

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        kind, text = node.tag.removeprefix(_TAG), node.value
        if kind not in ("str", "null", "bool", "int", "float"):
            self._tag(node, path)
            return text
        if node.style or kind == "str":
            if node.style == '"' and (found := _CONTROL.search(text)):
                self.say(
                    "P007", self.tree.place(path), path, f"a control character, {found.group()!r}, in a value",
                    "take it out: values are printed, and name files",
                )  # fmt: skip
            if not node.style and _AMBIGUOUS.match(text):
                self._ambiguous(path, text)
            return text
        self.tree.raw[path] = text
        return _converted(kind, text)

    def _ambiguous(self, path: Path, text: str) -> None:
        word = text.lower()
        instead = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(word, word)
        if word not in ("yes", "no", "on", "off", "true", "false", "null"):
            instead = text.replace("_", "").lstrip("+")
            plain = instead if _FLOAT.match(instead) else "a plain decimal number"
            fix = f'write {plain} if a number is meant, "{text}" in quotes if text is meant'
        else:
            fix = f'write {instead} if that is meant, "{text}" in quotes if text is meant'
        self.say("P008", self.tree.place(path), path, f"YAML readers disagree about the plain value {text}", fix)


def _converted(kind: str, text: str) -> Any:
    if kind == "null" or text in ("", "~", "null"):
        return None
    if kind == "bool":
        return text == "true"
    try:
        return int(text) if kind == "int" else float(text)
    except ValueError:  # an explicit tag (!!int abc), or more digits than int() takes
        return text
