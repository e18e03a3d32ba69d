"""All evidence of a lane as rows: what `show --evidence` prints. PURE."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from recipectl.recipe.base import Evidence, Scope
from recipectl.recipe.lane import Lane
from recipectl.recipe.merge import Path
from recipectl.recipe.schema import Recipe
from recipectl.recipe.yamltree import dotted

Row = tuple[str, str, Evidence]


def rows(recipe: Recipe, lane: Lane) -> list[Row]:
    """(place, value it backs, evidence) for the lane and its models, in the order of the schema.

    What has no date of its own was said when its source was.
    """
    out = [row for name in (lane.target, lane.drafter) if name for row in _of(recipe.models[name], ("models", name))]
    out += list(_of(lane, ()))
    dates = {s.title: s.date for s in recipe.provenance.sources if s.date}
    return [(place, value, _dated(e, dates)) for place, value, e in out]


def _dated(evidence: Evidence, dates: Mapping[str, dt.date]) -> Evidence:
    """`sfxnz repository: run.sh` is of the source titled `sfxnz repository`."""
    when = dates.get(evidence.source) or dates.get(evidence.source.split(": ", 1)[0])
    return evidence if evidence.date or not when else evidence.model_copy(update={"date": when})


def text(row: Row) -> tuple[str, str, str, str, str, str]:
    """Place, value, status, date, source, note with scope."""
    place, value, evidence = row
    note = "; ".join(filter(None, (_scope(evidence.scope), evidence.note)))
    return place, value, evidence.status, str(evidence.date or ""), evidence.source, note


def _of(value: Any, at: Path) -> Iterator[Row]:
    """Evidence below a value. A list of evidence belongs to what holds it, or to the key that its name points at."""
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            inner = getattr(value, name)
            if name in ("evidence", "license_evidence"):
                subject = value if name == "evidence" else getattr(value, "license", None)
                here = at if name == "evidence" else (*at, "license")
                yield from ((dotted(here), _brief(subject), e) for e in inner)
            elif name in ("args_evidence", "env_evidence"):
                section = name.removesuffix("_evidence")
                held = getattr(value, section)
                for key, evidence in inner.items():
                    yield from ((f"{section}.{key}", _brief(held.get(key, "(not set)")), e) for e in evidence)
            else:
                yield from _of(inner, (*at, name))
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _of(inner, (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _of(inner, (*at, index))


_TOLD = ("kind", "k", "value", "outcome", "pattern", "phase", "concurrency", "tok_s", "tok_s_range", "aggregate_tok_s",
         "acceptance_length", "acceptance_rate", "min", "max", "ref", "version", "quantization", "repo", "page_bytes",
         "method", "block_size", "network")  # fmt: skip


def _brief(value: Any) -> str:
    """What the evidence is about, in a few words."""
    if isinstance(value, BaseModel):
        parts = ((name, getattr(value, name, None)) for name in _TOLD)
        words = [f"{name} {_brief(v)}" for name, v in parts if v not in (None, [], "")]
        return _cut(", ".join(words))
    if isinstance(value, list | tuple):
        return " ".join(map(_brief, value))
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _cut(text_: str) -> str:
    return text_ if len(text_) <= 60 else text_[:57] + "..."


def _scope(scope: Scope | None) -> str:
    given = scope.model_dump(exclude_none=True) if scope else {}
    return ", ".join(f"{k} {v}" for k, v in given.items())
