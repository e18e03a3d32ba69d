"""`compare`: two results, or one against the recipe's published table. Exit code 10 on a regression."""

from __future__ import annotations

from recipectl.bench import compare, published
from recipectl.bench.result import Result
from recipectl.bench.run import UNKNOWN_BOOT
from recipectl.commands import results
from recipectl.console import Console
from recipectl.errors import RegressionError, UsageError
from recipectl.recipe import catalog
from recipectl.settings import Settings


def run(settings: Settings, console: Console, *, a: str, b: str | None, against: str | None) -> int:
    """Print every judged cell; 10 if one regresses."""
    if (b is None) == (against is None):
        raise UsageError(
            "compare takes two results, or one and --against published", next_step="recipectl compare --help"
        )
    if against is not None:
        return _published(settings, console, results.read(settings, a))
    left, right = results.read(settings, a), results.read(settings, b or "")
    judged = compare.compare(left, right)
    worse = compare.regressions(judged)
    for name, result in (("A", left), ("B", right)):
        console.print(f"{name} {_title(result)}")
        for line in compare.dropped(result):
            console.print(f"  {line}")
    console.print(compare.terms(judged))
    if _boots(left) & _boots(right):
        console.notice(
            "both results come from one boot: this is an A/A control, its intervals are the rig's noise floor"
        )
    elif left.rig.get("host") != right.rig.get("host"):
        console.warn("the two results come from different machines")
    console.table(compare.COLUMNS, [j.row() for j in judged], below=("interval", "rests on"))
    console.print("regression: " + ("; ".join(worse) if worse else "none"))
    console.document({"judged": [vars(j) | {"effect": vars(j.effect)} for j in judged], "regressions": worse})
    return RegressionError.exit_code if worse else 0


def _published(settings: Settings, console: Console, result: Result) -> int:
    if result.recipe is None or result.lane is None:
        raise UsageError("the result names no recipe, so there is no published table", next_step="bench a deployment")
    recipe = catalog.load(catalog.find(settings, result.recipe))
    lane = recipe.lane(result.lane, result.variant)
    rows = published.against(result, lane.bench)
    console.table(published.COLUMNS, [row.row() for row in rows], below=("source",))
    worse = [r for r in rows if r.verdict == "below"]
    console.document({"rows": [vars(r) for r in rows], "regressions": len(worse)})
    return RegressionError.exit_code if worse else 0


def _boots(result: Result) -> set[str]:
    """The boots that were measured, as far as the server told which."""
    return {b.boot for m in result.measured for b in m.blocks} - {UNKNOWN_BOOT}


def _title(result: Result) -> str:
    what = " ".join(x for x in (result.recipe, result.lane, result.variant) if x) or result.server.url
    return f"{what}, K {result.server.k}, {result.started}"
