"""A receipt survives the round trip and refuses what is none."""

from __future__ import annotations

import json

import pytest

from recipectl.errors import UsageError
from recipectl.receipts import Receipt, Subject, dump, load

RECEIPT = Receipt(
    kind="demo",
    recipe="tiny-dflash",
    lane="cpu",
    started="2026-11-29T12:00:00Z",
    ended="2026-11-29T12:03:00Z",
    subjects=(Subject("recipe.yaml", "ab" * 32),),
    ran={"argv": ["vllm", "serve"]},
    seen={"gates": [{"name": "health", "verdict": "PASS"}]},
    amendments=["unqualified: K002"],
)


def test_round_trip() -> None:
    assert load(dump(RECEIPT), "r.json") == RECEIPT


def test_it_has_the_shape_of_an_in_toto_statement() -> None:
    statement = json.loads(dump(RECEIPT))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [{"name": "recipe.yaml", "digest": {"sha256": "ab" * 32}}]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"predicate": 1}', '{"predicate": {"schema": "recipectl.receipt/9"}}']
)
def test_what_is_none_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        load(text, "somewhere.json")
    assert refused.value.on == "somewhere.json"
