"""Every rule on one lane, and the refusal of a lane that breaks one. PURE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from recipectl.errors import RecipeError
from recipectl.lockfile import Lock
from recipectl.recipe.lane import Lane
from recipectl.recipe.schema import Recipe
from recipectl.speculative import drafterrules, fitrules, krules
from recipectl.speculative.guards import check_guards
from recipectl.speculative.table import RULES
from recipectl.speculative.verdict import Case, RuleVerdict

FUNCTIONS: dict[str, Callable[[Case], RuleVerdict]] = {
    "K001": krules.k001,
    "K002": krules.k002,
    "K003": krules.k003,
    "K004": fitrules.k004,
    "K005": fitrules.k005,
    "K006": fitrules.k006,
    "K007": fitrules.k007,
    "K008": fitrules.k008,
    "K009": fitrules.k009,
    "K010": drafterrules.k010,
    "K011": drafterrules.k011,
    "K012": drafterrules.k012,
    "K013": krules.k013,
    "K014": drafterrules.k014,
}
# Rules that also hold for a lane that drafts nothing.
WITHOUT_SPECULATION = ("K009", "K012")


def check(
    recipe: Recipe, lane_name: str, lane: Lane, lock: Lock | None, *, unqualified: bool = False
) -> list[RuleVerdict]:
    """The verdict of every rule, K001 to K014 and then the guards, on a lane of the recipe (after --k and --set).

    `unqualified` turns the FAIL of a rule that may be waived (K002) into a WARN marked `waived`, for the receipt.
    """
    case = Case(recipe, lane_name, lane, lock)
    verdicts = [_run(code, case) for code in FUNCTIONS] + check_guards(case)
    return [_finished(v, unqualified) for v in verdicts]


def refuse(
    recipe: Recipe, lane_name: str, lane: Lane, lock: Lock | None, *, unqualified: bool = False
) -> list[RuleVerdict]:
    """As `check`, but RecipeError with every FAIL and its fix if there is one. Serving verbs call this."""
    verdicts = check(recipe, lane_name, lane, lock, unqualified=unqualified)
    failed = [v for v in verdicts if v.verdict == "FAIL"]
    if failed:
        first, *more = failed
        raise RecipeError(
            f"{first.code} {where(first)}: {first.message}",
            on=f"{recipe.name} {lane_name}", seen=first.seen, expected=first.expected,
            details=[text for v in more for text in (f"{v.code} {where(v)}: {v.message}", f"  fix: {v.fix}")],
            next_step=first.fix,
        )  # fmt: skip
    return verdicts


def where(verdict: RuleVerdict) -> str:
    """The place inside the lane, dotted."""
    return ".".join(map(str, verdict.where))


def _run(code: str, case: Case) -> RuleVerdict:
    if case.lane.speculative.method == "none" and code not in WITHOUT_SPECULATION:
        return RuleVerdict(code, "NOT_APPLICABLE", "the lane drafts nothing")
    return FUNCTIONS[code](case)


def _finished(verdict: RuleVerdict, unqualified: bool) -> RuleVerdict:
    rule = RULES[verdict.code]
    if verdict.verdict == "FAIL" and unqualified and rule.waivable:
        verdict = replace(verdict, verdict="WARN", message=f"UNQUALIFIED: {verdict.message}", waived=True)
    return verdict if verdict.evidence else replace(verdict, evidence=rule.evidence)
