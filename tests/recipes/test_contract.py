"""The frozen contract of the UVA experiment reads, and its published rows end in the published stop."""

from __future__ import annotations

import pytest

from recipectl import experiment
from recipectl.speculative import parse_set, with_overrides
from tests.recipes import yardstick

FILE = yardstick.ROOT / "recipes" / "glm53-gb300-uva" / "contract.yaml"
# Drafts and accepted tokens of the four requests, from the published acceptance-k4-eager.json.
PUBLISHED = [(333, 178), (325, 188), (310, 203), (335, 176)]


@pytest.fixture
def contract() -> experiment.Contract:
    return experiment.parse(FILE.read_text(), str(FILE))[0]


def test_it_belongs_to_the_lane_and_its_arms_exist(contract: experiment.Contract) -> None:
    recipe = yardstick.load("glm53-gb300-uva")
    assert (contract.recipe, contract.lane) == (recipe.name, "sm100")
    for arm in contract.arms.values():
        lane = recipe.lane(contract.lane, arm.variant)
        with_overrides(lane, [parse_set(s) for s in arm.sets], arm.k)


def test_the_amendment_gives_the_lane_that_was_served(contract: experiment.Contract) -> None:
    recipe = yardstick.load("glm53-gb300-uva")
    frozen = contract.arms["candidate"]
    sets = [*frozen.sets, *(a.set for a in contract.stages[1].amendments)]
    amended = with_overrides(recipe.lane("sm100", frozen.variant), [parse_set(s) for s in sets], None)
    assert amended == recipe.lane("sm100", "dflash2-k4")
    assert with_overrides(amended, [parse_set(frozen.sets[0])], None).args.get("enforce_eager") is None


def test_the_published_rows_stop_it(contract: experiment.Contract) -> None:
    done = [experiment.Outcome("geometry", "PASS", "published"), experiment.Outcome("startup", "PASS", "published")]
    stage = experiment.next_stage(contract, done)
    assert stage is not None
    assert stage.name == "acceptance"
    outcome = experiment.judge_acceptance(stage, PUBLISHED, 4, contract.confidence, extended=False)
    assert outcome.status == "FAIL"
    # 1 + 745 / 1303
    assert outcome.evidence["pooled"] == pytest.approx(1.5718, abs=5e-5)
    assert (outcome.evidence["proposed"], outcome.evidence["accepted"]) == (5212, 745)
    rows = outcome.evidence["rows"]
    assert isinstance(rows, list)
    assert rows[0] == [333, 178, 1.5345]
    ended = experiment.finish(contract, [*done, outcome])
    assert {o.stage: o.status for o in ended[3:]} == dict.fromkeys(("speed", "quality", "promotion"), "NOT_RUN")
    assert all("acceptance" in o.why for o in ended[3:])
