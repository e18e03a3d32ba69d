"""The gates: what a server must prove before it is called READY, in layers. PURE core, observations injected.

`/health` alone proves nothing: a server whose workers are dead, or that dies on its first request, answers it with 200
(issues eugr#260, MiaAI#112; fixture cpu-healthy-then-dies). Each gate ends PASS, FAIL, SKIPPED with a reason, NOT_RUN
because another blocks it, or KNOWN_FAULT where the engine fails in a way that the recipe declares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from recipectl.bench.acceptance import Acceptance, Scrape
from recipectl.errors import BenchError, EngineError
from recipectl.serving import logfacts
from recipectl.serving.logfacts import LogFacts
from recipectl.serving.observed import Probes, RankState
from recipectl.serving.plan import Plan, Prompts
from recipectl.serving.signatures import diagnose

Verdict = Literal["PASS", "FAIL", "SKIPPED", "NOT_RUN", "KNOWN_FAULT"]


@dataclass(frozen=True)
class Result:
    """One gate. `seen` and `expected` are shown as a pair; `fix` is what to do about a FAIL."""

    gate: str
    verdict: Verdict
    message: str
    seen: str | None = None
    expected: str | None = None
    fix: str | None = None

    @property
    def failed(self) -> bool:
        """Whether this gate keeps the server from being READY."""
        return self.verdict == "FAIL"


def passed(gate: str, message: str) -> Result:
    """A gate that holds."""
    return Result(gate, "PASS", message)


def skipped(gate: str, reason: str) -> Result:
    """A gate that says nothing here, and why."""
    return Result(gate, "SKIPPED", reason)


@dataclass
class Context:
    """What the gates of one run share. `exposed` says that the API key must be asked for."""

    plan: Plan
    probes: Probes
    exposed: bool = False
    ranks: list[RankState] = field(default_factory=list)
    facts: dict[int, LogFacts] = field(default_factory=dict)
    before: Scrape | None = None
    after: Scrape | None = None
    tokens: int = 0
    greedy: Acceptance | None = None
    counting: Acceptance | None = None

    @property
    def prompts(self) -> Prompts:
        """What the gates ask."""
        return self.plan.prompts

    def look(self) -> None:
        """Observe the ranks and read their logs anew."""
        self.ranks = self.probes.ranks()
        self.facts = {r.rank: logfacts.read(r.log) for r in self.ranks}

    def gone(self) -> bool:
        """Whether a rank's process or container has ended."""
        self.ranks = self.probes.ranks()
        return any(not r.alive for r in self.ranks)

    def dead(self) -> str | None:
        """The cause, if a rank has died since, or logged that its engine did: the API server lives on for a moment."""
        self.ranks = self.probes.ranks()
        gone = next((r for r in self.ranks if not r.alive), None)
        cause = next((d for r in sorted(self.ranks, key=lambda r: r.alive) if (d := diagnose(r.log))), None)
        if gone is None and cause is None:
            return None
        where = f"rank {gone.rank} on {gone.host} is gone" if gone else "the engine has failed"
        return f"{where}: {cause.meaning} (log line {cause.number}: {cause.line})" if cause else where


Gate = Callable[[Context], Sequence[Result]]


def run(context: Context, gates: Mapping[str, tuple[Gate, bool]], only: Sequence[str] = ()) -> list[Result]:
    """Run the gates in order. One that blocks and fails leaves the rest NOT_RUN; so does a rank that died meanwhile.

    `only` names gates to report (a named set); the layers below them run all the same.
    """
    out: list[Result] = []
    blocked: str | None = None
    for name, (gate, blocks) in gates.items():
        if blocked is not None:
            out.append(Result(name, "NOT_RUN", f"blocked by {blocked}"))
            continue
        try:
            results = list(gate(context))
        except (EngineError, BenchError) as err:
            results = [Result(name, "FAIL", err.what, seen=err.seen, expected=err.expected, fix=err.next_step)]
        out += results
        failed = next((r.gate for r in results if r.failed), None)
        if failed and (blocks or context.gone()):
            blocked = failed
    return [r for r in out if r.gate in only] if only else out


def failures(results: Sequence[Result]) -> list[Result]:
    """The gates that fail."""
    return [r for r in results if r.failed]


def set_verdicts(results: Sequence[Result], sets: Mapping[str, Sequence[str]]) -> dict[str, Verdict]:
    """The verdict of each named set: FAIL if one member fails, PASS if all pass, else the weakest of the rest."""
    order: tuple[Verdict, ...] = ("FAIL", "NOT_RUN", "SKIPPED", "KNOWN_FAULT", "PASS")
    out: dict[str, Verdict] = {}
    for name, members in sets.items():
        # `generation` stands for generation-c1, generation-c2, ...
        found = [[r.verdict for r in results if r.gate == m or r.gate.startswith(f"{m}-c")] for m in members]
        verdicts = {v for of_member in found for v in of_member or ["NOT_RUN"]}
        out[name] = next((v for v in order if v in verdicts), "NOT_RUN")
    return out
