"""The recipe file as a whole, and the JSON Schema that editors use.

In the file, what lanes share stands once under `shared`, and a variant is a named partial override of its lane. Both
are merged before a lane is validated, so a `Lane` in memory is always complete. Merging: mappings merge by key, lists
and scalars replace, null removes.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from recipectl.recipe.base import Provenance, SchemaOne, Slug, Strict
from recipectl.recipe.lane import Lane
from recipectl.recipe.model import Model

SCHEMA_VERSION = 1
LaneName = Literal["sm90", "sm100", "sm121", "cpu"]
LANE_NAMES: tuple[str, ...] = get_args(LaneName)


class Recipe(Strict):
    """A recipe after merging: lanes and variants are complete lanes."""

    schema_version: SchemaOne = Field(alias="schema")
    name: Slug
    summary: str = Field(min_length=8)
    license: str = Field(default="Apache-2.0", description="of this recipe's text, not of its models")
    alternative: Slug | None = Field(default=None, description="a recipe free of this one's use restrictions")
    provenance: Provenance
    models: dict[Slug, Model] = Field(min_length=1)
    lanes: dict[LaneName, Lane] = Field(min_length=1)
    variants: dict[LaneName, dict[Slug, Lane]] = {}

    @model_validator(mode="after")
    def _names_resolve(self) -> Recipe:
        for where, lane in self.all_lanes():
            for role, name in (("target", lane.target), ("drafter", lane.drafter)):
                if name is None:
                    continue
                if name not in self.models:
                    raise ValueError(f"{where}: {role} {name!r} is not under models ({', '.join(self.models)})")
                if self.models[name].role != role:
                    raise ValueError(f"{where}: {role} {name!r} has role {self.models[name].role} under models")
        return self

    def all_lanes(self) -> list[tuple[str, Lane]]:
        """Every lane and variant with its place in the file, in file order."""
        out: list[tuple[str, Lane]] = []
        for name, lane in self.lanes.items():
            out.append((f"lanes.{name}", lane))
            out += [(f"lanes.{name}.variants.{v}", lane_) for v, lane_ in self.variants.get(name, {}).items()]
        return out

    def lane(self, name: str, variant: str | None = None) -> Lane:
        """One complete lane. KeyError if the lane or the variant does not exist."""
        if variant is None:
            return {str(k): v for k, v in self.lanes.items()}[name]
        return {str(k): v for k, v in self.variants.items()}[name][variant]


def _partial(model: type[BaseModel]) -> type[BaseModel]:
    """The same fields, none required: what `shared` and a variant may hold."""
    fields: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        kind: Any = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = _partial(kind)
        fields[name] = (kind | None, Field(default=None, description=info.description))
    return create_model(f"{model.__name__}Patch", __config__=ConfigDict(extra="forbid"), **fields)


def json_schema() -> dict[str, Any]:
    """JSON Schema of recipe.yaml as authors write it (docs/schema/recipe.schema.json holds the same)."""
    patch = _partial(Lane)
    lane_file = create_model(
        "LaneInFile",
        __base__=patch,
        variants=(dict[Slug, patch], Field(default={}, description="named partial overrides of this lane")),  # type: ignore[valid-type]
    )
    fields: dict[str, Any] = {
        (info.alias or name): (info.annotation, info)
        for name, info in Recipe.model_fields.items()
        if name not in ("lanes", "variants", "schema_version")
    }
    fields["schema_version"] = (SchemaOne, Field(alias="schema"))
    fields["shared"] = (patch, Field(default=None, description="what all lanes share"))
    fields["lanes"] = (dict[LaneName, lane_file], Field(min_length=1))  # type: ignore[valid-type]
    file_model = create_model("RecipeFile", __config__=ConfigDict(extra="forbid"), **fields)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **file_model.model_json_schema()}
