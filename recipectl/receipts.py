"""Receipts: what was seen, as an in-toto-shaped JSON statement. PURE codec.

One file a run, written once, never rewritten. Every number that recipectl prints hangs on one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from recipectl import __version__
from recipectl.errors import UsageError

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://recipectl.dev/receipt/v1"
SCHEMA = "recipectl.receipt/1"
Kind = Literal["serve", "gate", "bench", "build", "pull", "experiment", "demo"]


@dataclass(frozen=True)
class Subject:
    """A thing the receipt is about, by content: recipe file, lock, model tree, image layer."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Receipt:
    """`ran` is what was started (argv without secrets, engine, driver); `seen` is what came back (gates, counters,
    bench cells, log digest); `notes` carries licenses and credits; `amendments` what deviated from the recipe."""

    kind: Kind
    recipe: str | None
    lane: str | None
    started: str
    ended: str
    subjects: tuple[Subject, ...] = ()
    ran: Mapping[str, Any] = field(default_factory=dict)
    seen: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    amendments: Sequence[str] = ()
    partial: bool = False


def dump(receipt: Receipt) -> str:
    """The statement as JSON text."""
    statement = {
        "_type": STATEMENT,
        "subject": [{"name": s.name, "digest": {"sha256": s.sha256.removeprefix("sha256:")}} for s in receipt.subjects],
        "predicateType": PREDICATE,
        "predicate": {
            "schema": SCHEMA,
            "tool": f"recipectl {__version__}",
            "kind": receipt.kind,
            "recipe": receipt.recipe,
            "lane": receipt.lane,
            "started": receipt.started,
            "ended": receipt.ended,
            "partial": receipt.partial,
            "ran": dict(receipt.ran),
            "seen": dict(receipt.seen),
            "notes": dict(receipt.notes),
            "amendments": list(receipt.amendments),
        },
    }
    return json.dumps(statement, indent=2, sort_keys=True, ensure_ascii=False, default=str) + "\n"


def load(text: str, name: str) -> Receipt:
    """Parse a receipt. UsageError for text that is none, or of another schema."""
    try:
        data = json.loads(text)
        p = data["predicate"]
        schema = p["schema"]
        if schema != SCHEMA:
            raise UsageError("the receipt has another schema", on=name, seen=schema, expected=SCHEMA)
        return Receipt(
            kind=p["kind"],
            recipe=p["recipe"],
            lane=p["lane"],
            started=p["started"],
            ended=p["ended"],
            subjects=tuple(Subject(s["name"], s["digest"]["sha256"]) for s in data["subject"]),
            ran=p["ran"],
            seen=p["seen"],
            notes=p["notes"],
            amendments=p["amendments"],
            partial=p["partial"],
        )
    except (ValueError, KeyError, TypeError, RecursionError) as err:
        seen = f"no {err}" if isinstance(err, KeyError) else err if isinstance(err, ValueError) else "another structure"
        raise UsageError(
            "this is not a recipectl receipt", on=name, seen=seen, next_step="recipectl report, for the newest"
        ) from err
