"""`report`: print a receipt of any kind again, as text, Markdown or HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recipectl import experiment_report, provenance, receipts, tables
from recipectl.bench import files, receipt, report
from recipectl.bench.result import Result
from recipectl.commands.context import newest, receipts_dir
from recipectl.console import Console
from recipectl.errors import UsageError
from recipectl.fsio import write_atomic
from recipectl.receipts import Receipt
from recipectl.settings import Settings


def run(settings: Settings, console: Console, *, receipt: str | None, format_: str, out: Path | None) -> int:
    """Print the receipt given, else the newest."""
    path = _find(settings, receipt)
    console.notice(f"receipt: {path}")
    seen, result = _read(path)
    text = _text(seen, result, path, format_, None if out else console.width)
    if out is not None:
        write_atomic(out, text)
        console.notice(f"wrote {out}")
    else:
        console.print(text)
    console.document({"receipt": str(path), **_plain(seen, result)})
    return 0


def _find(settings: Settings, given: str | None) -> Path:
    if given is not None:
        path = Path(given)
        path = path if path.exists() else receipts_dir(settings) / given
        path = path / files.RESULT if path.is_dir() else path
        if not path.exists():
            raise UsageError("no such receipt", seen=given, expected=f"a file, or a name in {receipts_dir(settings)}")
        return path
    found = newest(receipts_dir(settings).glob("*.json"))
    if found is None:
        raise UsageError("there is no receipt yet", on=str(receipts_dir(settings)), next_step="recipectl demo")
    return found


def _read(path: Path) -> tuple[Receipt | None, Result | None]:
    """A receipt with the result inside it, or a bare result file."""
    if path.name == files.RESULT:
        return None, files.read(path)
    try:
        found = receipts.load(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as err:
        raise UsageError("the receipt cannot be read", on=str(path), seen=err) from err
    result = receipt.of(found.seen)
    return found, result.model_copy(update={"notes": dict(found.notes)}) if result else None


def _text(found: Receipt | None, result: Result | None, path: Path, format_: str, width: int | None) -> str:
    if format_ == "markdown" and result is not None:
        return report.markdown(result)
    if format_ == "markdown" and found is not None and (ladder := experiment_report.of(found)):
        return experiment_report.markdown(ladder, list(provenance.summary(found.notes)))
    if format_ == "html" and result is not None:
        from recipectl.bench import html

        folder = Path(str(found.seen.get("folder"))) if found else path.parent
        return html.page(result, html.read_chunks(folder / files.CHUNKS))
    if format_ != "text":
        raise UsageError(f"this receipt cannot be printed as {format_}", on=str(path))
    lines = list(_receipt_lines(found, width)) if found else []
    return "\n".join([*lines, *(report.lines(result) if result else [])])


def _receipt_lines(found: Receipt, width: int | None) -> Iterator[str]:
    what = " ".join(x for x in (found.kind, found.recipe, found.lane) if x)
    yield f"{what}: {found.started} to {found.ended}" + (" (PARTIAL)" if found.partial else "")
    yield from (f"  {s.name}: sha256 {s.sha256}" for s in found.subjects)
    if ladder := experiment_report.of(found):
        yield ladder.title
        yield from tables.lines(experiment_report.HEAD, ladder.rows(), width)
        yield from ladder.ending()
        yield from experiment_report.evidence(ladder)
        yield from provenance.summary(found.notes)
        return
    for title, values in (("ran", found.ran), ("seen", found.seen)):
        shown = {k: v for k, v in values.items() if k not in ("bench", "folder")}
        yield from _tree(title, shown, 1) if shown else ()
    yield from (f"  amendment: {a}" for a in found.amendments)
    if "bench" not in found.seen:  # a bench result tells them itself
        yield from (f"  {line}" for line in provenance.summary(found.notes))


def _tree(name: str, value: Any, depth: int) -> Iterator[str]:
    pad = "  " * depth
    if isinstance(value, Mapping) and value:
        yield f"{pad}{name}:"
        for key, item in value.items():
            yield from _tree(str(key), item, depth + 1)
    elif isinstance(value, list) and any(isinstance(v, Mapping) for v in value):
        yield f"{pad}{name}:"
        for item in value:
            facts = item.items() if isinstance(item, Mapping) else [("", item)]
            yield f"{pad}  - " + "; ".join(f"{k}: {v}" for k, v in facts if v not in (None, "", [], {}))
    else:
        yield f"{pad}{name}: " + (" ".join(map(str, value)) if isinstance(value, list) else str(value))


def _plain(found: Receipt | None, result: Result | None) -> dict[str, Any]:
    if found is not None:
        return {"kind": found.kind, "recipe": found.recipe, "lane": found.lane, "started": found.started,
                "ended": found.ended, "partial": found.partial, "ran": found.ran, "seen": found.seen,
                "notes": found.notes}  # fmt: skip
    return {"kind": "bench", "seen": {"bench": result.model_dump(mode="json", by_alias=True) if result else None}}
