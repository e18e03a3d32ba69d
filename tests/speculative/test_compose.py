"""What the engine is told, held against what the field publishes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipectl.recipe.lane import Lane
from recipectl.speculative import capture_sizes, check, compose, with_k

from .builder import recipe, the_lane


def lane(**changes: Any) -> Lane:
    return the_lane(recipe(changes))[1]


def test_the_minimum_is_what_the_field_writes() -> None:
    # tonyd2wild, canada-quant, sfxnz: {"method":"dflash","model":"<path>","num_speculative_tokens":7}
    config = compose(lane(speculative={"k": 7}), "/models/drafter")
    written = json.dumps(config, separators=(",", ":"))
    assert written == '{"method":"dflash","model":"/models/drafter","num_speculative_tokens":7}'


def test_schedule_and_options_are_spelled_as_the_engine_does() -> None:
    # tonyd2wild: num_speculative_tokens_per_batch_size [[1,3,7],[4,512,5]]; coolbho3k: draft_tensor_parallel_size 2;
    # 0rand: draft_sample_method probabilistic
    schedule = [{"low": 1, "high": 3, "k": 7}, {"low": 4, "high": 512, "k": 5}]
    options = {"draft_sample_method": "probabilistic"}
    spec = {"k": 7, "schedule": schedule, "draft_tensor_parallel": 2, "options": options}
    assert compose(lane(speculative=spec), "/d") == {
        "method": "dflash", "model": "/d", "num_speculative_tokens": 7,
        "num_speculative_tokens_per_batch_size": [[1, 3, 7], [4, 512, 5]], "draft_tensor_parallel_size": 2,
        "draft_sample_method": "probabilistic",
    }  # fmt: skip


def test_mtp_and_ngram_name_no_model() -> None:
    mtp = {"drafter": None, "speculative": {"method": "mtp", "k": 3, "block_size": None}}
    assert compose(lane(**mtp), None) == {"method": "mtp", "num_speculative_tokens": 3}
    spec = {"method": "ngram", "k": 4, "block_size": None, "options": {"prompt_lookup_max": 4}}
    assert compose(lane(drafter=None, speculative=spec), None) == {
        "method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4,
    }  # fmt: skip


def test_no_speculation_composes_nothing() -> None:
    off = {"drafter": None, "speculative": {"method": "none", "k": None, "block_size": None}}
    assert compose(lane(**off), None) is None
    assert capture_sizes(lane(**off)) is None


def test_sglang_counts_one_more_for_the_same_k() -> None:
    # beastllama and alicankiraz1: 8 draft tokens on SGLang are vLLM's K 7
    flags = compose(lane(engine={"name": "sglang", "version": None, "runner": None}, speculative={"k": 7}), "/draft")
    assert flags == {
        "speculative_algorithm": "DFLASH", "speculative_draft_model_path": "/draft", "speculative_num_draft_tokens": 8,
    }  # fmt: skip


def test_a_drafter_needs_its_folder() -> None:
    with pytest.raises(ValueError, match="folder of drafter"):
        compose(lane(), None)


@pytest.mark.parametrize(
    ("k", "seqs", "sizes"),
    [
        (5, 4, (1, 2, 4, 6, 12, 18, 24)),  # sfxnz: 1, 2, 4 plus (K + 1) x 1..4
        (7, 2, (1, 2, 4, 8, 16)),  # sfxnz evidence/e0-nvidia-v11/docker-args-head.json
        (1, 1, (1, 2)),  # (1 + 1) x 1
        (7, 6, (1, 2, 4, 8, 16, 24, 32, 40, 48)),  # (7 + 1) x 1..6
    ],
)
def test_captures_are_composed_from_k_and_sequences(k: int, seqs: int, sizes: tuple[int, ...]) -> None:
    assert capture_sizes(lane(speculative={"k": k}, args={"max_num_seqs": seqs})) == sizes


def test_captures_of_a_schedule_are_composed_by_tier() -> None:
    # jnardiello [[1,1,5],[2,6,3]]: n = 1 verifies 6 tokens, n = 2..6 verify 4 n = 8, 12, 16, 20, 24
    schedule = [{"low": 1, "high": 1, "k": 5}, {"low": 2, "high": 6, "k": 3}]
    found = capture_sizes(lane(speculative={"k": 5, "schedule": schedule}, args={"max_num_seqs": 6}))
    assert found == (1, 2, 4, 6, 8, 12, 16, 20, 24)


@pytest.mark.parametrize(
    "args",
    [
        {"enforce_eager": True},
        {"compilation_config": {"cudagraph_mode": "PIECEWISE"}},
        {"compilation_config": {"cudagraph_mode": "NONE"}},
        {"max_num_seqs": None},
    ],
)
def test_no_captures_without_full_graphs_or_a_known_width(args: dict[str, Any]) -> None:
    assert capture_sizes(lane(args=args)) is None


def test_the_recipes_own_captures_stand() -> None:
    # ebfio for K 5 with 4 sequences
    own = [1, 6, 12, 18, 24]
    assert capture_sizes(lane(args={"cudagraph_capture_sizes": own})) == tuple(own)
    assert capture_sizes(lane(args={"compilation_config": {"cudagraph_capture_sizes": own}})) == tuple(own)


def test_a_largest_capture_leaves_the_list_to_the_engine() -> None:
    # 0rand: --max-cudagraph-capture-size 16. vLLM 0.32.0 raises ValueError if a list ends elsewhere.
    assert capture_sizes(lane(args={"max_cudagraph_capture_size": 16})) is None


KS = st.integers(-3, 40)
BLOCKS = st.integers(1, 32)


@given(KS, BLOCKS, st.sampled_from(["dflash", "dspark"]), st.booleans(), st.integers(1, 16))
def test_no_k_outside_the_bound_ever_passes(k: int, block: int, method: str, anchor: bool, seqs: int) -> None:
    """What is checked and passes is within the bound, and what is composed says exactly that K."""
    spec = {"method": method, "block_size": block, "sample_from_anchor": anchor}
    found = recipe({"speculative": spec, "args": {"max_num_seqs": seqs}})
    name, start = the_lane(found)
    changed = with_k(start, k)
    top = block if method == "dspark" and anchor else block - 1
    k001 = next(v for v in check(found, name, changed, None, unqualified=True) if v.code == "K001")
    assert (k001.verdict == "PASS") == (1 <= k <= top)
    config = compose(changed, "/d")
    assert config is not None and config["num_speculative_tokens"] == k
    sizes = capture_sizes(changed)
    if k001.verdict == "PASS":
        assert sizes is not None and {(k + 1) * n for n in range(1, seqs + 1)} <= set(sizes)
