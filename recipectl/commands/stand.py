"""The test stand of an experiment: one server at a time, up, benched, down, and what ran before brought back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from recipectl import speculative
from recipectl.bench import run as bench_run
from recipectl.bench.protocol import Protocol
from recipectl.bench.result import Result
from recipectl.bench.target import Job, of_deployment
from recipectl.commands.context import Chosen, choose
from recipectl.commands.launching import bring_up, stop
from recipectl.commands.models import ensure_verified
from recipectl.commands.planning import plan_of
from recipectl.console import Console
from recipectl.errors import EngineError, GateError
from recipectl.experiment import QUALITY, Contract, Outcome, Stage
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
        """The running server as a bench target. Bench settings are those of the lane itself, whatever the variant of
        the arm says: both arms must be asked the same."""
        chosen = self.chosen(arm)
        return of_deployment(self.serve(arm), chosen.recipe.lane(chosen.lane_name).bench, chosen.entry.folder)

    def protocol(self, arm: str, name: str, stage: Stage) -> Protocol:
        """A protocol as the stage asks for it. UsageError for one that is not there."""
        chosen = self.chosen(arm)
        refs = tuple(chosen.recipe.lane(chosen.lane_name).bench)
        prompts = self.file.parent / stage.prompts if stage.prompts else None
        asked = Job(bench_run.Target(url=""), arm, refs, chosen.entry.folder)
        return asked.protocols([name], prompts=prompts, concurrency=stage.concurrency or None, rounds=stage.rounds)[0]

    def check(self) -> None:
        """Every arm and every protocol, before anything is stopped for them. Raises what the stage itself would."""
        for stage in self.contract.stages:
            for arm in (stage.arm, stage.against):
                if arm is not None:
                    self.chosen(arm)
            named = stage.protocol or (QUALITY if stage.kind == "quality" else None)
            for name in (named, stage.extension):
                if name is not None:
                    self.protocol(stage.arm or "", name, stage)
