"""The JSON Schema that editors use is the models', and it takes every recipe as its author wrote it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from recipectl.recipe.schema import json_schema

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "schema" / "recipe.schema.json"
RECIPES = [*sorted((ROOT / "recipes").glob("*/recipe.yaml")), *sorted((ROOT / "tests/data/good").glob("*.yaml"))]


def as_text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def plain(file: Path) -> Any:
    """The file as an editor reads it: YAML 1.2, dates and versions are text."""
    return yaml.load(file.read_text(), Loader=_Editor)


class _Editor(yaml.SafeLoader):
    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in found if not tag.endswith(":timestamp")]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def test_the_file_is_the_models_schema() -> None:
    assert FILE.read_text() == as_text(json_schema()), "write it anew: python -m tests.recipe.test_schema_export"


@pytest.mark.parametrize("file", RECIPES, ids=lambda f: f"{f.parent.name}/{f.name}")
def test_every_recipe_is_valid_in_an_editor(file: Path) -> None:
    jsonschema.Draft202012Validator(json_schema()).validate(plain(file))


@pytest.mark.parametrize("name", ["key-unknown-nested", "k-text", "key-unknown-lane", "value-bad-choice"])
def test_the_schema_refuses_what_the_parser_refuses(name: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json_schema()).validate(plain(ROOT / "tests/data/bad" / f"{name}.yaml"))


if __name__ == "__main__":
    FILE.write_text(as_text(json_schema()))
