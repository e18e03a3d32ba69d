"""Bench results as files and receipts: what bench leaves behind, and what compare finds again."""

from __future__ import annotations

from pathlib import Path

from recipectl import receipts
from recipectl.bench import export as exports
from recipectl.bench import files, html, receipt
from recipectl.bench.files import CHUNKS, RESULT
from recipectl.bench.result import Result
from recipectl.bench.target import Job
from recipectl.commands.context import newest, receipts_dir, write_receipt
from recipectl.errors import UsageError
from recipectl.fsio import sha256_file, write_atomic, write_json
from recipectl.settings import Settings


def keep(settings: Settings, result: Result, folder: Path, work: Job) -> Path:
    """Write the receipt of a run; its path."""
    made = receipts.Receipt(
        kind="bench", recipe=result.recipe, lane=result.lane, started=result.started, ended=result.ended,
        subjects=(*work.subjects, *receipt.subjects(sha256_file(folder / RESULT))),
        ran={"argv": result.server.argv, "protocols": {m.protocol.name: m.digest for m in result.measured}},
        seen=receipt.seen(result, folder), notes=result.notes, partial=result.partial,
    )  # fmt: skip
    return write_receipt(settings, made)


def extras(result: Result, folder: Path, export: str | None) -> None:
    """The HTML report beside the result, and the result in another tool's shape."""
    chunks = html.read_chunks(folder / CHUNKS)
    write_atomic(folder / "report.html", html.page(result, chunks))
    for name, flat in exports.vllm(result, chunks).items() if export == "vllm" else ():
        write_json(folder / name, flat)


def read(settings: Settings, given: str) -> Result:
    """A result from its folder, its file, a receipt (by path or by name), or the newest bench of a recipe.

    UsageError where there is none, or where it is damaged.
    """
    path = Path(given)
    if not path.exists():
        path = _kept(settings, given) or path
    if path.is_dir() or path.name == RESULT:
        return files.read(path)
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise UsageError(
            f"there is no bench result {given}", next_step="`recipectl bench` makes one",
            expected="a result's folder, a receipt, or a recipe that was benched here",
        ) from None  # fmt: skip
    except (OSError, UnicodeDecodeError) as err:
        raise UsageError("the bench result cannot be read", on=given, seen=err) from err
    if '"predicateType"' not in text:
        return files.read(path)
    kept = receipts.load(text, str(path))
    whole = Path(str(kept.seen.get("folder", ""))) / RESULT
    if whole.exists() and sha256_file(whole) != receipt.result_sha256(kept.subjects):
        raise UsageError("the result has changed since its receipt was written", on=str(whole), expected=str(path),
                         next_step=f"compare {whole} itself if that is meant")  # fmt: skip
    found = files.read(whole) if whole.exists() else receipt.of(kept.seen)
    if found is None:
        raise UsageError("this receipt holds no bench", on=str(path))
    return found


def _kept(settings: Settings, name: str) -> Path | None:
    """A receipt by its file name, else the newest bench receipt of the recipe of that name."""
    folder = receipts_dir(settings)
    if (folder / name).is_file():
        return folder / name
    return newest(p for end in ("", "-[0-9]*") for p in folder.glob(f"*-bench-{name}{end}.json"))
