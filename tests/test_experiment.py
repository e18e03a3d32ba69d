"""The ladder and its judgements; the published case of the first seed is replayed row by row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from recipectl import experiment, experiment_report, receipts
from recipectl.bench import protocol
from recipectl.bench.compare import Judged
from recipectl.bench.resample import Interval
from recipectl.errors import UsageError
from recipectl.experiment import Outcome, Stage
from recipectl.experiment_report import Ladder
from recipectl.receipts import Receipt, Subject
from recipectl.recipe import catalog
from recipectl.settings import load
from tests.conftest import ROOT

CONTRACT = """
schema: recipectl.experiment/1
name: dflash2-over-uva-k4
summary: The published K 4 battery, geometry first, quality last, stop at the first stage that does not pass.
recipe: glm53-nvfp4-one-gb300
lane: sm100
arms:
  dflash2: {variant: dflash2, k: 4}
  mtp: {variant: mtp}
stages:
  - {name: geometry, kind: geometry, arm: dflash2}
  - name: startup
    kind: startup
    arm: dflash2
    amendments: [{set: args.enforce_eager=true, reason: the first boot may fail in CUDA graph capture}]
  - {name: acceptance, kind: acceptance, arm: dflash2, protocol: gate, threshold: 3.0, extension: gate-extension}
  - {name: speed, kind: speed, arm: dflash2, protocol: prose, concurrency: [1, 4, 8], least_tok_s: {"1": 54.7}}
  - {name: quality, kind: quality, arm: dflash2, against: mtp}
"""
# Drafts of the four requests of 512 tokens, and what was accepted of 4 per draft.
DRAFTS = (333, 325, 310, 335)
LENGTHS = (1.5375, 1.5754, 1.6516, 1.5284)
ROWS = [(d, round((length - 1) * d)) for d, length in zip(DRAFTS, LENGTHS, strict=True)]


def test_the_first_seed_ends_in_the_same_stop() -> None:
    contract, digest = experiment.parse(CONTRACT, "contract.yaml")
    assert len(digest) == 64
    done = [
        Outcome("geometry", "PASS", "target and draft dimensions match"),
        Outcome("startup", "PASS", "ready", amended=("args.enforce_eager=true (graph capture failed)",)),
    ]
    stage = experiment.next_stage(contract, done)
    assert stage is not None and stage.name == "acceptance"
    gate = experiment.judge_acceptance(stage, ROWS, 4, contract.confidence, extended=False)
    assert (gate.evidence["proposed"], gate.evidence["accepted"]) == (5212, 745)
    assert gate.evidence["pooled"] == pytest.approx(1.5718, abs=5e-5)
    assert gate.evidence["mean_of_rows"] == pytest.approx(1.5732, abs=5e-5)
    assert gate.status == "FAIL", "its whole interval lies below 3.0: no extension"
    outcomes = experiment.finish(contract, [*done, gate])
    assert experiment.next_stage(contract, [*done, gate]) is None
    assert [(o.stage, o.status) for o in outcomes] == [
        ("geometry", "PASS"), ("startup", "PASS"), ("acceptance", "FAIL"), ("speed", "NOT_RUN"),
        ("quality", "NOT_RUN")]  # fmt: skip
    assert all(o.why == "blocked by acceptance" for o in outcomes[3:])
    ladder = Ladder(contract.name, contract.recipe, contract.lane, digest, outcomes)
    assert "1.5718" in ladder.rows()[2][2] and digest[:16] in ladder.title
    assert list(ladder.ending()) == [
        "amended in startup: args.enforce_eager=true (graph capture failed)",
        "verdict: STOP",
    ]


def test_a_receipt_gives_the_ladder_back() -> None:
    contract, digest = experiment.parse(CONTRACT, "contract.yaml")
    stage = contract.stages[2]
    boot = Outcome("startup", "PASS", "a | b", {"failed_boots": ["the engine died"]})
    done = [Outcome("geometry", "PASS", "x"), boot,
            experiment.judge_acceptance(stage, ROWS, 4, 0.95, extended=False)]  # fmt: skip
    outcomes = experiment.finish(contract, done)
    receipt = Receipt(
        kind="experiment", recipe=contract.recipe, lane=contract.lane, started="2026-11-30T00:00:00Z",
        ended="2026-11-30T01:00:00Z", subjects=(Subject("contract", digest),),
        ran={"contract": contract.model_dump(mode="json")},
        seen={"outcomes": [experiment.to_json(o) for o in outcomes], "restored": ["old at URL"], "not_restored": []},
    )  # fmt: skip
    ladder = experiment_report.of(receipts.load(receipts.dump(receipt), "x"))
    assert ladder is not None and ladder.rows() == Ladder("", "", "", "", outcomes).rows()
    assert ladder.title.startswith("experiment dflash2-over-uva-k4 on glm53-nvfp4-one-gb300 sm100, contract sha256 ")
    seen = "\n".join(experiment_report.evidence(ladder))
    assert "startup saw:\n  failed_boots: the engine died\n" in seen
    assert "rows: 333/179/1.5375, 325/187/1.5754, 310/202/1.6516, 335/177/1.5284" in seen and "pooled 1.5718" in seen
    rows = experiment_report.markdown(ladder, ["credit"]).splitlines()
    assert rows[3] == "| startup | PASS | a / b |" and rows[5] == "| speed | NOT_RUN | blocked by acceptance |"
    assert rows[-3:] == ["- restored: old at URL", "- verdict: STOP", "- credit"]
    assert experiment_report.of(replace(receipt, kind="bench")) is None


def stage_of(**changes: object) -> Stage:
    base = {"name": "a", "kind": "acceptance", "arm": "x", "protocol": "gate"}
    gate = {} if "kind" in changes else {"threshold": 3.0, "extension": "more"}
    return Stage.model_validate({**base, **gate, **changes})


def test_a_close_result_goes_to_its_extension_and_then_ends() -> None:
    rows = [(100, 190), (100, 210), (100, 180), (100, 230)]  # pooled 3.025, four requests
    first = experiment.judge_acceptance(stage_of(), rows, 7, 0.95, extended=False)
    assert first.status == "INCONCLUSIVE" and "goes to its extension more" in first.why
    final = experiment.judge_acceptance(stage_of(), rows, 7, 0.95, extended=True)
    assert final.status == "INCONCLUSIVE" and "extension" not in final.why
    many = rows * 40
    assert experiment.judge_acceptance(stage_of(threshold=2.9), many, 7, 0.95, extended=True).status == "PASS"
    assert experiment.judge_acceptance(stage_of(threshold=3.1), many, 7, 0.95, extended=True).status == "FAIL"


@pytest.mark.parametrize("rows", [[], [(100, 50)], [(0, 0), (0, 0)]])
def test_too_little_to_judge_is_no_pass(rows: list[tuple[int, int]]) -> None:
    assert experiment.judge_acceptance(stage_of(), rows, 7, 0.95, extended=False).status == "INCONCLUSIVE"


def test_a_gate_whose_blocks_are_void_says_so() -> None:
    void = ["foreign: the server generated 9 tokens, our streams hold 8"] * 4
    gate = experiment.judge_acceptance(stage_of(), [], 7, 0.95, extended=True, void=void)
    assert gate.status == "INCONCLUSIVE" and "4 blocks are void (foreign: the server generated 9" in gate.why
    assert gate.evidence["void"] == void


def test_speed_cells() -> None:
    stage = stage_of(kind="speed", least_tok_s={"1": 54.7, "4": 100.0})
    seen = {("p", 1): [50.0, 55.0, 60.0], ("p", 4): [120.0]}
    assert experiment.judge_speed(stage, seen).status == "PASS"
    slow = experiment.judge_speed(stage, {**seen, ("p", 1): [50.0, 54.0, 60.0]})
    assert slow.status == "FAIL" and "p c=1: 54.0 of 54.7" in slow.why
    assert experiment.judge_speed(stage, {("p", 1): [60.0]}).status == "INCONCLUSIVE"
    void = experiment.judge_speed(stage, {**seen, ("p", 4): []})
    assert void.status == "INCONCLUSIVE" and void.why == "no valid round at p c=4"


def test_every_phase_has_to_reach_the_speed() -> None:
    # Counting at 90 and prose at 30 tok/s have a median of 60; 55 were asked for, and prose does not reach them.
    stage = stage_of(kind="speed", least_tok_s={"1": 55.0})
    seen = {("counting", 1): [90.0] * 3, ("prose", 1): [30.0] * 3}
    outcome = experiment.judge_speed(stage, seen)
    assert (outcome.status, outcome.why) == ("FAIL", "prose c=1: 30.0 of 55 tok/s")
    nothing = experiment.judge_speed(stage_of(kind="speed"), seen)
    assert nothing.status == "PASS" and nothing.why.endswith("(no threshold was asked for)")


def judged(metric: str, verdict: str) -> Judged:
    return Judged("p", 1, metric, 1.0, 1.0, Interval(0.0, -0.1, 0.1), 0.5, 5, 1, 5, verdict, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("step", "length", "speed", "want", "status"),
    [
        ("no change", "no change", "no change", "not worse", "PASS"),
        ("no change", "no change", "no change", "better", "FAIL"),
        ("better", "worse", "better", "better", "PASS"),
        ("better", "worse", "worse", "not worse", "FAIL"),
        ("worse", "no change", "inconclusive", "not worse", "FAIL"),
        ("worse", "better", "inconclusive", "not worse", "INCONCLUSIVE"),
        ("no change", "no change", "inconclusive", "not worse", "INCONCLUSIVE"),
    ],
)
def test_comparison_as_a_stage(step: str, length: str, speed: str, want: str, status: str) -> None:
    stage = stage_of(kind="compare", against="y", want=want)
    cells = [judged("step_ms", step), judged("acceptance_length", length), judged("tok_s", speed)]
    assert experiment.judge_comparison(stage, cells).status == status


def test_boots_are_interleaved() -> None:
    assert experiment.abba(1) == [0, 1]
    assert experiment.abba(4) == [0, 1, 1, 0, 0, 1, 1, 0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("threshold: 3.0, ", ""), "needs threshold"),
        (("arm: dflash2, against: mtp", "arm: dflash2, against: nobody"), "no arm 'nobody'"),
        (("name: speed", "name: startup"), "two stages have one name"),
        # What a kind does not read would be a gate that never fails.
        (('least_tok_s: {"1": 54.7}', "threshold: 54.7"), "a stage of kind speed does not read threshold"),
        (("threshold: 3.0, ", "threshold: 3.0, rounds: 5, "), "a stage of kind acceptance does not read rounds"),
        (('{"1": 54.7}', '{"2": 54.7}'), "least_tok_s at 2: the stage measures no such concurrency"),
        (('{"1": 54.7}', '{"c1": 54.7}'), "least_tok_s at c1"),
        (("kind: speed", "kind: sped"), "stages.3.kind"),
        (("recipe: glm53-nvfp4-one-gb300\n", ""), "recipe"),
        (("threshold: 3.0, ", "threshold: 3.0, prompts: ../mine.txt, "), "lies outside the contract's folder"),
        (("confidence", "confidence"), ""),
    ],
)
def test_contracts_that_are_wrong(change: tuple[str, str], words: str) -> None:
    if not words:
        assert experiment.parse(CONTRACT, "c")[0].confidence == 0.95
        return
    with pytest.raises(UsageError) as caught:
        experiment.parse(CONTRACT.replace(*change), "c")
    assert words in "\n".join(caught.value.details)


def test_the_hash_is_over_the_bytes() -> None:
    assert experiment.parse(CONTRACT, "c")[1] != experiment.parse(CONTRACT + "# a note\n", "c")[1]


@pytest.mark.parametrize("file", sorted(ROOT.glob("recipes/*/*.yaml")), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_every_contract_of_the_recipes_can_run(file: Path) -> None:
    if "schema: recipectl.experiment/1" not in file.read_text():
        return
    contract, _ = experiment.parse(file.read_text(), str(file))
    entry = catalog.find(load(), str(file.parent / "recipe.yaml"))
    recipe = catalog.load(entry)
    assert contract.recipe == recipe.name
    for arm in contract.arms.values():
        recipe.lane(contract.lane, arm.variant)
    for stage in contract.stages:
        for name in (stage.protocol, stage.extension):
            assert name is None or name in protocol.names()


def test_the_recipes_own_contract_of_the_first_seed_stops_there_too() -> None:
    text = (ROOT / "recipes" / "glm53-gb300-uva" / "contract.yaml").read_text()
    contract, _digest = experiment.parse(text, "contract.yaml")
    done = [Outcome("geometry", "PASS", "x"), Outcome("startup", "PASS", "x", amended=("args.enforce_eager=true",))]
    stage = experiment.next_stage(contract, done)
    assert stage is not None and stage.kind == "acceptance"
    done.append(experiment.judge_acceptance(stage, ROWS, 4, contract.confidence, extended=False))
    outcomes = experiment.finish(contract, done)
    assert [o.status for o in outcomes] == ["PASS", "PASS", "FAIL", "NOT_RUN", "NOT_RUN", "NOT_RUN"]
    assert contract.restore
