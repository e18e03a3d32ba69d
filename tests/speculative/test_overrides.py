"""--k and --set: one value changed, under the same types and rules as the file."""

from __future__ import annotations

from typing import Any

import pytest

from recipectl.errors import RecipeError, UsageError
from recipectl.recipe import rules
from recipectl.speculative import parse_set, with_k, with_overrides

from .builder import recipe, the_lane

LANE = the_lane(recipe())[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("args.max_model_len=8192", ("args.max_model_len", 8192)),
        ("args.enforce_eager=true", ("args.enforce_eager", True)),
        ("args.gpu_memory_utilization=0.85", ("args.gpu_memory_utilization", 0.85)),
        ("args.cudagraph_capture_sizes=[1, 8]", ("args.cudagraph_capture_sizes", [1, 8])),
        ("args.kv_cache_dtype=fp8_e4m3", ("args.kv_cache_dtype", "fp8_e4m3")),
        ('env.A="1"', ("env.A", "1")),
        ("args.x=a=b", ("args.x", "a=b")),
        ("args.max_num_seqs=", ("args.max_num_seqs", None)),
    ],
)
def test_values_are_read_as_in_the_file(text: str, expected: tuple[str, Any]) -> None:
    assert parse_set(text) == expected


@pytest.mark.parametrize(
    "text", ["args.max_model_len", "=5", "args.=5", "args.--=5", ".=5", "args.x=yes", "args.x=[1", "args.x=*y"]
)
def test_what_is_no_path_and_value_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_set(text)


def test_set_changes_one_value_and_leaves_the_lane_alone() -> None:
    changed = with_overrides(LANE, [("args.max_num_seqs", 2)], None)
    assert changed.args == {**LANE.args, "max_num_seqs": 2}
    assert LANE.args["max_num_seqs"] == 4
    assert changed.model_copy(update={"args": LANE.args}) == LANE


@pytest.mark.parametrize(
    ("path", "value", "look"),
    [
        ("engine.args.max-num-seqs", 2, lambda lane: lane.args["max_num_seqs"]),
        ("args.--max-num-seqs", 2, lambda lane: lane.args["max_num_seqs"]),
        ("args.default_chat_template_kwargs.enable_thinking", False,
         lambda lane: lane.args["default_chat_template_kwargs"]["enable_thinking"]),
        ("gates.boot_timeout_s", 60, lambda lane: lane.gates.boot_timeout_s),
        ("speculative.options.draft_sample_method", "probabilistic",
         lambda lane: lane.speculative.options["draft_sample_method"]),
        ("nodes", 1, lambda lane: lane.nodes),
    ],
)  # fmt: skip
def test_paths_reach_any_value_of_a_lane(path: str, value: Any, look: Any) -> None:
    assert look(with_overrides(LANE, [(path, value)], None)) == value


def test_environment_values_become_text() -> None:
    changed = with_overrides(LANE, [("env.MAX_JOBS", 2), ("env.FLAG", True)], None)
    assert changed.env == {"MAX_JOBS": "2", "FLAG": "true"}


def test_an_empty_value_removes_the_key() -> None:
    assert "max_num_seqs" not in with_overrides(LANE, [("args.max_num_seqs", None)], None).args


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("arg.max_num_seqs", 2, "no such value"),
        ("args", 2, "which key of args"),
        ("args.max_num_seqs", "two", "expected a whole number"),
        ("gates.boot_timeout", 60, "unknown key `boot_timeout`"),
        ("gates.boot_timeout_s", "soon", "expected a whole number, got the text"),
        ("args.host", "0.0.0.0", "composes `host` itself"),
        ("args.tensor-parallel-size", 4, "composes `tensor_parallel_size` itself"),
        ("args.chat_template", "$HOME/chat.jinja", "placeholder"),
        ("env.HF_TOKEN", "abc", "name of a secret"),
        ("env.NOTE", "hf_abcdefghijklmnopqrstuvwx", "looks like a secret"),
        ("speculative.k", 7, "its own option"),
        ("args.max_num_seqs.x", 1, "holds no keys"),
    ],
)
def test_what_a_recipe_may_not_say_set_may_not_either(path: str, value: Any, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        with_overrides(LANE, [(path, value)], None)
    assert told in refused.value.what
    assert "hf_abc" not in "\n".join(refused.value.lines())


def test_k_replaces_k_and_schedule() -> None:
    tiers = [{"low": 1, "high": 4, "k": 5}]
    lane = the_lane(recipe({"speculative": {"k": 5, "schedule": tiers}}))[1]
    assert with_k(lane, 3).speculative.model_dump(include={"k", "schedule"}) == {"k": 3, "schedule": []}
    assert with_overrides(lane, [], 3) == with_k(lane, 3)


def test_acceptance_seen_at_one_k_gates_no_other() -> None:
    # At least 4.0 was seen at K 7; with K 3 a step can bring at most 4 tokens, so the gate could only fail.
    lane = the_lane(recipe({"gates": {"acceptance": {"counting": {"min": 4.0}}}}))[1]
    assert with_k(lane, 3).gates.acceptance == {}
    assert lane.speculative.k is not None and with_k(lane, lane.speculative.k).gates == lane.gates


def test_a_range_that_is_set_beside_a_k_is_for_that_k() -> None:
    changed = with_overrides(LANE, [("gates.acceptance.counting.min", 2.5)], 3)
    assert changed.speculative.k == 3 and changed.gates.acceptance["counting"].min == 2.5


@pytest.mark.parametrize(
    ("path", "value", "k", "told"),
    [
        ("gates.acceptance.counting.min", 6.5, None, "R011 gates.acceptance.counting: 6.5 to 6 is no range"),  # K 5
        ("gates.acceptance.prose.max", 4.5, 3, "R011 gates.acceptance.prose: 1 to 4.5 is no range within 1 to 4"),
        ("gates.concurrency", [8], None, "R011 gates.concurrency: 8 streams on max_num_seqs 4"),
        ("gates.needle_tokens", 400000, None, "R011 gates.needle_tokens"),
        ("gates.forbidden_log", [{"pattern": "(", "meaning": "x"}], None, "R010 gates.forbidden_log[0]"),
        ("parallel.tensor", 3, None, "R001 parallel"),
        ("args.max_cudagraph_capture_size", 8, None, None),
    ],
)
def test_what_must_hold_between_values_holds_after_set(path: str, value: Any, k: int | None, told: str | None) -> None:
    changed = with_overrides(LANE, [(path, value)], k)
    if told is None:
        return rules.refuse_changed(recipe(), "sm121", changed)
    with pytest.raises(RecipeError) as refused:
        rules.refuse_changed(recipe(), "sm121", changed)
    assert refused.value.what.startswith(told)


def test_k_on_a_lane_that_drafts_nothing_is_a_usage_error() -> None:
    lane = the_lane(recipe({"drafter": None, "speculative": {"method": "none", "k": None, "block_size": None}}))[1]
    with pytest.raises(UsageError):
        with_k(lane, 3)
