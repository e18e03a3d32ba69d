"""The bill of materials against the published CycloneDX 1.6 schema, for every recipe that ships."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

from recipectl.lockfile import Lock
from recipectl.provenance import cyclonedx, gather
from recipectl.recipe import catalog
from recipectl.recipe.schema import Recipe
from recipectl.settings import Settings
from tests.conftest import DATA, ROOT
from tests.provenance.conftest import DRAFTER, only, recipe

SHIPPED = sorted(p.parent.name for p in (ROOT / "recipes").glob(f"*/{catalog.RECIPE_FILE}"))


@cache
def validator() -> jsonschema.Draft7Validator:
    schemas = [json.loads(gzip.decompress(p.read_bytes())) for p in sorted((DATA / "cyclonedx").glob("*.json.gz"))]
    registry: Registry[Any] = Registry().with_resources((s["$id"], Resource.from_contents(s)) for s in schemas)
    bom = next(s for s in schemas if s["$id"].endswith("bom-1.6.schema.json"))
    return jsonschema.Draft7Validator(bom, registry=registry, format_checker=jsonschema.FormatChecker())


def problems(document: object) -> list[str]:
    return [f"{e.json_path}: {e.message[:200]}" for e in validator().iter_errors(document)]


def test_the_vendored_schema_refuses_what_is_wrong() -> None:
    assert problems({"bomFormat": "CycloneDX"})
    bad = {"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{"type": "weights", "name": "x"}]}
    assert problems(bad)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_recipe_gives_a_valid_document(settings: Settings, name: str) -> None:
    document = cyclonedx.bom(gather(recipe(settings, name)))
    assert problems(document) == []
    refs = [c["bom-ref"] for c in walk(document)]
    assert len(refs) == len(set(refs))


def walk(document: dict[str, Any]) -> list[dict[str, Any]]:
    found, todo = [], [document["metadata"]["component"], *document["components"]]
    while todo:
        component = todo.pop()
        found.append(component)
        todo += component.get("components", [])
    return found


def test_with_a_lock_models_carry_commit_files_and_purl(flash: Recipe, flash_lock: Lock) -> None:
    document = cyclonedx.bom(gather(flash, flash_lock, [only(flash, "eager")]))
    assert problems(document) == []
    drafter = next(c for c in document["components"] if c["bom-ref"].startswith("drafter:"))
    assert drafter["type"] == "machine-learning-model"
    assert drafter["purl"] == f"pkg:huggingface/incoai/GLM-5.3-Flash-DFlash2@{DRAFTER}"
    assert drafter["licenses"] == [{"expression": "CC-BY-NC-ND-4.0"}]
    assert {c["name"]: c["hashes"][0]["content"] for c in drafter["components"]} == {
        "config.json": "1" * 64, "model.safetensors": "2" * 64,
    }  # fmt: skip


def test_what_has_no_license_is_said_not_left_out(flash: Recipe) -> None:
    bare = [c for c in cyclonedx.bom(gather(flash))["components"] if "expression" not in c["licenses"][0]]
    assert bare
    assert {c["licenses"][0]["license"]["name"] for c in bare} == {"NOASSERTION"}


def test_the_same_inputs_give_the_same_document(flash: Recipe, flash_lock: Lock) -> None:
    first, second = (cyclonedx.bom(gather(flash, flash_lock)) for _ in range(2))
    assert json.dumps(first) == json.dumps(second)
    assert cyclonedx.bom(gather(flash))["serialNumber"] != first["serialNumber"]
