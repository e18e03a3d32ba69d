"""Each lane's plan launches what its source launches; every difference is explained in the data, and none too many."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest

from recipectl.serving.plan import Order, Prompts, compose
from tests.recipes import argv, yardstick

COMMANDS = yardstick.commands()


def planned(command: dict[str, Any]) -> list[str]:
    """The engine's words of rank 0, as `serve` would pass them."""
    recipe = yardstick.load(command["recipe"])
    lane = recipe.lane(command["lane"], command.get("variant"))
    models = {"target": PurePosixPath("/models/target"), "drafter": PurePosixPath("/models/drafter")}
    plan = compose(
        Order(
            id="test", recipe=recipe, lane_name=command["lane"], lane=lane, variant=command.get("variant"),
            models=models, program=(), port=8000, prompts=Prompts("", 10, ()), recipe_digest="", lock_digest="",
            hosts=tuple(f"host{n}" for n in range(lane.nodes)), master="host0",
        )
    )  # fmt: skip
    return list(plan.ranks[0].argv)


@pytest.mark.parametrize("command", COMMANDS, ids=[c["id"] for c in COMMANDS])
def test_the_plan_launches_what_was_published(command: dict[str, Any]) -> None:
    seen = argv.differences(argv.flags(planned(command)), argv.flags(command["argv"]))
    always = yardstick.explained_always()
    explained = {**always, **command.get("differs", {})}
    unexplained = {k: v for k, v in seen.items() if k not in explained}
    assert not unexplained, f"(ours, published) without an explanation: {unexplained}"
    needless = command.get("differs", {}).keys() - seen.keys()
    assert not needless, f"explained, yet equal: {sorted(needless)}"


def test_no_general_explanation_is_needless() -> None:
    seen = {k for c in COMMANDS for k in argv.differences(argv.flags(planned(c)), argv.flags(c["argv"]))}
    assert set(yardstick.explained_always()) <= seen


def test_each_lane_of_the_field_has_a_published_command() -> None:
    """Lanes whose source published no command line are named here, so that a new lane cannot be forgotten."""
    without = {("glm53-flash-mtp", "sm100")}  # catid publishes the settings of the run, not its argv
    field = {c["recipe"] for c in COMMANDS}
    lanes = {(name, lane) for name in field for lane in yardstick.load(name).lanes}
    assert lanes - {(c["recipe"], c["lane"]) for c in COMMANDS} == without


def test_published_spec_config_of_the_e_card_is_what_we_compose() -> None:
    """The card prints it: method dflash, the drafter's folder, 7 tokens."""
    command = next(c for c in COMMANDS if c["id"] == "canada-e")
    config = argv.flags(planned(command))["speculative_config"]
    assert config == {"method": "dflash", "model": "DRAFTER", "num_speculative_tokens": 7}
