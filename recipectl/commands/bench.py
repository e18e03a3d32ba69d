"""`bench`: measure a live deployment or any OpenAI-compatible server, print the table, leave a receipt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recipectl import provenance
from recipectl.bench import receipt, report
from recipectl.bench import run as bench_run
from recipectl.bench.files import RESULT
from recipectl.bench.result import Result
from recipectl.bench.target import Job, of_deployment, of_url
from recipectl.commands import checkups, results
from recipectl.commands.context import choose
from recipectl.commands.models import ensure_verified
from recipectl.console import Console
from recipectl.errors import BenchError, UsageError
from recipectl.gpu import gpus
from recipectl.serving import running
from recipectl.settings import Settings

DEFAULT = "counting,prose"


def run(
    settings: Settings,
    console: Console,
    *,
    name: str | None,
    url: str | None,
    model: str | None,
    sm: str | None,
    phases: str | None,
    concurrency: str | None,
    max_tokens: int | None,
    rounds: int | None,
    temperature: float | None,
    prompts: Path | None,
    lossless: bool,
    selftest: bool,
    export: str | None,
    out: Path | None,
    accept_license: Sequence[str] = (),
) -> int:
    """The table, the receipt, and exit code 9 where a cell has no valid block."""
    c = numbers(concurrency)
    if selftest:
        return checkups.run_selftest(console, c)
    names = (phases or DEFAULT).split(",")
    work = _job(settings, console, name, url, model, sm, accept_license)
    if lossless:
        return checkups.run_lossless(settings, console, work, names, max_tokens)
    wanted = work.protocols(
        names, prompts=prompts, concurrency=c, max_tokens=max_tokens, rounds=rounds, temperature=temperature
    )  # fmt: skip
    stamp = bench_run.now().replace("-", "").replace(":", "")
    folder = out or settings.state_dir / "bench" / f"{stamp}-{work.label}"
    result = bench_run.run(work.target, wanted, out=folder, console=console)
    for line in report.lines(result):
        console.print(line)
    if out is not None or export is not None:
        results.extras(result, folder, export)
    path = results.keep(settings, result, folder, work)
    console.notice(f"result: {folder / RESULT}\nreceipt: {path}")
    console.document({"receipt": str(path), "folder": str(folder), **receipt.seen(result, folder)})
    return verdict(result)


def _job(
    settings: Settings, console: Console, name: str | None, url: str | None, model: str | None, sm: str | None,
    accept: Sequence[str],
) -> Job:  # fmt: skip
    key = settings.environ.get("RECIPECTL_API_KEY")
    console.hide(key)
    if url is not None:
        console.notice(f"license: {provenance.UNKNOWN['unknown']}")
        return of_url(url, model, key, gpu_here=bool(gpus()))
    if model is not None:
        raise UsageError("--model belongs to --url", next_step="a deployment knows its own model name")
    live = running.pick(settings, name)
    chosen = choose(settings, console, live.recipe, sm or live.plan.lane.removeprefix("sm"), variant=live.plan.variant)
    ensure_verified(settings, console, chosen, accept=accept)
    return of_deployment(live, chosen.lane.bench, chosen.entry.file.parent, key)


def numbers(text: str | None) -> list[int] | None:
    """`1,2,4` as a list. UsageError for anything else."""
    if text is None:
        return None
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise UsageError("this is no list of stream counts", seen=f"--concurrency {text}", expected="such as 1,2,4")
    return found


def verdict(result: Result) -> int:
    """0 if every cell has a valid block, else 9."""
    empty = [c for m in result.measured for c in m.cells if not c.rounds]
    return BenchError.exit_code if empty else 0
