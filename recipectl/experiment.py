"""A frozen experiment: a contract whose hash is taken before the first stage, a ladder of stages, a stop rule. PURE.

A stage ends PASS, FAIL, INCONCLUSIVE or NOT_RUN(blocked by ...). The first stage that does not pass stops the ladder.
An inconclusive stage goes to its declared extension, never to a second roll of the same stage. Nothing is null.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from recipectl.bench import compare, resample
from recipectl.bench.compare import Judged
from recipectl.errors import UsageError
from recipectl.recipe.base import Json, Slug, Strict
from recipectl.recipe.beside import outside

SCHEMA = "recipectl.experiment/1"
Status = Literal["PASS", "FAIL", "INCONCLUSIVE", "NOT_RUN"]
QUALITY = "gate"  # the protocol of a quality stage that names none
Kind = Literal["geometry", "startup", "acceptance", "speed", "quality", "compare"]

_NEEDS: dict[str, tuple[str, ...]] = {
    "geometry": ("arm",),
    "startup": ("arm",),
    "acceptance": ("arm", "protocol", "threshold"),
    "speed": ("arm", "protocol"),
    "quality": ("arm", "against"),
    "compare": ("arm", "against", "protocol"),
}
_TAKES: dict[str, tuple[str, ...]] = {
    "geometry": (),
    "startup": ("amendments",),
    "acceptance": ("prompts", "concurrency", "extension"),
    "speed": ("prompts", "concurrency", "rounds", "least_tok_s"),
    "quality": ("protocol", "prompts"),
    "compare": ("prompts", "concurrency", "rounds", "boots", "min_effect", "want"),
}


class Arm(Strict):
    """One way to serve the recipe."""

    variant: Slug | None = None
    k: int | None = Field(default=None, ge=1)
    sets: list[str] = []


class Amendment(Strict):
    """A change that the contract allows when a boot fails, decided before it was needed."""

    set: str = Field(description="PATH=VALUE, as --set takes it")
    reason: str = Field(min_length=3)


class Stage(Strict):
    """One rung. Which fields a kind needs and takes is checked below: a threshold that no one reads never fails."""

    name: Slug
    kind: Kind
    arm: Slug | None = Field(default=None, description="the candidate; `compare` and `quality` measure `against` too")
    against: Slug | None = None
    amendments: list[Amendment] = Field(default=[], description="startup: tried in order after a failed boot")
    protocol: Slug | None = None
    prompts: str | None = Field(default=None, description="prompt file beside the contract")
    concurrency: list[int] = []
    rounds: int | None = Field(default=None, ge=1)
    threshold: float | None = Field(default=None, description="acceptance: pooled length to reach")
    extension: Slug | None = Field(default=None, description="acceptance: protocol of the declared second stage")
    least_tok_s: dict[str, float] = Field(
        default={}, description="speed: tok/s to reach, by concurrency, in every phase of the protocol"
    )
    boots: int = Field(default=1, ge=1, description="compare: boots per arm, interleaved ABBA")
    min_effect: dict[Literal["step_ms", "acceptance_length", "tok_s"], float] = {}
    want: Literal["better", "not worse"] = "not worse"

    @model_validator(mode="after")
    def _needs(self) -> Stage:
        missing = [f for f in _NEEDS[self.kind] if getattr(self, f) is None]
        if missing:
            raise ValueError(f"a stage of kind {self.kind} needs {', '.join(missing)}")
        takes = {"name", "kind", *_NEEDS[self.kind], *_TAKES[self.kind]}
        if idle := sorted(self.model_fields_set - takes):
            raise ValueError(f"a stage of kind {self.kind} does not read {', '.join(idle)}")
        measured = {str(c) for c in self.concurrency}
        if strange := [c for c in self.least_tok_s if not c.isdigit() or (measured and c not in measured)]:
            raise ValueError(f"least_tok_s at {', '.join(strange)}: the stage measures no such concurrency")
        if self.prompts is not None and (problem := outside(self.prompts)):
            raise ValueError(f"prompts: {problem.replace('recipe', 'contract')}")
        return self


class Contract(Strict):
    """The file. `restore`: the deployment that ran before is started and gated again, whatever the outcome."""

    schema_: Literal["recipectl.experiment/1"] = Field(alias="schema")
    name: Slug
    summary: str
    recipe: Slug
    lane: Slug
    arms: dict[Slug, Arm] = Field(min_length=1)
    stages: list[Stage] = Field(min_length=1)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    restore: bool = True
    seed: int = 0

    @model_validator(mode="after")
    def _names(self) -> Contract:
        for stage in self.stages:
            for arm in (stage.arm, stage.against):
                if arm is not None and arm not in self.arms:
                    raise ValueError(f"stage {stage.name}: no arm {arm!r} (arms: {', '.join(self.arms)})")
        if len({s.name for s in self.stages}) < len(self.stages):
            raise ValueError("two stages have one name")
        return self


@dataclass(frozen=True)
class Outcome:
    """How a stage ended. `evidence` is what was seen, `amended` what was changed within the contract to get there."""

    stage: str
    status: Status
    why: str
    evidence: Mapping[str, Json] = field(default_factory=dict)
    amended: tuple[str, ...] = ()


def parse(text: str, where: str) -> tuple[Contract, str]:
    """The contract and the sha256 of its bytes. UsageError lists every field that is wrong."""
    try:
        data = yaml.load(text, Loader=yaml.CSafeLoader)
        contract = Contract.model_validate_json(json.dumps(data))
    except (yaml.YAMLError, TypeError) as err:
        raise UsageError("the contract is not YAML", on=where, seen=err) from err
    except ValidationError as err:
        details = [f"{'.'.join(map(str, e['loc'])) or 'the file'}: {e['msg']}" for e in err.errors()]
        raise UsageError("the contract breaks its format", on=where, details=details) from err
    return contract, hashlib.sha256(text.encode()).hexdigest()


def next_stage(contract: Contract, done: Sequence[Outcome]) -> Stage | None:
    """The stage to run now, or None when the ladder has ended or was stopped."""
    if any(o.status != "PASS" for o in done) or len(done) >= len(contract.stages):
        return None
    return contract.stages[len(done)]


def finish(contract: Contract, done: Sequence[Outcome]) -> list[Outcome]:
    """Every stage of the contract with its outcome: those after a stop are NOT_RUN and name what blocked them."""
    stop = next((o for o in done if o.status != "PASS"), None)
    rest = contract.stages[len(done) :]
    blocked = f"blocked by {stop.stage}" if stop else "the experiment was broken off"
    return [*done, *(Outcome(s.name, "NOT_RUN", blocked) for s in rest)]


def passed(outcomes: Sequence[Outcome]) -> bool:
    """Whether the candidate passed every stage."""
    return all(o.status == "PASS" for o in outcomes)


Row = tuple[int, int]  # drafts, accepted tokens of one prompt's requests


def judge_acceptance(
    stage: Stage, rows: Sequence[Row], k: int, confidence: float, *, extended: bool, void: Sequence[str] = ()
) -> Outcome:
    """Pooled length against the threshold: FAIL if the interval lies below, PASS if above, else INCONCLUSIVE.

    `extended` says that the declared extension is in `rows` already; then INCONCLUSIVE is final. `void` are the blocks
    that rules took out.
    """
    assert stage.threshold is not None
    evidence: dict[str, Json] = {**acceptance_evidence(rows, k, confidence), "void": list(void)}
    low, high, pooled = (evidence[n] for n in ("interval_low", "interval_high", "pooled"))
    if not (isinstance(low, float) and isinstance(high, float) and isinstance(pooled, float)):
        left_out = f"; {len(void)} blocks are void ({void[0]})" if void else ""
        return Outcome(stage.name, "INCONCLUSIVE", f"fewer than two requests drafted{left_out}", evidence)
    seen = f"pooled acceptance length {pooled:.4f} ({low:.3f} to {high:.3f}) against {stage.threshold:g}"
    if high < stage.threshold:
        return Outcome(stage.name, "FAIL", seen, evidence)
    if low >= stage.threshold:
        return Outcome(stage.name, "PASS", seen, evidence)
    more = "" if extended or stage.extension is None else f"; goes to its extension {stage.extension}"
    return Outcome(stage.name, "INCONCLUSIVE", seen + more, evidence)


def acceptance_evidence(rows: Sequence[Row], k: int, confidence: float) -> dict[str, Json]:
    """Both means of the field, and the interval that takes requests as clusters."""
    found = resample.pooled_length(rows, confidence)
    drafted = [(d, a) for d, a in rows if d]
    return {
        "rows": [[d, a, round(1 + a / d, 4)] for d, a in drafted], "k": k,
        "drafts": sum(d for d, _ in drafted), "proposed": k * sum(d for d, _ in drafted),
        "accepted": sum(a for _, a in drafted), "pooled": found.point if found else None,
        "mean_of_rows": sum(1 + a / d for d, a in drafted) / len(drafted) if drafted else None,
        "interval_low": found.low if found else None, "interval_high": found.high if found else None,
    }  # fmt: skip


def judge_speed(stage: Stage, seen: Mapping[tuple[str, int], Sequence[float]]) -> Outcome:
    """The median of the rounds of each (phase, concurrency) against what the contract asks for at that concurrency.

    Phases are never averaged: each has to reach it.
    """
    from statistics import median

    evidence: dict[str, Json] = {f"{phase} c={c}": list(v) for (phase, c), v in seen.items()}
    asked = {(phase, c): least for phase, c in seen if (least := stage.least_tok_s.get(str(c))) is not None}
    missing = [f"c={c}" for c in stage.least_tok_s if not any(str(n) == c for _, n in seen)]
    missing += [f"{phase} c={c}" for phase, c in asked if not seen[phase, c]]
    if missing:
        return Outcome(stage.name, "INCONCLUSIVE", f"no valid round at {', '.join(missing)}", evidence)
    short = [f"{phase} c={c}: {median(seen[phase, c]):.1f} of {least:g} tok/s"
             for (phase, c), least in asked.items() if median(seen[phase, c]) < least]  # fmt: skip
    if short:
        return Outcome(stage.name, "FAIL", "; ".join(short), evidence)
    shown = ", ".join(f"{phase} c={c} {median(v):.1f}" for (phase, c), v in seen.items() if v)
    asks = "" if stage.least_tok_s else " (no threshold was asked for)"
    return Outcome(stage.name, "PASS", f"tok/s {shown}{asks}", evidence)


def judge_comparison(stage: Stage, judged: Sequence[Judged]) -> Outcome:
    """The candidate against the other arm, tok/s last: what regresses fails, what is not called is inconclusive."""
    evidence: dict[str, Json] = {
        "terms": compare.terms(judged, {str(k): v for k, v in stage.min_effect.items()}),
        "lines": [j.line() for j in judged],
    }
    if worse := compare.regressions(judged):
        return Outcome(stage.name, "FAIL", "; ".join(worse), evidence)
    speeds = [j for j in judged if j.metric == "tok_s"]
    shown = "; ".join(f"{j.phase} c={j.concurrency} tok/s {j.verdict} ({100 * j.effect.point:+.1f} %)" for j in speeds)
    if any(j.verdict == "inconclusive" for j in speeds) or not speeds:
        return Outcome(stage.name, "INCONCLUSIVE", shown or "no tok/s to judge", evidence)
    if stage.want == "better" and not any(j.verdict == "better" for j in speeds):
        return Outcome(stage.name, "FAIL", f"no cell is better: {shown}", evidence)
    return Outcome(stage.name, "PASS", shown, evidence)


def abba(boots: int) -> list[int]:
    """The order of boots of two arms, interleaved: 0 1, 1 0, 0 1, ... so that a slow drift hits both alike."""
    return [arm for i in range(boots) for arm in ((0, 1) if i % 2 == 0 else (1, 0))]


def to_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome for receipts."""
    return {"stage": outcome.stage, "status": outcome.status, "why": outcome.why, "evidence": dict(outcome.evidence),
            "amended": list(outcome.amended)}  # fmt: skip
