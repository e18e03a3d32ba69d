"""K004 to K009: graphs, token budget, ranks, positions, block, files."""

from __future__ import annotations

from typing import Any

import pytest

from recipectl.lockfile import Facts

from .builder import lock_of, recipe, verdict

E = [{"source": "canada-quant run scripts", "date": "2026-09-25"}]


def args(**values: Any) -> dict[str, Any]:
    return {"args": values}


def test_k004_names_the_sequences_without_a_graph() -> None:
    # canada-quant g4: [1,2,4,8,16,24,32] with K 7 and 6 sequences; 8 x 5 = 40 and 8 x 6 = 48 are missing
    g4 = [1, 2, 4, 8, 16, 24, 32]
    found = verdict("K004", recipe({"speculative": {"k": 7}, **args(max_num_seqs=6, cudagraph_capture_sizes=g4)}))
    assert found.verdict == "WARN" and not found.known
    assert found.message == "n = 5, 6 run without a graph (K 7, 6 sequences)"
    assert found.expected == "40, 48 as well"


def test_k004_with_evidence_for_the_list_is_known_to_its_author() -> None:
    changes = {"speculative": {"k": 7}, "args_evidence": {"cudagraph_capture_sizes": E}}
    found = verdict("K004", recipe({**changes, **args(max_num_seqs=6, cudagraph_capture_sizes=[8, 16])}))
    assert found.verdict == "WARN" and found.known


def test_k004_tells_padding_from_no_graph() -> None:
    # K 5 takes 6 n tokens: 6 and 12 are padded to 16, 18 and 24 have nothing above them
    found = verdict("K004", recipe(args(cudagraph_capture_sizes=[1, 16])))
    assert found.message.startswith("n = 3, 4 run without a graph; n = 1, 2 are padded to a larger graph")


@pytest.mark.parametrize("sizes", [[1, 6, 12, 18, 24], [1, 2, 4, 6, 12, 18, 24]])  # ebfio and sfxnz, K 5 with 4
def test_k004_published_lists_cover(sizes: list[int]) -> None:
    assert verdict("K004", recipe(args(cudagraph_capture_sizes=sizes))).verdict == "PASS"


def test_k004_composed_sizes_cover_and_large_ones_are_noted() -> None:
    found = verdict("K004", recipe({"speculative": {"k": 7}, **args(max_num_seqs=6)}))  # 8 x 6 = 48
    assert found.verdict == "PASS" and "above 32 are reported to fail" in found.message
    assert "reported" not in verdict("K004", recipe()).message  # 6 x 4 = 24


def test_k004_knows_the_engines_own_list_below_a_largest_size() -> None:
    # vLLM 0.32.0: 1, 2, 4, 8, 16 up to 16. K 5: 6 and 12 are padded, 18 and 24 lie above.
    found = verdict("K004", recipe(args(max_cudagraph_capture_size=16)))
    assert found.seen == "[1, 2, 4, 8, 16]"
    assert found.message.startswith("n = 3, 4 run without a graph; n = 1, 2 are padded")


def test_k004_is_off_without_graphs_and_open_without_a_width() -> None:
    assert verdict("K004", recipe(args(enforce_eager=True))).verdict == "NOT_APPLICABLE"
    assert verdict("K004", recipe(args(max_num_seqs=None))).verdict == "NOT_CHECKED"


@pytest.mark.parametrize(
    ("version", "budget", "expected"),
    [
        # vLLM 0.32.0: max_num_batched_tokens must exceed the slots of one request (dflash: K = 5)
        ("0.32.0", 6, "WARN"),  # boots, but a verify step of all is 6 x 4 = 24 tokens
        ("0.32.0", 5, "FAIL"),
        ("0.32.0", 24, "PASS"),
        # before: max_num_batched_tokens - K x max_num_seqs > 0, 5 x 4 = 20
        ("0.28.1rc1.dev580", 20, "FAIL"),
        ("0.28.1rc1.dev580", 21, "WARN"),
        ("0.1.dev20051+g487ecf187", 20, "FAIL"),
        (None, 20, "FAIL"),  # no version stated: the stricter form
        ("0.32.0", 1024, "PASS"),  # 0rand
    ],
)
def test_k005_by_the_formula_of_the_engines_version(version: str | None, budget: int, expected: str) -> None:
    found = recipe({"engine": {"version": version}, **args(max_num_batched_tokens=budget)})
    assert verdict("K005", found).verdict == expected


def test_k005_states_the_default_it_assumes() -> None:
    found = verdict("K005", recipe(args(max_num_batched_tokens=None)))
    assert found.verdict == "PASS" and "2048 (assumed: vLLM's smallest default)" in found.message


@pytest.mark.parametrize(
    ("method", "formula"),
    [
        ("dflash", "more than 5,"),
        ("dspark", "more than 4,"),
        ("draft_model", "more than 1,"),
        ("mtp", "nothing more: mtp adds no slots"),
    ],
)
def test_k005_counts_the_slots_of_the_method(method: str, formula: str) -> None:
    # vLLM 0.32.0 config/speculative.py, max_num_new_slots_for_drafting: K, K - 1, 1, 0
    spec = {"method": method, "block_size": 8 if method in ("dflash", "dspark") else None}
    lane = {"drafter": "drafter" if method != "mtp" else None, "speculative": spec}
    assert formula in verdict("K005", recipe({**lane, **args(max_num_batched_tokens=24)})).message


@pytest.mark.parametrize(("draft", "expected"), [(None, "PASS"), (1, "PASS"), (4, "PASS"), (2, "FAIL")])
def test_k006_one_or_the_targets(draft: int | None, expected: str) -> None:
    lane = {"nodes": 4, "parallel": {"tensor": 4}, "speculative": {"draft_tensor_parallel": draft}}
    assert verdict("K006", recipe(lane)).verdict == expected


def test_k007_positions_reach_the_context() -> None:
    found = recipe()
    short, long = Facts(max_positions=262144), Facts(max_positions=1048576)
    assert verdict("K007", found, lock_of(found, drafter=short)).verdict == "FAIL"
    assert verdict("K007", found, lock_of(found, drafter=long)).verdict == "PASS"
    assert verdict("K007", found).verdict == "NOT_CHECKED"


def test_k007_without_a_lock_the_recipes_own_expectation_can_fail_but_not_pass() -> None:
    def expecting(positions: int) -> Any:
        return recipe(models={"drafter": {"expect": {"max_positions": positions}}})

    assert verdict("K007", expecting(262144)).verdict == "FAIL"
    assert verdict("K007", expecting(1048576)).verdict == "NOT_CHECKED"


def test_k007_takes_the_targets_length_where_none_is_set() -> None:
    found = recipe(args(max_model_len=None))
    locked = lock_of(found, Facts(max_positions=131072), Facts(max_positions=32768))
    assert verdict("K007", found, locked).verdict == "FAIL"


def test_k008_the_block_is_the_drafters_own() -> None:
    found = recipe()
    assert verdict("K008", found, lock_of(found, drafter=Facts(block_size=8))).verdict == "PASS"
    assert verdict("K008", found).verdict == "NOT_CHECKED"
    # a reader of the top level gets the default 16 (the field's commonest error)
    seen = verdict("K008", found, lock_of(found, drafter=Facts(block_size=16)))
    assert seen.verdict == "FAIL" and seen.fix == "set speculative.block_size to 16"


def test_k009_the_mask_file_is_locked() -> None:
    found = recipe(models={"drafter": {"files": {"required": ["config.json", "mask_embedding.pt"]}}})
    assert verdict("K009", found).verdict == "NOT_CHECKED"
    seen = verdict("K009", found, lock_of(found, files="config.json model.safetensors"))
    assert seen.verdict == "FAIL" and seen.message == "drafter lacks mask_embedding.pt"
    whole = lock_of(found, files="config.json model.safetensors mask_embedding.pt")
    assert verdict("K009", found, whole).verdict == "PASS"
