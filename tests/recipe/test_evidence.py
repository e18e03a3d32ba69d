"""Every piece of evidence becomes one row, beside the value it backs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recipectl.recipe import evidence
from recipectl.recipe.parse import parse_text
from tests.speculative.builder import recipe, the_lane

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*/recipe.yaml"))
CARD = {"source": "a card", "date": "2026-09-01"}


def test_rows_name_the_place_and_the_value() -> None:
    found = recipe(
        {
            "args_evidence": {"max_num_seqs": [CARD], "gone": [CARD]},
            "args": {"chat": {"thinking": False}},
            "env": {"NCCL_NET": "IB"},
            "env_evidence": {"NCCL_NET": [{**CARD, "status": "retracted", "scope": {"lane": "sm121"}, "note": "why"}]},
            "speculative": {"rules": [{"kind": "max", "k": [5], "evidence": [CARD]}]},
        },
        models={"drafter": {"license_evidence": [CARD]}},
    )
    rows = [evidence.text(row) for row in evidence.rows(found, the_lane(found)[1])]
    assert rows == [
        ("models.drafter.license", "MIT", "published", "2026-09-01", "a card", ""),
        ("speculative.rules[0]", "kind max, k 5", "published", "2026-09-01", "a card", ""),
        ("args.max_num_seqs", "4", "published", "2026-09-01", "a card", ""),
        ("args.gone", "(not set)", "published", "2026-09-01", "a card", ""),
        ("env.NCCL_NET", "IB", "retracted", "2026-09-01", "a card", "lane sm121; why"),
    ]


def count(value: Any) -> int:
    """Pieces of evidence in dumped models: mappings with source and status."""
    if isinstance(value, dict):
        return int({"source", "status", "scope"} <= set(value)) + sum(map(count, value.values()))
    return sum(map(count, value)) if isinstance(value, list) else 0


@pytest.mark.parametrize("file", RECIPES, ids=lambda f: f.parent.name)
def test_no_piece_of_evidence_is_lost(file: Path) -> None:
    found, _ = parse_text(file.read_text(), file.name)
    assert found is not None
    for lane in found.lanes.values():
        models = [found.models[n] for n in (lane.target, lane.drafter) if n]
        dumped = [json.loads(m.model_dump_json()) for m in (*models, lane)]
        assert len(evidence.rows(found, lane)) == count(dumped)
