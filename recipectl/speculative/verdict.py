"""One rule's verdict, and the case that a rule looks at. PURE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recipectl.lockfile import Facts, Lock
from recipectl.recipe.base import Evidence
from recipectl.recipe.lane import Lane
from recipectl.recipe.merge import Path
from recipectl.recipe.model import Model
from recipectl.recipe.schema import Recipe

Verdict = Literal["PASS", "FAIL", "WARN", "NOT_CHECKED", "NOT_APPLICABLE"]


@dataclass(frozen=True)
class RuleVerdict:
    """What a rule says about one lane. `where` is the path inside the lane; `evidence` is why the rule holds.

    FAIL refuses the lane; WARN is told and runs; NOT_CHECKED names what is not known yet and is never a pass.
    `waived` marks a FAIL that `--unqualified` turned into a WARN, so that receipts can be stamped. `known` marks a WARN
    about something that the recipe states with evidence of its own: told, but nothing that its author has overlooked.
    """

    code: str
    verdict: Verdict
    message: str
    seen: str | None = None
    expected: str | None = None
    fix: str | None = None
    evidence: tuple[Evidence, ...] = ()
    where: Path = ("speculative", "k")
    waived: bool = False
    known: bool = False

    def to_json(self) -> dict[str, object]:
        """For `--json` and receipts."""
        return {
            "code": self.code, "verdict": self.verdict, "message": self.message, "seen": self.seen,
            "expected": self.expected, "fix": self.fix, "where": ".".join(map(str, self.where)), "waived": self.waived,
            "known": self.known,
            "evidence": [e.model_dump(mode="json", exclude_none=True) for e in self.evidence],
        }  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One lane with what is known about its models: the recipe's claims, and the lock's facts where they hold."""

    recipe: Recipe
    lane_name: str
    lane: Lane
    lock: Lock | None

    @property
    def k(self) -> int:
        """K; 0 where nothing is drafted."""
        return self.lane.speculative.k or 0

    @property
    def drafter(self) -> Model | None:
        """The drafter as the recipe wants it."""
        return self.recipe.models.get(self.lane.drafter) if self.lane.drafter else None

    @property
    def target(self) -> Model:
        """The target as the recipe wants it."""
        return self.recipe.models[self.lane.target]

    @property
    def drafter_facts(self) -> Facts | None:
        """The drafter's facts from the lock; None while they are not known. DSpark may live in the target itself."""
        inside = self.lane.drafter is None and self.lane.speculative.method == "dspark"
        return self._facts(self.lane.target if inside else self.lane.drafter)

    @property
    def target_facts(self) -> Facts | None:
        """The target's facts from the lock; None while they are not known."""
        return self._facts(self.lane.target)

    def _facts(self, name: str | None) -> Facts | None:
        wanted = self.recipe.models.get(name) if name else None
        locked = self.lock.models.get(name) if self.lock and name else None
        if wanted is None or locked is None:
            return None
        same = (wanted.repo, wanted.path, wanted.revision) == (locked.repo, locked.path, locked.ref)
        return locked.facts if same else None

    def unknown(self, code: str, what: str, where: Path) -> RuleVerdict:
        """NOT_CHECKED for a fact that is not known, with the command that finds it out."""
        names = [n for n in (self.lane.target, self.lane.drafter) if n]
        state = "the lock does not say"
        if self.lock is None or not self.lock.resolution:
            state = "there is no lock yet"
        elif any(self._facts(n) is None for n in names):
            state = "the lock is of other models"
        command = f"recipectl lock {self.recipe.name} --sm {self.lane_name.removeprefix('sm')}"
        fix = f"`{command}` reads it from the model's own files"
        return RuleVerdict(code, "NOT_CHECKED", f"{what} is not known: {state}", fix=fix, where=where)

    @property
    def block_size(self) -> int | None:
        """The drafter's trained block: what its config.json says, else what the recipe says."""
        facts = self.drafter_facts
        stated = self.lane.speculative.block_size or (self.drafter.expect.block_size if self.drafter else None)
        return (facts.block_size if facts else None) or stated

    @property
    def from_anchor(self) -> bool:
        """dspark: whether the anchor slot drafts too. The DSpark default is yes."""
        facts, stated = self.drafter_facts, self.lane.speculative.sample_from_anchor
        known = facts.sample_from_anchor if facts else None
        return next((v for v in (known, stated) if v is not None), True)

    @property
    def trained_depth(self) -> int | None:
        """The largest K that the drafter was trained for; None for methods without a block, or an unknown block."""
        if self.lane.speculative.method not in ("dflash", "dspark") or self.block_size is None:
            return None
        anchored = self.lane.speculative.method == "dspark" and self.from_anchor
        return self.block_size if anchored else self.block_size - 1
