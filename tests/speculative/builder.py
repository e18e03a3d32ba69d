"""Recipes and locks for the K rules: real text (JSON is YAML) through the real parser, changed where a test says so."""

from __future__ import annotations

import json
from typing import Any

from recipectl.lockfile import Facts, Lock, LockedFile, LockedModel, tree_digest
from recipectl.recipe.lane import Lane
from recipectl.recipe.parse import parse_text
from recipectl.recipe.schema import Recipe
from recipectl.speculative import RuleVerdict, check

# The shape of sfxnz's GLM-5.3-Flash recipe on two GB10 (facts of the field: block 8, K 5 with 4 sequences, TP2).
BASE: dict[str, Any] = {
    "schema": 1,
    "name": "pair",
    "summary": "A pair for the rules",
    "provenance": {"sources": [{"title": "tests", "where": "tests/speculative"}]},
    "models": {
        "target": {"role": "target", "repo": "org/target", "revision": "a" * 40, "license": "MIT"},
        "drafter": {"role": "drafter", "repo": "org/drafter", "revision": "b" * 40, "license": "MIT"},
    },
    "lanes": {
        "sm121": {
            "summary": "two GB10",
            "target": "target",
            "drafter": "drafter",
            "nodes": 2,
            "parallel": {"tensor": 2},
            "engine": {"name": "vllm", "version": "0.32.0", "runner": "v2", "image": {"ref": "image:v11"}},
            "speculative": {"method": "dflash", "k": 5, "block_size": 8},
            "args": {"max_num_seqs": 4, "max_model_len": 327680, "max_num_batched_tokens": 8192},
        }
    },
}


def merged(base: Any, over: Any) -> Any:
    """`over` laid on `base`; None removes."""
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    out = {**base, **{k: merged(base.get(k), v) for k, v in over.items()}}
    return {k: v for k, v in out.items() if v is not None}


def recipe(lane: dict[str, Any] | None = None, *, name: str = "sm121", **top: Any) -> Recipe:
    """The base recipe with changes to its one lane and, by keyword, to the rest."""
    data = merged(BASE, top)
    data["lanes"] = {name: merged(BASE["lanes"]["sm121"], lane or {})}
    found, findings = parse_text(json.dumps(data), "pair.yaml")
    assert found is not None, [line for f in findings for line in f.lines()]
    return found


def the_lane(found: Recipe) -> tuple[str, Lane]:
    """The one lane of a recipe."""
    ((name, lane),) = found.lanes.items()
    return name, lane


def lock_of(found: Recipe, target: Facts | None = None, drafter: Facts | None = None, files: str = "w") -> Lock:
    """A lock of the recipe's models with these facts and files (names separated by spaces)."""
    models = {}
    for role, facts in (("target", target), ("drafter", drafter)):
        model = found.models[role]
        sums = dict.fromkeys(files.split(), "0" * 64)
        models[role] = LockedModel(
            role=model.role, repo=model.repo, ref=model.revision, commit=model.revision, tree=tree_digest(sums),
            files=tuple(LockedFile(path=p, size=1, sha256=s) for p, s in sums.items()), facts=facts or Facts(),
        )  # fmt: skip
    lanes = dict.fromkeys(map(str, found.lanes), "sha256:" + "0" * 64)
    return Lock(recipe=found.name, resolution=lanes, models=models)


def verdict(code: str, found: Recipe, lock: Lock | None = None, **more: Any) -> RuleVerdict:
    """One rule's verdict on the one lane."""
    name, lane = the_lane(found)
    return next(v for v in check(found, name, lane, lock, **more) if v.code == code)
