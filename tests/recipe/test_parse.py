"""The parser: positions, plain YAML semantics, merging, and no text that makes it fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipectl.recipe.parse import parse_document, parse_text
from recipectl.recipe.yamltree import read

GOOD = (Path(__file__).parents[1] / "data" / "good" / "minimal.yaml").read_text()


def codes(text: str) -> list[str]:
    return [f.code for f in parse_text(text, "r.yaml")[1]]


def test_the_minimal_recipe_has_no_finding() -> None:
    recipe, findings = parse_text(GOOD, "minimal.yaml")
    assert recipe is not None and findings == []
    assert recipe.lanes["cpu"].speculative.k == 7
    assert recipe.lanes["cpu"].engine.version == "0.32.0"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7), ("-7", -7), ("0", 0), ("0.85", 0.85), ("1e4", 10000.0), ("-2.5E-3", -0.0025),
        ("true", True), ("false", False), ("null", None), ("~", None), ("", None),
        ("2026-08-29", "2026-08-29"), ("12:30:45", "12:30:45"), ("0.32.0", "0.32.0"), ("n", "n"), ("1e999", "1e999"),
        ('"7"', "7"), ("'true'", "true"), ("|\n  two\n  lines\n", "two\nlines\n"), (">-\n  one\n  line\n", "one line"),
    ],
)  # fmt: skip
def test_plain_values_are_jsons_and_everything_else_is_text(text: str, value: object) -> None:
    tree, findings = read(f"key: {text}\n", "f")
    assert findings == []
    assert tree.data == {"key": value} and type(tree.data["key"]) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "No",
        "on",
        "OFF",
        "True",
        "NULL",
        "0755",
        "0x1F",
        "0o17",
        "0b1",
        "1_000",
        "+1",
        ".5",
        "5.",
        ".inf",
        ".NaN",
    ],
)
def test_what_yaml_readers_disagree_about_is_refused(text: str) -> None:
    tree, findings = read(f"key: {text}\n", "f")
    assert [f.code for f in findings] == ["P008"]
    assert read(f'key: "{text}"\n', "f")[1] == []
    assert tree.data == {"key": text}


def test_keys_are_text_whatever_they_look_like() -> None:
    assert read("{7: a, true: b, null: c}", "f")[0].data == {"7": "a", "true": "b", "null": "c"}


def test_places_are_those_of_the_keys_and_items() -> None:
    tree, _ = read("a:\n  b: [x,\n    {c: 1}]\n", "f")
    assert tree.places[("a", "b")] == (2, 3)
    assert tree.places[("a", "b", 0)] == (2, 7)
    assert tree.places[("a", "b", 1)] == (3, 5)
    assert tree.places[("a", "b", 1, "c")] == (3, 6)


def test_a_byte_order_mark_and_crlf_are_taken() -> None:
    recipe, findings = parse_text("\ufeff" + GOOD.replace("\n", "\r\n"), "r.yaml")
    assert recipe is not None and findings == []


LANES = """
shared:
  summary: shared by all
  target: target
  drafter: drafter
  engine: {name: vllm-cpu, runtime: process}
  speculative: {method: dflash, k: 7, block_size: 8}
  args: {max_num_seqs: 4, block_size: 16, enforce_eager: true}
lanes:
  cpu:
    args: {block_size: null, dtype: float32}
    variants:
      k5: {speculative: {k: 5}}
      plain: {drafter: null, speculative: {method: none, k: null, block_size: null}}
"""


def test_shared_lane_and_variant_merge_in_that_order() -> None:
    recipe, findings = parse_text(GOOD[: GOOD.index("lanes:")] + LANES, "r.yaml")
    assert findings == [] and recipe is not None
    lane = recipe.lane("cpu")
    assert lane.args == {"max_num_seqs": 4, "enforce_eager": True, "dtype": "float32"}  # null removed block_size
    assert recipe.lane("cpu", "k5").speculative.model_dump(include={"method", "k", "block_size"}) == {
        "method": "dflash", "k": 5, "block_size": 8,
    }  # fmt: skip
    assert recipe.lane("cpu", "plain").drafter is None
    assert recipe.lane("cpu", "k5").args == lane.args


def test_a_finding_about_merged_data_stands_at_the_authors_line() -> None:
    document = parse_document(GOOD[: GOOD.index("lanes:")] + LANES, "r.yaml")
    line = (GOOD[: GOOD.index("lanes:")] + LANES).split("\n").index(
        "  args: {max_num_seqs: 4, block_size: 16, enforce_eager: true}"
    ) + 1
    assert document.locate(("lanes", "cpu", "args", "max_num_seqs")) == ("shared", "args", "max_num_seqs")
    assert document.finding("R016", ("variants", "cpu", "k5", "args", "max_num_seqs"), "x").line == line
    assert document.locate(("variants", "cpu", "k5", "speculative", "k")) == (
        "lanes", "cpu", "variants", "k5", "speculative", "k",
    )  # fmt: skip
    assert document.locate(("lanes", "cpu", "args", "not_there")) == ("lanes", "cpu", "args")


def test_what_two_lanes_inherit_is_reported_once() -> None:
    text = GOOD[: GOOD.index("lanes:")] + LANES.replace("k: 7,", 'k: "7",') + "  sm121: {}\n"
    found = [f for f in parse_text(text, "r.yaml")[1] if f.code == "P004"]
    assert [f.where for f in found] == ["shared.speculative.k"]


def test_all_findings_come_at_once_in_file_order() -> None:
    text = (
        GOOD.replace("name: minimal", "name: Not A Name").replace("k: 7", "k: seven").replace("drafter: d", "draftr: d")
    )
    _, findings = parse_text(text, "r.yaml")
    assert len(findings) >= 3
    assert [(f.line, f.column) for f in findings] == sorted((f.line, f.column) for f in findings)


@pytest.mark.parametrize(
    "value",
    [
        "fp8_e4m3", "12.1a", "expandable_segments:True", "/jit-cache/vllm", "12.0;12.1", "enp1s0f1np1",
        "<think>", "a-b--c", "100%", "C#", "it costs $5", "x|y", "{\"a\": 1}",
    ],
)  # fmt: skip
def test_ordinary_values_are_neither_shell_nor_placeholder(value: str) -> None:
    text = GOOD + f"    env:\n      NAME: '{value}'\n"
    assert codes(text) == []


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("${HOME}/x", "P011"), ("$HOME", "P011"), ("{{ model }}", "P011"), ("{host}", "P011"),
        ("<head-rdma-ip>", "P011"),
        ("<MODEL_DIR>", "P011"), ("CHANGEME", "P011"), ("your-token-here", "P011"), ("%HOST%", "P011"),
        ("$(cat x)", "P013"), ("`cat x`", "P013"), ("a && b", "P013"), ("a; b", "P013"), ("a | b", "P013"),
        ("0 # note", "P013"), ("bash -c true", "P013"), ("x --flag", "P013"),
        ("hf_" + "a" * 20, "P012"), ("sk-" + "a" * 20, "P012"), ("https://me:pass@host/x", "P012"),
    ],
)  # fmt: skip
def test_placeholders_shell_and_secrets_are_refused(value: str, code: str) -> None:
    assert codes(GOOD + f"    env:\n      NAME: '{value}'\n") == [code]


def test_notes_may_speak_of_shell() -> None:
    assert codes(GOOD + "    caveats: ['bash cuts ${VAR:-{}} && so on, see <head-ip> --flag']\n") == []


@pytest.mark.parametrize(
    "text", ["[" * 5000, "- " * 5000, "{a: " * 300, "a:\n" + "".join(f"{' ' * n}b:\n" for n in range(1, 900))]
)
def test_deep_nesting_is_a_finding(text: str) -> None:
    assert codes(text) and "P001" in codes(text)


YAMLISH = st.text(st.sampled_from([*" \n\t:-[]{},'\"#&*!|>%@`ab7.~?\\", "\x07", "\u2028", "\ufeff", "é"]), max_size=60)


@settings(max_examples=400)
@given(st.one_of(st.text(max_size=200), YAMLISH))
def test_no_text_makes_the_parser_raise(text: str) -> None:
    recipe, findings = parse_text(text, "r.yaml")
    assert recipe is None and findings


@settings(max_examples=300)
@given(st.data())
def test_no_edit_of_a_good_recipe_makes_it_raise(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(GOOD)))
    length = data.draw(st.integers(0, 30))
    text = GOOD[:start] + data.draw(YAMLISH) + GOOD[start + length :]
    recipe, findings = parse_text(text, "r.yaml")
    assert (recipe is None) == any(f.level == "error" for f in findings)
    lines = len(re.split("\r\n|[\n\r\x85\u2028\u2029]", text))  # YAML 1.1's line breaks
    assert all(f.line <= lines for f in findings)
