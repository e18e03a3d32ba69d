"""Which K each lane of the field admits, held against what its sources say. K is the number of speculative tokens."""

from __future__ import annotations

import pytest

from recipectl import speculative
from recipectl.errors import RecipeError
from recipectl.recipe.lane import Lane
from recipectl.recipe.schema import Recipe
from tests.recipes import yardstick

UP_TO = 16
ADMITTED = [
    # Seed 3: K 5 with four sequences; the author's later default is K 7 with two (sfxnz README).
    ("glm53-flash-dflash2", "sm121", None, {5}),
    ("glm53-flash-dflash2", "sm121", "k7", {7}),
    ("glm53-flash-dflash2", "sm121", "prebuilt", {5, 7}),  # tonyd2wild measured both with six sequences
    ("glm53-flash-dflash2", "sm100", None, {7}),  # seed 2: blocks of 7 drafted tokens
    ("glm53-flash-dflash2e", "sm121", None, {7}),  # seed 1: trained and benched; K 5 boots and was never benched
    ("glm53-gb300-uva", "sm100", None, {1, 2}),  # seed 0: MTP(1) daily, MTP(2) measured
    ("glm53-gb300-uva", "sm100", "dflash2-k4", {4}),  # seed 0: the experiment ran K 4
    ("glm53-flash-mtp", "sm121", None, {3}),  # LimeChain
    ("glm53-flash-mtp", "sm100", None, {5}),  # catid
    ("glm53-flash-sglang", "sm121", None, {3, 4, 5, 7}),  # beastllama: 4, 5, 6 and 8 draft tokens, one more than K
    ("glm53-flash-sglang", "sm100", None, set(range(1, 8))),  # at most 8 draft tokens: K 7
    ("dsv41-flash-dspark", "sm100", None, {1, 5}),  # J-M ksweep; the anchor slot drafts too, so block 5 gives K 5
    ("muse-glimmer-dflash", "sm121", None, {15}),  # vllm-project recipes: block 16
]


def refused(recipe: Recipe, family: str, lane: Lane, k: int, *, unqualified: bool = False) -> bool:
    """Whether `serve --k` would refuse it, before there is a lock."""
    try:
        speculative.refuse(recipe, family, speculative.with_overrides(lane, [], k), None, unqualified=unqualified)
    except RecipeError:
        return True
    return False


def lane_of(name: str, family: str, variant: str | None) -> tuple[Recipe, Lane]:
    recipe = yardstick.load(name)
    return recipe, recipe.lane(family, variant)


@pytest.mark.parametrize(("name", "family", "variant", "admitted"), ADMITTED)
def test_a_lane_admits_what_its_sources_ran(name: str, family: str, variant: str | None, admitted: set[int]) -> None:
    recipe, lane = lane_of(name, family, variant)
    assert {k for k in range(1, UP_TO + 1) if not refused(recipe, family, lane, k)} == admitted


def test_a_block_of_eight_never_drafts_eight_whatever_is_waived() -> None:
    """K 5 on drafter E is only unmeasured since its author's retraction, so it can be had; K 8 cannot exist."""
    recipe, lane = lane_of("glm53-flash-dflash2e", "sm121", None)
    assert refused(recipe, "sm121", lane, 5) and not refused(recipe, "sm121", lane, 5, unqualified=True)
    assert refused(recipe, "sm121", lane, 8, unqualified=True)


def test_unproven_hardware_warns_instead_of_refusing() -> None:
    recipe, lane = lane_of("glm53-flash-dflash2", "sm121", "upstream")
    assert {k for k in range(1, UP_TO + 1) if not refused(recipe, "sm121", lane, k)} == set(range(1, 8))
