"""The rules about K itself: bound, own evidence, trained depth, schedule (K001, K002, K003, K013). PURE."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recipectl.recipe.base import Evidence, Scope
from recipectl.recipe.lane import KRule
from recipectl.speculative.compose import max_num_seqs
from recipectl.speculative.table import BOUND_EVIDENCE
from recipectl.speculative.verdict import Case, RuleVerdict

STANDING = ("published", "reproduced")


def bound(case: Case) -> tuple[int | None, str]:
    """The largest K of the lane's method and how it follows; None where the method has none or it is not known."""
    spec, block = case.lane.speculative, case.block_size
    if spec.method == "dflash":
        return (None, "") if block is None else (block - 1, f"dflash: block_size {block} minus 1")
    if spec.method == "dspark":
        if block is None:
            return None, ""
        if case.from_anchor:
            return block, f"dspark, sample_from_anchor: block_size {block}"
        return block - 1, f"dspark with a bonus anchor: block_size {block} minus 1"
    return None, f"{spec.method}: 1 or more"


def k001(case: Case) -> RuleVerdict:
    """K within the method's bound. Never waived: a larger K reads slots that the drafter does not have."""
    spec, k = case.lane.speculative, case.k
    top, why = bound(case)
    evidence = BOUND_EVIDENCE.get(spec.method, ())
    if k < 1:
        limit = f"1..{top}" if top else "1 or more"
        return RuleVerdict(
            "K001", "FAIL", f"{k} drafts nothing", seen=f"K {k}", expected=f"K {limit}",
            fix=f"set K to {limit}, or method: none to serve without speculation", evidence=evidence,
        )  # fmt: skip
    if spec.method in ("dflash", "dspark") and top is None:
        return case.unknown("K001", "the drafter's block_size", ("speculative", "block_size"))
    if top is not None and k > top:
        return RuleVerdict(
            "K001", "FAIL", f"{k} exceeds {top} ({why})", seen=f"K {k}", expected=f"K <= {top}",
            fix=f"set K to {top} or less", evidence=evidence,
        )  # fmt: skip
    message = f"{k} is within {why}" if top is None else f"{k} <= {top} ({why})"
    return RuleVerdict("K001", "PASS", message, evidence=evidence)


def k002(case: Case) -> RuleVerdict:
    """The recipe's own rules. What is in scope and stands decides; what is retracted or out of scope can only warn."""
    rules = case.lane.speculative.rules
    if not rules:
        return RuleVerdict("K002", "NOT_APPLICABLE", "the recipe has no rule of its own about K")
    binding = [r for r in rules if _in_scope(r.scope, case) and standing(r.evidence)]
    measured = sorted({k for r in binding if r.kind == "measured" for k in r.k})
    broken = next((r for r in binding if not _allows(r, case.k, measured)), None)
    if broken is not None:
        wanted = _wanted(broken, measured)
        return RuleVerdict(
            "K002", "FAIL", f"{case.k} breaks the recipe's rule: {wanted}" + _reason(broken), seen=f"K {case.k}",
            expected=f"K {wanted}", evidence=tuple(broken.evidence),
            fix=f"set K to {_nearest(case.k, broken, measured)}; "
            f"`--unqualified` runs {case.k} all the same and stamps the receipt",
        )  # fmt: skip
    others = [r for r in rules if r not in binding and not _allows(r, case.k, list(r.k))]
    if others and not binding:
        told = others[0]
        wanted = _wanted(told, told.k)
        why = f"a {told.evidence[-1].status} rule says {wanted}"
        if not _in_scope(told.scope, case):
            scope = ", ".join(f"{k} {v}" for k, v in told.scope.model_dump(exclude_none=True).items())
            why = f"no rule covers this lane; one for {scope} says {wanted}"
        return RuleVerdict(
            "K002", "WARN", f"{case.k}: {why}" + _reason(told),
            seen=f"K {case.k}", expected=f"K {wanted}", evidence=tuple(told.evidence),
            fix="add a `measured` rule with your own evidence once you have run it", known=_unproven(case),
        )  # fmt: skip
    passed = " and ".join(_wanted(r, measured) for r in binding) or "no rule is in scope; none is broken"
    return RuleVerdict("K002", "PASS", f"{case.k}: {passed}", evidence=tuple(e for r in binding for e in r.evidence))


def k003(case: Case) -> RuleVerdict:
    """K below the trained depth is legal and can win, but only a measurement shows it."""
    depth = case.trained_depth
    if case.k < 1:
        return RuleVerdict("K003", "NOT_APPLICABLE", f"{case.k} drafts nothing")
    if case.lane.speculative.method not in ("dflash", "dspark"):
        return RuleVerdict("K003", "NOT_APPLICABLE", f"{case.lane.speculative.method} has no trained depth")
    if depth is None:
        return case.unknown("K003", "the drafter's block_size", ("speculative", "block_size"))
    if case.k >= depth:
        return RuleVerdict("K003", "PASS", f"{case.k} is not below the trained depth, {depth}")
    proof = _measured(case)
    if proof:
        return RuleVerdict("K003", "PASS", f"{case.k} is below the trained depth {depth}, as measured", evidence=proof)
    return RuleVerdict(
        "K003", "WARN", f"{case.k} is below the trained depth {depth} and nobody measured it here", seen=f"K {case.k}",
        expected=f"K {depth}, or evidence for {case.k}",
        fix=f"bench it, then add a rule `kind: measured, k: [{case.k}]` with the receipt as its source",
        known=_unproven(case),
    )  # fmt: skip


def k013(case: Case) -> RuleVerdict:
    """A schedule leaves no batch size without a K, and no K outside K001."""
    where = ("speculative", "schedule")
    tiers = case.lane.speculative.schedule
    if not tiers:
        return RuleVerdict("K013", "NOT_APPLICABLE", "no schedule", where=where)
    shown = "[" + ", ".join(f"[{t.low},{t.high},{t.k}]" for t in tiers) + "]"
    top, why = bound(case)
    seqs = max_num_seqs(case.lane)
    problems: list[str] = []
    expected = 1
    for tier in tiers:
        if tier.low != expected or tier.high < tier.low:
            problems.append(f"[{tier.low},{tier.high},{tier.k}] should start at {expected} and end at or after it")
        if tier.k < 1 or (top is not None and tier.k > top):
            problems.append(f"K {tier.k} is outside 1..{top} ({why})" if top else f"K {tier.k} drafts nothing")
        if tier.k > case.k:
            problems.append(f"K {tier.k} exceeds speculative.k {case.k}, which is the largest K of a schedule")
        expected = tier.high + 1
    if seqs is not None and expected <= seqs:
        problems.append(f"{expected}..{seqs} requests have no K")
    if problems:
        return RuleVerdict(
            "K013", "FAIL", "; ".join(problems), seen=shown, where=where,
            expected="ranges [low, high, K] from 1 to max_num_seqs without gap or overlap",
            fix="write ranges that follow each other from 1",
        )  # fmt: skip
    if top is None and case.lane.speculative.method in ("dflash", "dspark"):
        return case.unknown("K013", "the drafter's block_size", where)
    return RuleVerdict("K013", "PASS", f"{shown} is contiguous and within K001", where=where)


def standing(evidence: Iterable[Evidence]) -> bool:
    """Whether any of it was published or reproduced and is neither disputed nor retracted."""
    return any(e.status in STANDING for e in evidence)


def _in_scope(scope: Scope, case: Case) -> bool:
    """Whether evidence of that scope binds this lane. A workload binds nobody: a server does not choose its prompts."""
    return scope.workload is None and scope_matches(scope, case)


def scope_matches(scope: Scope, case: Case) -> bool:
    """Whether lane, drafter, image and max_num_seqs of a scope are those of the case; what is unset matches all."""
    lane, drafter = case.lane, case.drafter
    image = lane.engine.image
    images = [lane.engine.overlay, image.ref if image else None, image.digest if image else None]
    pairs: list[tuple[object, Sequence[object]]] = [
        (scope.lane, [case.lane_name]),
        (scope.drafter, [lane.drafter, drafter.repo if drafter else None]),
        (scope.image, images),
        (scope.max_num_seqs, [max_num_seqs(lane)]),
    ]
    return all(wanted is None or wanted in actual for wanted, actual in pairs)


def _unproven(case: Case) -> bool:
    """Whether the lane itself says that nobody has run it."""
    return case.lane.status == "unproven"


def _allows(rule: KRule, k: int, measured: list[int]) -> bool:
    return k <= max(rule.k) if rule.kind == "max" else k in (measured if rule.kind == "measured" else rule.k)


def _wanted(rule: KRule, measured: list[int]) -> str:
    if rule.kind == "max":
        return f"at most {max(rule.k)}"
    values = measured if rule.kind == "measured" else rule.k
    shown = " or ".join(map(str, values))
    return f"{shown}, as measured" if rule.kind == "measured" else f"exactly {shown}"


def _nearest(k: int, rule: KRule, measured: list[int]) -> int:
    values = measured if rule.kind == "measured" else rule.k
    return max(rule.k) if rule.kind == "max" else min(values, key=lambda v: (abs(v - k), v))


def _reason(rule: KRule) -> str:
    return f" ({rule.reason.rstrip('.')})" if rule.reason else ""


def _measured(case: Case) -> tuple[Evidence, ...]:
    """Standing evidence that this K was run: a rule that names it, or a published row of this lane with it."""
    spec = case.lane.speculative
    rules = [
        e for r in spec.rules if r.kind != "max" and case.k in r.k and _in_scope(r.scope, case) for e in r.evidence
    ]
    rows = [e for b in case.lane.bench for row in b.published if row.k == case.k for e in row.evidence]
    return tuple(e for e in (*rules, *rows) if e.status in STANDING)
