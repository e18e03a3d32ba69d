"""Guarded values: what wedged hosts before does not run again, from the recipe or by --set (G001). PURE."""

from __future__ import annotations

import re
from typing import Any

from recipectl.recipe.lane import Guard, GuardPoint
from recipectl.speculative.krules import scope_matches, standing
from recipectl.speculative.verdict import Case, RuleVerdict, Verdict

# Spellings of one engine argument in different forks and versions: a guard on one holds for all.
SPELLINGS = [("kv_cache_memory", "kv_cache_memory_bytes"), ("max_model_len", "context_length")]
_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30}


def check_guards(case: Case) -> list[RuleVerdict]:
    """One verdict for each guard of the lane."""
    return [_verdict(guard, case) for guard in case.lane.guards]


def _verdict(guard: Guard, case: Case) -> RuleVerdict:
    where = tuple(guard.key.split("."))
    if guard.scope.workload is not None or not scope_matches(guard.scope, case):
        return RuleVerdict("G001", "NOT_APPLICABLE", f"{guard.key}: the guard's scope is another", where=where)
    where, value = _value(case, where)
    if value is None:
        return RuleVerdict("G001", "NOT_APPLICABLE", f"{guard.key} is not set", where=where)
    points = sorted((p for p in guard.points if standing(p.evidence)), key=lambda p: p.value)
    key, shown = ".".join(where), show(value)
    kind, decides = _decide(value, points)
    good = decides if kind == "PASS" else next((p for p in reversed(points) if p.outcome == "good"), None)
    expected = f"{show(good.value)}, which ran well" if good else None
    if kind == "PASS" and decides:
        told = "ran well" if decides.value == value else f"is on the safe side of {show(decides.value)}, which ran well"
        return RuleVerdict("G001", "PASS", f"{key} {shown} {told}", where=where, evidence=tuple(decides.evidence))
    if kind == "FAIL" and decides:
        return RuleVerdict(
            "G001", "FAIL", f"{key} {shown} {_story(value, decides)}", seen=shown, expected=expected, where=where,
            evidence=tuple(decides.evidence), fix=f"set {key} to {plain(good.value)}" if good else f"lower {key}",
        )  # fmt: skip
    tried = ", ".join(f"{show(p.value)} {p.outcome}" for p in points) or "only retracted or disputed runs"
    return RuleVerdict(
        "G001", "WARN", f"nobody ran {key} {shown}; on record: {tried}", seen=shown, expected=expected, where=where,
        evidence=tuple(e for p in points for e in p.evidence),
        fix="keep to a value that ran well, or measure this one and add it to the guard",
    )  # fmt: skip


def _decide(value: float, points: list[GuardPoint]) -> tuple[Verdict, GuardPoint | None]:
    """The verdict about a value, and the point (points are sorted by value) that decides it.

    Where all good values lie below all bad ones, more is worse: at or below a good one passes, at or beyond a bad one
    fails. Where they lie above, less is worse. Mixed evidence decides only about the very values that were run.
    """
    if same := next((p for p in points if p.value == value), None):
        return ("PASS" if same.outcome == "good" else "FAIL"), same
    good, bad = [p for p in points if p.outcome == "good"], [p for p in points if p.outcome != "good"]
    if not good or not bad:
        return "WARN", None
    if good[-1].value < bad[0].value:
        safe = next((p for p in good if value < p.value), None)
        worse = next((p for p in reversed(bad) if value > p.value), None)
    elif good[0].value > bad[-1].value:
        safe = next((p for p in reversed(good) if value > p.value), None)
        worse = next((p for p in bad if value < p.value), None)
    else:
        return "WARN", None
    return ("PASS", safe) if safe else ("FAIL", worse) if worse else ("WARN", None)


def _story(value: float, point: GuardPoint) -> str:
    ended = {"slow": "was slow", "wedged": "wedged the host", "crashed": "crashed"}[point.outcome]
    return ended if point.value == value else f"is beyond {show(point.value)}, which {ended}"


def _value(case: Case, path: tuple[str, ...]) -> tuple[tuple[str, ...], float | None]:
    """The guarded value as a number, under any of its spellings, and the path where it was found."""
    names = next((s for s in SPELLINGS if path[-1] in s), (path[-1],))
    lane = case.lane.model_dump(include={path[0]})
    for name in names:
        here: tuple[str, ...] = (*path[:-1], name)
        value: Any = lane
        for part in here:
            value = value.get(part) if isinstance(value, dict) else None
        if (number := _number(value)) is not None:
            return here, number
    return path, None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    found = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*([kmg]?)(?:i?b)?\s*", str(value).lower())
    return float(found.group(1)) * _UNITS.get(found.group(2), 1) if found else None


def plain(value: float) -> str:
    """A number as YAML takes it."""
    return f"{int(value)}" if value == int(value) else f"{value:g}"


def show(value: float) -> str:
    """A number as a person wrote it; bytes with their GiB."""
    text = plain(value)
    return f"{text} ({value / 2**30:.2f} GiB)" if value >= 2**28 else text
