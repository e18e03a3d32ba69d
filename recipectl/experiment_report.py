"""An experiment as text and as Markdown: the ladder, what each stage saw, what was changed on the way. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recipectl.experiment import Outcome, passed
from recipectl.receipts import Receipt

HEAD = ("stage", "verdict", "why")


@dataclass(frozen=True)
class Ladder:
    """One experiment that ended: the contract by name and digest, every stage with its outcome."""

    name: str
    recipe: str
    lane: str
    digest: str
    outcomes: Sequence[Outcome]
    restored: Sequence[str] = ()
    lost: Sequence[str] = ()

    @property
    def title(self) -> str:
        """Which contract it was."""
        return f"experiment {self.name} on {self.recipe} {self.lane}, contract sha256 {self.digest[:16]}"

    def rows(self) -> list[tuple[str, str, str]]:
        """The cells under `HEAD`."""
        return [(o.stage, o.status, o.why) for o in self.outcomes]

    def ending(self) -> Iterator[str]:
        """What a reader needs below the ladder."""
        yield from (f"amended in {o.stage}: {a}" for o in self.outcomes for a in o.amended)
        yield from (f"restored: {r}" for r in self.restored)
        yield from (f"NOT restored: {r}" for r in self.lost)
        yield f"verdict: {'PASS' if passed(list(self.outcomes)) else 'STOP'}"


def of(receipt: Receipt) -> Ladder | None:
    """The ladder that a receipt holds, or None."""
    outcomes = receipt.seen.get("outcomes")
    if receipt.kind != "experiment" or not isinstance(outcomes, list):
        return None
    contract = receipt.ran.get("contract") or {}
    digest = next((s.sha256 for s in receipt.subjects if s.name == "contract"), "")
    return Ladder(
        str(contract.get("name", "")), receipt.recipe or "", receipt.lane or "", digest,
        [Outcome(o["stage"], o["status"], o["why"], o.get("evidence") or {}, tuple(o.get("amended") or ()))
         for o in outcomes],
        receipt.seen.get("restored") or (), receipt.seen.get("not_restored") or (),
    )  # fmt: skip


def evidence(ladder: Ladder) -> Iterator[str]:
    """What each stage saw, a stage at a time."""
    for outcome in ladder.outcomes:
        said = list(_facts(outcome.evidence))
        if said:
            yield f"{outcome.stage} saw:"
            yield from (f"  {line}" for line in said)


def markdown(ladder: Ladder, credits: Sequence[str] = ()) -> str:
    """The ladder to paste into a pull request."""
    rows = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in ladder.rows()]
    return "\n".join(
        [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|", *rows, "", f"{ladder.title}.", "",
         *(f"- {line}" for line in (*ladder.ending(), *credits))]
    )  # fmt: skip


def _facts(seen: Mapping[str, Any]) -> Iterator[str]:
    single = {k: v for k, v in seen.items() if not isinstance(v, (list, Mapping)) and v is not None}
    if single:
        yield _joined(single)
    for name, value in seen.items():
        if isinstance(value, Mapping):
            yield f"{name}: {_joined({k: v for k, v in value.items() if v is not None})}"
        elif isinstance(value, list) and all(isinstance(v, str) for v in value):
            yield from (line if name == "lines" else f"{name}: {line}" for line in value)
        elif isinstance(value, list):
            yield f"{name}: " + ", ".join("/".join(map(_short, v)) if isinstance(v, list) else _short(v) for v in value)


def _joined(facts: Mapping[str, Any]) -> str:
    return "; ".join(f"{k} {_short(v)}" for k, v in facts.items())


def _short(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
