"""The yardstick: every statement of the four published documents, the place in a recipe that carries it, and the book
that is generated from both (docs/recipes.md). Run as a program, this file writes the book anew.

A place is a path into the merged recipe as JSON (lanes and variants complete), see the head of statements.yaml.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
SEEDS = ROOT / "tests" / "data" / "seeds"
BOOK = ROOT / "docs" / "recipes.md"
_SEGMENT = re.compile(r'(?P<key>"[^"]*"|[^.\["]+)(?:\[(?P<pick>[^\]]*)\])?(?:\.|\Z)')


@dataclass(frozen=True)
class Place:
    """Where one statement must be found. `value` is compared for equality, `has` are fragments of one element."""

    recipe: str
    path: str = ""
    file: str = "recipe.yaml"
    computed: str | None = None
    value: Any = None
    has: tuple[str, ...] = ()

    def problem(self) -> str | None:
        """Why the recipe does not carry it; None if it does."""
        try:
            found = self.found()
        except LookupError as err:
            return f"{self.recipe} {self.path}: {err.args[0]}"
        if not self.has:
            return None if found == self.value else f"{self.recipe} {self.path}: {found!r}, not {self.value!r}"
        elements = [as_text(e) for e in (found if isinstance(found, list) else [found])]
        if any(all(fragment in e for fragment in self.has) for e in elements):
            return None
        return f"{self.recipe} {self.path}: nothing there has all of {list(self.has)}"

    def found(self) -> Any:
        """What stands at the place. LookupError if nothing does."""
        if self.file != "recipe.yaml":
            return (ROOT / "recipes" / self.recipe / self.file).read_text()
        if self.computed == "captures":
            return captures(self.recipe, self.path)
        return walk(as_json(self.recipe), self.path)


def as_text(value: Any) -> str:
    """An element as the text in which fragments are looked for."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def load(recipe: str) -> Any:
    """The parsed recipe. Its findings fail the test."""
    from recipectl.recipe.parse import parse_text

    file = ROOT / "recipes" / recipe / "recipe.yaml"
    parsed, findings = parse_text(file.read_text(), str(file.relative_to(ROOT)))
    assert parsed is not None, "\n".join(line for f in findings for line in f.lines())
    return parsed


@cache
def as_json(recipe: str) -> Any:
    """The merged recipe as JSON values, keys as in the file."""
    return load(recipe).model_dump(mode="json", by_alias=True, exclude_none=True)


def captures(recipe: str, path: str) -> list[int]:
    """The CUDA graph sizes that recipectl composes for the lane at `lanes.NAME`."""
    from recipectl.speculative import capture_sizes

    return list(capture_sizes(load(recipe).lane(path.removeprefix("lanes."))) or ())


def walk(value: Any, path: str) -> Any:
    """The value at a path: `a."b.c".d[key=value,...].e`; an empty path is the whole."""
    at = 0
    while at < len(path):
        segment = _SEGMENT.match(path, at)
        if segment is None:
            raise LookupError(f"cannot read the path at {path[at:]!r}")
        key = segment["key"].strip('"')
        if not isinstance(value, dict) or key not in value:
            raise LookupError(f"there is no {key!r} in it")
        value = _pick(value[key], segment["pick"]) if segment["pick"] else value[key]
        at = segment.end()
    return value


def _pick(value: Any, condition: str) -> Any:
    wanted = dict(part.split("=", 1) for part in condition.split(","))
    hits = [e for e in value if all(str(e.get(k)) == v for k, v in wanted.items())]
    if len(hits) != 1:
        raise LookupError(f"{len(hits)} elements match [{condition}]")
    return hits[0]


@dataclass(frozen=True)
class Statement:
    """One statement of one document."""

    id: str
    kind: str
    says: str
    at: tuple[Place, ...]


def documents() -> dict[str, dict[str, Any]]:
    """The four documents by the prefix of their statements."""
    return dict(_file("statements.yaml")["documents"])


def statements() -> list[Statement]:
    """All statements in the order of the documents."""
    out = []
    for s in _file("statements.yaml")["statements"]:
        places = tuple(Place(**{**p, "has": tuple(p.get("has", ()))}) for p in s["at"])
        out.append(Statement(s["id"], s["kind"], s["says"], places))
    return out


def commands() -> list[dict[str, Any]]:
    """The published command lines."""
    return list(_file("argv.yaml")["commands"])


def explained_always() -> dict[str, str]:
    """Flags on which every plan departs from what was published, and why."""
    return dict(_file("argv.yaml")["always"])


@cache
def _file(name: str) -> Any:
    return yaml.safe_load((SEEDS / name).read_text())


def book() -> str:
    """docs/recipes.md: what the documents state, and where it went."""
    lines = [
        "# The recipes, and where every statement of their sources went",
        "",
        "Generated from `tests/data/seeds/statements.yaml` by `python tests/recipes/yardstick.py`; a test compares.",
        "The statements were read by hand from the published documents before a recipe was written. Each row names the",
        "place that carries it; `recipectl show NAME --evidence` prints the same from the recipe's side.",
        "",
        *_recipe_table(),
    ]
    for prefix, document in documents().items():
        lines += ["", f"## {document['title']}", "", f"{document['author']}, {document['date']}.", ""]
        lines += ["| # | kind | statement | carried by |", "|---|---|---|---|"]
        lines += [_row(s) for s in statements() if s.id.startswith(prefix + "-")]
    lines += ["", "## Published command lines", "", "| command | lane | source |", "|---|---|---|"]
    for c in commands():
        lane = f"{c['recipe']} {c['lane']}" + (f"/{c['variant']}" if "variant" in c else "")
        lines.append(f"| {c['id']} | {lane} | {c['source']} |")
    return "\n".join(lines) + "\n"


def _recipe_table() -> list[str]:
    lines = ["| recipe | lanes and variants | what it is |", "|---|---|---|"]
    for name in sorted({p.recipe for s in statements() for p in s.at} | {c["recipe"] for c in commands()}):
        recipe = as_json(name)
        shown = []
        for lane in recipe["lanes"]:
            variants = ", ".join(recipe["variants"].get(lane, {}))
            shown.append(f"{lane} ({variants})" if variants else lane)
        lines.append(f"| `{name}` | {'; '.join(shown)} | {recipe['summary']} |")
    return lines


def _row(statement: Statement) -> str:
    places = dict.fromkeys(
        f"`{p.recipe}` `{p.path.split('[')[0] if p.path else p.file}`".replace("|", "\\|") for p in statement.at
    )
    return f"| {statement.id} | {statement.kind} | {statement.says.replace('|', chr(92) + '|')} | {', '.join(places)} |"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    BOOK.write_text(book())
    print(f"wrote {BOOK.relative_to(ROOT)}")
