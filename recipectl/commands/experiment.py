"""`experiment`: run a frozen contract, stop where it says, bring back what ran before, leave a receipt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from recipectl import experiment, provenance, receipts
from recipectl.bench.run import now
from recipectl.commands import launching, stages
from recipectl.commands import notes as about
from recipectl.commands.context import write_receipt
from recipectl.commands.stand import Stand
from recipectl.console import Console
from recipectl.errors import BenchError, EngineError, Interrupted, RegressionError, UsageError
from recipectl.experiment import Contract, Outcome
from recipectl.experiment_report import HEAD, Ladder
from recipectl.fsio import write_atomic
from recipectl.recipe import catalog
from recipectl.serving import running
from recipectl.settings import Settings


def run(settings: Settings, console: Console, *, file: Path, dry_run: bool) -> int:
    """0 if every stage passes, 10 if one fails, 9 if one stays inconclusive."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as err:
        raise UsageError("the contract cannot be read", on=str(file), seen=err) from err
    contract, digest = experiment.parse(text, str(file))
    console.notice(f"contract frozen: sha256 {digest}")
    if dry_run:
        _plan(console, contract, digest)
        return 0
    begun = now()
    out = settings.state_dir / "experiments" / f"{begun.replace('-', '').replace(':', '')}-{contract.name}"
    stand = Stand(settings, console, contract, file, out)
    stand.check()
    write_atomic(out / "contract.yaml", text)
    broken_off = False
    try:
        _measure(settings, console, stand)
    except (KeyboardInterrupt, Interrupted):
        broken_off = True
    outcomes = experiment.finish(contract, stand.done)
    notes = [] if file.read_text() == text else ["the file was changed meanwhile; the frozen contract was run"]
    ladder = Ladder(contract.name, contract.recipe, contract.lane, digest, outcomes, stand.restored, stand.lost)
    console.print(ladder.title)
    console.table(HEAD, ladder.rows())
    for line in [*notes, *ladder.ending()]:
        console.print(line)
    seen = {"outcomes": [experiment.to_json(o) for o in outcomes], "restored": stand.restored, "folder": str(out),
            "not_restored": stand.lost, "passed": experiment.passed(outcomes)}  # fmt: skip
    made = replace(_receipt(contract, digest, begun, seen, notes), notes=_told(settings, contract), partial=broken_off)
    path = write_receipt(settings, made)
    console.notice(f"receipt: {path}")
    if broken_off:
        raise Interrupted(f"the experiment was broken off after {len(stand.done)} stages; they are in the receipt",
                          details=stand.lost, next_step=f"recipectl report {path}")  # fmt: skip
    if stand.lost:
        raise EngineError("what ran before could not be brought back", details=stand.lost,
                          next_step="recipectl status")  # fmt: skip
    console.document({"receipt": str(path), "contract_sha256": digest, **seen})
    return verdict(outcomes)


def _measure(settings: Settings, console: Console, stand: Stand) -> None:
    """Every stage, and whatever happens: our servers down, the ones that ran before up again and gated."""
    before = running.live(settings)
    for deployment in before:
        console.notice(f"stopping {deployment.plan.name} for the experiment")
        launching.stop(settings, deployment)
    try:
        stages.run_all(stand)
    finally:
        with launching.uninterrupted():
            stand.clear()
        if stand.contract.restore:
            stand.restore(before)


def _receipt(
    contract: Contract, digest: str, begun: str, seen: dict[str, Any], notes: list[str]
) -> receipts.Receipt:  # fmt: skip
    return receipts.Receipt(
        kind="experiment", recipe=contract.recipe, lane=contract.lane, started=begun, ended=now(),
        subjects=(receipts.Subject("contract", digest),), ran={"contract": contract.model_dump(mode="json")},
        seen=seen, amendments=[a for o in seen["outcomes"] for a in o["amended"]] + notes,
    )  # fmt: skip


def _told(settings: Settings, contract: Contract) -> dict[str, Any]:
    """Licenses and credits of the lane with its variants, which the arms are."""
    entry = catalog.find(settings, contract.recipe)
    recipe = catalog.load(entry)
    lanes = provenance.lanes_of(recipe, contract.lane)
    return provenance.block(about.of(settings, recipe, catalog.load_lock(entry), lanes))


def _plan(console: Console, contract: Contract, digest: str) -> None:
    console.print(f"experiment {contract.name} on {contract.recipe} {contract.lane}, sha256 {digest}")
    for stage in contract.stages:
        wanted = stage.model_dump(mode="json", exclude_defaults=True, exclude={"name", "kind"})
        console.print(f"  {stage.name} ({stage.kind}): " + ", ".join(f"{k} {v}" for k, v in wanted.items()))
    console.document({"contract_sha256": digest, "contract": contract.model_dump(mode="json", by_alias=True)})


def verdict(outcomes: list[Outcome]) -> int:
    """The exit code: 10 for a stage that failed, 9 for one that stayed inconclusive."""
    status = {o.status for o in outcomes}
    if "FAIL" in status:
        return RegressionError.exit_code
    return 0 if status == {"PASS"} else BenchError.exit_code
