"""K001, K002, K003 and K013 on facts of the field."""

from __future__ import annotations

from typing import Any

import pytest

from recipectl.errors import RecipeError
from recipectl.lockfile import Facts
from recipectl.speculative import refuse, with_k

from .builder import lock_of, recipe, the_lane, verdict

CARD = {"source": "canada-quant drafter card", "date": "2026-09-01"}
RETRACTED = {"source": "canada-quant drafter card G", "date": "2026-09-26", "status": "retracted"}
SWEEP = {"source": "sfxnz PR 1", "date": "2026-08-29"}


def rule(kind: str, k: list[int], *evidence: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": kind, "k": k, "evidence": list(evidence), **more}


@pytest.mark.parametrize(
    ("method", "block", "anchor", "k", "expected"),
    [
        ("dflash", 8, None, 7, "PASS"),  # incoai, canada-quant: block 8, K 7
        ("dflash", 8, None, 8, "FAIL"),  # coolbho3k's launcher takes 8; 8 exceeds 7
        ("dflash", 16, None, 15, "PASS"),  # Muse-Glimmer: block 16, 15 remain
        ("dflash", 16, None, 16, "FAIL"),
        ("dspark", 8, True, 8, "PASS"),  # RedHatAI/GLM-5.3-speculator.dspark: block 8, 8 tokens, sample_from_anchor
        ("dspark", 8, None, 8, "PASS"),  # the DSpark default samples from the anchor
        ("dspark", 8, True, 9, "FAIL"),  # Megatron refuses K > dspark_block_size
        ("dspark", 8, False, 8, "FAIL"),  # a bonus anchor takes one slot
        ("dflash", 8, None, 0, "FAIL"),
        ("dflash", 8, None, -1, "FAIL"),
    ],
)
def test_k001_is_the_methods_own_bound(method: str, block: int, anchor: bool | None, k: int, expected: str) -> None:
    spec = {"method": method, "block_size": block, "k": k, "sample_from_anchor": anchor}
    assert verdict("K001", recipe({"speculative": spec})).verdict == expected


def test_k001_says_how_the_bound_follows() -> None:
    found = verdict("K001", recipe({"speculative": {"k": 8}}))
    assert found.message == "8 exceeds 7 (dflash: block_size 8 minus 1)"
    assert (found.seen, found.expected) == ("K 8", "K <= 7")
    assert found.fix == "set K to 7 or less" and found.evidence


def test_k001_is_never_waived() -> None:
    assert verdict("K001", recipe({"speculative": {"k": 8}}), unqualified=True).verdict == "FAIL"


@pytest.mark.parametrize(("method", "k", "expected"), [("mtp", 1, "PASS"), ("mtp", 0, "FAIL"), ("ngram", 40, "PASS")])
def test_k001_without_a_block(method: str, k: int, expected: str) -> None:
    spec = {"method": method, "k": k, "block_size": None}
    assert verdict("K001", recipe({"drafter": None, "speculative": spec})).verdict == expected


def test_k001_takes_the_locked_block_over_the_recipes() -> None:
    found = recipe({"speculative": {"k": 7, "block_size": 16}})
    locked = lock_of(found, drafter=Facts(block_size=8))
    assert verdict("K001", found, locked).message == "7 <= 7 (dflash: block_size 8 minus 1)"
    found = recipe({"speculative": {"k": 15, "block_size": 16}})
    assert verdict("K001", found, lock_of(found, drafter=Facts(block_size=8))).verdict == "FAIL"


def test_k001_without_any_block_is_not_a_pass() -> None:
    found = verdict("K001", recipe({"speculative": {"block_size": None}}))
    assert found.verdict == "NOT_CHECKED" and "there is no lock yet" in found.message
    assert found.fix == "`recipectl lock pair --sm 121` reads it from the model's own files"


def test_facts_of_another_revision_count_for_nothing() -> None:
    found = recipe({"speculative": {"block_size": None}})
    other = recipe(models={"drafter": {"revision": "c" * 40}})
    seen = verdict("K001", found, lock_of(other, drafter=Facts(block_size=8)))
    assert seen.verdict == "NOT_CHECKED" and "the lock is of other models" in seen.message


def with_rules(k: int, *rules: dict[str, Any], **lane: Any) -> Any:
    return recipe({"speculative": {"k": k, "rules": list(rules)}, **lane})


def test_k002_exact_in_scope_refuses_and_can_be_waived() -> None:
    found = with_rules(5, rule("exact", [7], CARD, reason="others wedge at boot"))
    seen = verdict("K002", found)
    assert seen.verdict == "FAIL" and seen.expected == "K exactly 7" and seen.evidence[0].source == CARD["source"]
    assert "others wedge at boot" in seen.message
    waived = verdict("K002", found, unqualified=True)
    assert waived.verdict == "WARN" and waived.waived and waived.message.startswith("UNQUALIFIED")


def test_k002_a_retracted_rule_only_warns() -> None:
    # canada-quant took "must be 7" back on 2026-09-26: K 5 boots on the SM121 image
    assert verdict("K002", with_rules(5, rule("exact", [7], RETRACTED))).verdict == "WARN"


def test_k002_a_retraction_beside_a_standing_source_still_binds() -> None:
    assert verdict("K002", with_rules(5, rule("exact", [7], RETRACTED, CARD))).verdict == "FAIL"


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ({"max_num_seqs": 4}, "FAIL"),
        ({"max_num_seqs": 2}, "WARN"),  # sfxnz: 7 with two sequences, 5 with four
        ({"lane": "sm121", "drafter": "org/drafter", "image": "image:v11"}, "FAIL"),
        ({"lane": "sm100"}, "WARN"),
        ({"drafter": "drafter"}, "FAIL"),
        ({"image": "image:v13"}, "WARN"),
        ({"workload": "prose"}, "WARN"),  # a server does not choose its prompts
    ],
)
def test_k002_binds_within_its_scope_only(scope: dict[str, Any], expected: str) -> None:
    assert verdict("K002", with_rules(5, rule("exact", [7], CARD, scope=scope))).verdict == expected


def test_k002_a_binding_rule_that_holds_silences_foreign_ones() -> None:
    found = with_rules(5, rule("exact", [5], SWEEP), rule("exact", [7], CARD, scope={"max_num_seqs": 2}))
    assert verdict("K002", found).verdict == "PASS"


def test_k002_measured_rules_hold_together() -> None:
    # jnardiello measured 3, 4, 5 and 7
    rules = [rule("measured", [3, 4], SWEEP), rule("measured", [5, 7], SWEEP)]
    assert verdict("K002", with_rules(5, *rules)).verdict == "PASS"
    seen = verdict("K002", with_rules(6, *rules))
    assert seen.verdict == "FAIL" and seen.expected == "K 3 or 4 or 5 or 7, as measured"


def test_k002_max_is_a_ceiling() -> None:
    assert verdict("K002", with_rules(4, rule("max", [5], SWEEP))).verdict == "PASS"
    assert verdict("K002", with_rules(6, rule("max", [5], SWEEP))).verdict == "FAIL"


def test_k003_below_the_trained_depth_wants_a_measurement() -> None:
    assert verdict("K003", recipe({"speculative": {"k": 7}})).verdict == "PASS"
    assert verdict("K003", recipe()).verdict == "WARN"
    assert verdict("K003", with_rules(5, rule("measured", [5], SWEEP))).verdict == "PASS"
    assert verdict("K003", with_rules(5, rule("measured", [5], RETRACTED))).verdict == "WARN"
    row = {"phase": "prose", "tok_s": 28.2, "k": 5, "evidence": [SWEEP]}
    assert verdict("K003", recipe({"bench": [{"protocol": "prose", "published": [row]}]})).verdict == "PASS"


def test_k003_a_lane_that_calls_itself_unproven_is_known_to_be() -> None:
    seen = verdict("K003", recipe({"status": "unproven"}))
    assert seen.verdict == "WARN" and seen.known


@pytest.mark.parametrize(
    ("tiers", "expected"),
    [
        ([[1, 3, 7], [4, 512, 5]], "PASS"),  # tonyd2wild
        ([[1, 1, 5], [2, 6, 3]], "PASS"),  # jnardiello
        ([[2, 4, 5]], "FAIL"),  # does not start at 1
        ([[1, 2, 7], [4, 8, 5]], "FAIL"),  # 3 has no K
        ([[1, 3, 7], [3, 8, 5]], "FAIL"),  # 3 has two
        ([[1, 2, 7]], "FAIL"),  # max_num_seqs is 4
        ([[1, 4, 8]], "FAIL"),  # 8 exceeds the block's 7
        ([[1, 4, 0]], "FAIL"),
    ],
)
def test_k013_a_schedule_is_contiguous_and_within_the_bound(tiers: list[list[int]], expected: str) -> None:
    schedule = [{"low": a, "high": b, "k": k} for a, b, k in tiers]
    assert verdict("K013", recipe({"speculative": {"k": 7, "schedule": schedule}})).verdict == expected


def test_refuse_names_every_failed_rule_with_its_fix() -> None:
    found = with_rules(7, rule("max", [5], SWEEP))
    name, lane = the_lane(found)
    with pytest.raises(RecipeError) as refused:
        refuse(found, name, with_k(lane, 8), None)
    error = refused.value
    assert error.exit_code == 3 and error.on == "pair sm121"
    assert error.what == "K001 speculative.k: 8 exceeds 7 (dflash: block_size 8 minus 1)"
    assert any(line.startswith("K002 speculative.k: 8 breaks") for line in error.details)


def test_refuse_returns_the_verdicts_to_be_stamped() -> None:
    found = with_rules(7, rule("max", [5], SWEEP))
    name, lane = the_lane(found)
    with pytest.raises(RecipeError):
        refuse(found, name, lane, None)
    assert [v.code for v in refuse(found, name, lane, None, unqualified=True) if v.waived] == ["K002"]
