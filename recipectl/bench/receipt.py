"""A bench result inside a receipt: everything but the streams that went well, which stay in the result file. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recipectl.bench.files import RESULT
from recipectl.bench.result import Block, Result
from recipectl.receipts import Subject


def seen(result: Result, folder: Path) -> dict[str, Any]:
    """What a receipt's `seen` holds of a run: the slim result without notes, and where the whole of it lies."""
    return {"bench": _slim(result).model_dump(mode="json", by_alias=True), "folder": str(folder)}


def subjects(result_sha256: str) -> tuple[Subject, ...]:
    """The result file by content."""
    return (Subject(RESULT, result_sha256),)


def result_sha256(subjects_: Sequence[Subject]) -> str | None:
    """The content that a receipt names, or None."""
    return next((s.sha256 for s in subjects_ if s.name == RESULT), None)


def of(seen_: Mapping[str, Any]) -> Result | None:
    """The result inside a receipt's `seen`, or None. UsageError if it is damaged."""
    import json

    from recipectl.bench.result import load

    found = seen_.get("bench")
    return load(json.dumps(found), "receipt") if found is not None else None


def _slim(result: Result) -> Result:
    measured = [m.model_copy(update={"blocks": [_block(b) for b in m.blocks]}) for m in result.measured]
    return result.model_copy(update={"measured": measured, "notes": {}})


def _block(block: Block) -> Block:
    kept = [r for r in block.requests if r.failure or r.text_problems or (r.count and not r.count.exact)]
    return block.model_copy(update={"requests": kept})
