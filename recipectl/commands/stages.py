"""The side effects of an experiment: servers up and down, benches run, each stage of a contract executed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from recipectl import experiment, speculative
from recipectl.bench import compare, forcing, lossless
from recipectl.bench import protocol as protocols
from recipectl.bench import run as bench_run
from recipectl.bench.protocol import Protocol
from recipectl.bench.result import Result
from recipectl.bench.target import Job, of_deployment
from recipectl.commands.context import Chosen, choose
from recipectl.commands.launching import bring_up, stop
from recipectl.commands.models import ensure_verified
from recipectl.commands.planning import plan_of
from recipectl.console import Console
from recipectl.errors import BenchError, EngineError, GateError, RecipeError
from recipectl.experiment import Contract, Outcome, Stage
from recipectl.serving.deployments import Deployment
from recipectl.settings import Settings


@dataclass
class Stand:
    """The test stand. One server at a time; `amended` are the changes that a startup needed, kept for later stages."""

    settings: Settings
    console: Console
    contract: Contract
    file: Path
    out: Path
    up: tuple[str, Deployment] | None = None
    amended: dict[str, list[str]] = field(default_factory=dict)
    boots: int = 0
    done: list[Outcome] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def chosen(self, arm: str) -> Chosen:
        """The lane of an arm, with its variant, K, --set values and amendments."""
        a = self.contract.arms[arm]
        sets = [speculative.parse_set(s) for s in (*a.sets, *self.amended.get(arm, []))]
        sm = self.contract.lane.removeprefix("sm")
        return choose(self.settings, self.console, self.contract.recipe, sm, variant=a.variant, k=a.k, sets=sets)

    def serve(self, arm: str, *, fresh: bool = False) -> Deployment:
        """The arm's gated server: the one that runs, unless `fresh` asks for a boot of its own."""
        if self.up and self.up[0] == arm and not fresh:
            return self.up[1]
        self.clear()
        chosen = self.chosen(arm)
        speculative.refuse(chosen.recipe, chosen.lane_name, chosen.lane, chosen.lock)
        models = ensure_verified(self.settings, self.console, chosen)
        stamps = [f"experiment {self.contract.name}, arm {arm}", *self.amended.get(arm, [])]
        self.boots += 1
        self.console.notice(f"boot {self.boots}: arm {arm}")
        deployment = bring_up(
            self.settings, self.console, plan_of(self.settings, chosen, models, None, stamps)
        ).deployment
        self.up = (arm, deployment)
        return deployment

    def clear(self) -> None:
        """Stop what runs here."""
        if self.up:
            left = stop(self.settings, self.up[1])
            self.up = None
            if left:
                raise EngineError("a server of the experiment does not stop", seen=", ".join(left),
                                  next_step="recipectl stop --all --force")  # fmt: skip

    def restore(self, before: Sequence[Deployment]) -> None:
        """Start again what ran before, each from its own plan, and gate it."""
        for old in before:
            self.console.notice(f"restoring {old.plan.name}")
            try:
                up = bring_up(self.settings, self.console, replace(old.plan, id=f"{old.plan.id}-restored"))
            except (EngineError, GateError) as err:
                self.lost.append(f"{old.plan.name}: {err.what}")
            else:
                self.restored.append(f"{old.plan.name} at {up.deployment.url}, gated again")

    def bench(self, arm: str, protocol: Protocol, name: str, *, start_round: int = 0) -> Result:
        """One bench of the arm's running server, into a folder of its own."""
        target = self.job(arm).target
        return bench_run.run(target, [protocol], out=self.out / name, console=self.console,
                             seed=self.contract.seed, start_round=start_round)  # fmt: skip

    def job(self, arm: str) -> Job:
        """The running server as a bench target."""
        chosen = self.chosen(arm)
        return of_deployment(self.serve(arm), chosen.lane.bench, chosen.entry.folder)

    def protocol(self, arm: str, name: str, stage: Stage) -> Protocol:
        """A protocol as the stage asks for it."""
        prompts = self.file.parent / stage.prompts if stage.prompts else None
        return self.job(arm).protocols([name], prompts=prompts, concurrency=stage.concurrency or None,
                                       rounds=stage.rounds)[0]  # fmt: skip


def geometry(stand: Stand, stage: Stage) -> Outcome:
    """Every K rule on the locked facts, before anything is started."""
    chosen = stand.chosen(stage.arm or "")
    verdicts = speculative.check(chosen.recipe, chosen.lane_name, chosen.lane, chosen.lock)
    failed = [f"{v.code}: {v.message}" for v in verdicts if v.verdict == "FAIL"]
    counted = {v.code: v.verdict for v in verdicts}
    if failed:
        return Outcome(stage.name, "FAIL", "; ".join(failed), dict(counted))
    passed = sum(v == "PASS" for v in counted.values())
    return Outcome(stage.name, "PASS", f"{passed} of {len(counted)} rules pass, none fails", dict(counted))


def startup(stand: Stand, stage: Stage) -> Outcome:
    """Boot and gates; after a failure the contract's amendments, in their order."""
    arm = stage.arm or ""
    used: list[str] = []
    failures: list[str] = []
    for amendment in (None, *stage.amendments):
        if amendment is not None:
            stand.amended.setdefault(arm, []).append(amendment.set)
            used.append(f"{amendment.set} ({amendment.reason})")
        try:
            d = stand.serve(arm, fresh=True)
        except (EngineError, GateError, RecipeError) as err:
            failures.append(err.what)
            continue
        why = f"ready and gated at {d.url}" + (f" after {len(used)} amendment(s)" if used else "")
        return Outcome(stage.name, "PASS", why, {"failed_boots": list(failures), "boots": stand.boots}, tuple(used))
    return Outcome(stage.name, "FAIL", failures[-1], {"failed_boots": list(failures)}, tuple(used))


def acceptance(stand: Stand, stage: Stage) -> Outcome:
    """The gate, one request a block so that every request has its own counters; then its extension, if declared."""
    arm = stage.arm or ""
    k = stand.serve(arm).k or 0
    rows: list[experiment.Row] = []
    outcome = None
    for extended, name in enumerate(n for n in (stage.protocol, stage.extension) if n):
        protocol = stand.protocol(arm, name, stage)
        prompts = sum(len(p.prompts) for p in protocol.phases.values())
        protocol = protocols.with_settings(protocol, {"requests": 1, "rounds": prompts}, stand.file.parent)
        result = stand.bench(arm, protocol, f"{stage.name}-{name}")
        blocks = [b for m in result.measured for b in m.blocks if b.valid and b.acceptance]
        rows += [(b.acceptance.drafts, b.acceptance.accepted) for b in blocks if b.acceptance]
        outcome = experiment.judge_acceptance(stage, rows, k, stand.contract.confidence, extended=bool(extended))
        if outcome.status != "INCONCLUSIVE":
            break
    assert outcome is not None
    return outcome


def speed(stand: Stand, stage: Stage) -> Outcome:
    """tok/s by concurrency against what the contract asks for."""
    arm = stage.arm or ""
    result = stand.bench(arm, stand.protocol(arm, stage.protocol or "", stage), stage.name)
    blocks = [b for m in result.measured for b in m.blocks if b.valid and b.rates.tok_s is not None]
    seen = {c: [b.rates.tok_s for b in blocks if b.concurrency == c and b.rates.tok_s is not None]
            for c in sorted({b.concurrency for b in blocks})}  # fmt: skip
    return experiment.judge_speed(stage, seen)


def quality(stand: Stand, stage: Stage) -> Outcome:
    """Losslessness of the candidate against a control arm without speculation."""
    name = stage.protocol or "gate"
    texts = {}
    dtype = "bfloat16"
    for arm in (stage.arm or "", stage.against or ""):
        protocol = stand.protocol(arm, name, stage)
        prompts = [p for phase in protocol.phases.values() for p in phase.prompts]
        job = stand.job(arm)
        dtype = str(stand.chosen(arm).lane.args.get("dtype") or dtype)
        texts[arm] = forcing.collect(job.target, prompts, protocol.max_tokens, stand.console)
    found = lossless.judge(texts[stage.arm or ""], texts[stage.against or ""], dtype)
    status: experiment.Status = {"LOSSLESS": "PASS", "LOSSY": "FAIL"}.get(found.verdict, "INCONCLUSIVE")  # type: ignore[assignment]
    return Outcome(stage.name, status, f"{found.verdict}: {found.why}", found.to_json())


def compared(stand: Stand, stage: Stage) -> Outcome:
    """Two arms on interleaved boots, judged pair by pair. `against` is A, the candidate is B."""
    arms = (stage.against or "", stage.arm or "")
    results: tuple[list[Result], list[Result]] = ([], [])
    for number, side in enumerate(experiment.abba(stage.boots)):
        arm = arms[side]
        stand.serve(arm, fresh=number > 0 or stand.up is None or stand.up[0] != arm)
        protocol = stand.protocol(arm, stage.protocol or "", stage)
        start = len(results[side]) * protocol.rounds
        results[side].append(stand.bench(arm, protocol, f"{stage.name}-boot{number + 1}-{arm}", start_round=start))
    a, b = (compare.join(r) for r in results)
    judged = compare.compare(a, b, min_effect={str(k): v for k, v in stage.min_effect.items()})
    return experiment.judge_comparison(stage, judged)


STAGES: dict[str, Callable[[Stand, Stage], Outcome]] = {
    "geometry": geometry, "startup": startup, "acceptance": acceptance, "speed": speed, "quality": quality,
    "compare": compared,
}  # fmt: skip


def run_all(stand: Stand) -> None:
    """The ladder, as far as it goes. What the contract does not reach is NOT_RUN.

    A stage whose server or measurement breaks says nothing about the candidate: it is INCONCLUSIVE, and the receipt of
    the others is not lost.
    """
    while (stage := experiment.next_stage(stand.contract, stand.done)) is not None:
        stand.console.notice(f"stage {stage.name} ({stage.kind})")
        try:
            outcome = STAGES[stage.kind](stand, stage)
        except (BenchError, EngineError, GateError) as err:
            outcome = Outcome(stage.name, "INCONCLUSIVE", f"{err.what}" + (f" ({err.seen})" if err.seen else ""))
        stand.done.append(outcome)
        stand.console.notice(f"stage {stage.name}: {outcome.status}, {outcome.why}")
