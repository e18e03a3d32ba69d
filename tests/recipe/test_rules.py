"""Cross-field rules on what the field really publishes: they must hold there, and only there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recipectl.recipe import gaterules, rules
from recipectl.recipe.parse import parse_document
from recipectl.serving.checks import GATES
from tests.speculative.builder import BASE, merged

E = [{"source": "as published"}]
TWO_GPUS_ONE_HOST = {"nodes": 1, "parallel": {"tensor": 2}}


def codes(lane: dict[str, Any], *, name: str = "sm121", folder: Path | None = None, **top: Any) -> list[str]:
    """Codes of the rules' findings on the base recipe with changes."""
    data = merged(BASE, top)
    data["lanes"] = {name: merged(BASE["lanes"]["sm121"], lane)}
    document = parse_document(json.dumps(data), "pair.yaml")
    assert document.recipe is not None, document.findings
    rules.check(document, folder)
    return [f.code for f in document.findings]


def row(**values: Any) -> dict[str, Any]:
    return {"bench": [{"protocol": "prose", "published": [{"phase": "prose", "evidence": E, **values}]}]}


@pytest.mark.parametrize(
    "values",
    [
        # canada-quant E, 500 prompts
        {"k": 7, "acceptance_length": 3.568, "per_position": [0.744, 0.545, 0.405, 0.306, 0.237, 0.185, 0.147]},
        # sfxnz log window: length 3.72, rate 38.9 %
        {"k": 7, "acceptance_length": 3.72, "acceptance_rate": 0.389,
         "per_position": [0.907, 0.605, 0.395, 0.302, 0.209, 0.186, 0.116]},
        {"k": 5, "acceptance_length": 2.875, "acceptance_rate": 0.375},  # sfxnz baseline: 1 + 5 x 0.375
        {"k": 4, "acceptance_length": 1.5718, "acceptance_rate": 0.1429},  # seed 0: 745 of 5,212 accepted at K 4
        {"k": 7, "per_position": [0.99, 0.99, 0.92, 0.92, 0.88, 0.81, 0.77]},  # jnardiello structured
        {"variant": "other", "acceptance_length": 7.9},  # another variant's K is not this lane's
    ],
)  # fmt: skip
def test_published_rows_of_the_field_agree(values: dict[str, Any]) -> None:
    assert codes(row(**values)) == []


@pytest.mark.parametrize(
    "values",
    [
        {"acceptance_length": 6.5},  # the lane's K is 5
        {"k": 7, "acceptance_length": 0.9},
        {"k": 7, "per_position": [0.9, 0.8]},
        {"k": 7, "acceptance_length": 3.9, "acceptance_rate": 0.389},
    ],
)
def test_rows_that_contradict_themselves_do_not(values: dict[str, Any]) -> None:
    assert codes(row(**values)) == ["R008"]


@pytest.mark.parametrize(
    ("lane", "name", "expected"),
    [
        ({}, "sm121", []),  # TP2 on two GB10
        (TWO_GPUS_ONE_HOST, "sm121", ["R001"]),  # a GB10 has one GPU
        (TWO_GPUS_ONE_HOST, "sm100", []),
        ({"nodes": 4, "parallel": {"tensor": 4, "decode_context": 4}}, "sm121", []),  # ajclark: TP4 + DCP4
        ({"nodes": 2, "parallel": {"tensor": 2, "decode_context": 2}}, "sm121", []),  # coolbho3k: TP2 + DCP2
        ({"nodes": 4, "parallel": {"tensor": 4, "decode_context": 3}}, "sm121", ["R002"]),
        ({"nodes": 2, "parallel": {"tensor": 1, "pipeline": 2}}, "sm121", []),
    ],
)
def test_ranks_fit_the_machines(lane: dict[str, Any], name: str, expected: list[str]) -> None:
    assert codes(lane, name=name) == expected


def test_an_image_for_another_platform_is_refused() -> None:
    amd64 = {"engine": {"image": {"platform": "linux/amd64"}}}
    assert codes(amd64) == ["R009"]
    assert codes({"engine": {"image": {"platform": "linux/arm64"}}}) == []


def test_a_license_that_somebody_looked_for_is_no_finding() -> None:
    nothing = {"license": None}
    assert codes({}, models={"drafter": nothing}) == ["R004"]
    looked = {**nothing, "license_evidence": [{"source": "the card", "note": "states none"}]}
    assert codes({}, models={"drafter": looked}) == []


def test_retracted_evidence_beside_a_standing_one_is_no_finding() -> None:
    retracted = {"source": "a card", "status": "retracted"}
    assert codes({"args_evidence": {"max_num_seqs": [retracted]}}) == ["R006"]
    assert codes({"args_evidence": {"max_num_seqs": [retracted, *E]}}) == []
    assert codes({"args_evidence": {"not_set": [retracted]}}) == []  # backs no value in effect
    rule = {"kind": "exact", "k": [5], "evidence": [retracted]}
    assert codes({"speculative": {"rules": [rule]}}) == ["R006"]
    assert codes({"speculative": {"rules": [{**rule, "k": [7]}]}}) == []  # the default is not 7


def test_assets_are_held_to_their_hash(tmp_path: Path) -> None:
    folder = tmp_path / "pair"
    folder.mkdir()
    asset = {"path": "chat.jinja", "argument": "chat_template", "sha256": "0" * 64}
    assert codes({"assets": [asset]}, folder=folder) == ["R007"]
    (folder / "chat.jinja").write_text("")
    assert codes({"assets": [asset]}, folder=folder) == ["R007"]
    # sha256 of nothing, as every sha256 tool prints it
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert codes({"assets": [{**asset, "sha256": empty}]}, folder=folder) == []


def test_what_a_recipe_names_lies_below_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "pair"
    (folder / "weights").mkdir(parents=True)
    (folder / "link").symlink_to("/etc")
    (folder / "inside").symlink_to("weights")
    (folder / "circle").symlink_to("circle")
    (folder / "prompts.txt").write_text("one")

    def path(where: str) -> list[str]:
        return codes({}, folder=folder, models={"target": {"path": where, "repo": None, "revision": None}})

    assert [path(w) for w in ("weights", "./weights", "inside", "not-there-yet")] == [[], [], [], []]
    assert [path(w) for w in ("/etc", "..", "weights/../../x", "~/x", ".", "", "link", "circle", "a" * 256)] == [
        ["R007"]
    ] * 9

    def prompts(file: object) -> list[str]:
        return codes({"bench": [{"protocol": "prose", "settings": {"prompts": file}}]}, folder=folder)

    assert prompts("prompts.txt") == []
    assert [prompts(f) for f in ("/etc/passwd", "../x.txt", "none.txt", "link/passwd", 1)] == [["R007"]] * 5


def test_the_gates_a_set_may_name_are_those_of_the_server() -> None:
    assert set(gaterules.NAMES) == {*GATES, "counting"}  # counting comes with the first generation


def test_remote_code_is_trusted_where_it_is_listed() -> None:
    args = {"args": {"trust_remote_code": True}}
    assert codes(args) == ["R013"]
    listed = {"target": {"remote_code": {"reviewed_by": "me", "files": {"modeling.py": "0" * 64}}}}
    assert codes(args, models=listed) == []
