"""What every part of a recipe shares: strictness, evidence, provenance."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, StringConstraints
from pydantic_core import PydanticCustomError

Scalar = str | int | float | bool
Json = JsonValue
EvidenceStatus = Literal["published", "reproduced", "disputed", "retracted", "unresolved"]

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.\-]*$", max_length=80)]
Count = Annotated[int, Field(ge=1)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
# Published prefixes of a sha256: 8 hex digits are the shortest that cards print.
Sha256Prefix = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8,64}$")]


def _whole(value: Any) -> Any:
    """Literals compare by ==, which takes 1.0 and true for 1."""
    if isinstance(value, bool | float):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


SchemaOne = Annotated[Literal[1], BeforeValidator(_whole)]


class Strict(BaseModel):
    """Base of all recipe models: frozen, unknown keys refused, no silent coercion (K "7" is not K 7)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Scope(Strict):
    """Where a piece of evidence applies. What is left out applies everywhere."""

    lane: str | None = None
    drafter: str | None = None
    image: str | None = None
    max_num_seqs: int | None = Field(default=None, ge=1)
    workload: str | None = None


class Evidence(Strict):
    """Why a value is what it is: who said it, when, and whether it still stands."""

    source: str = Field(min_length=3, description="repository and path, seed, issue, paper or receipt")
    date: dt.date | None = Field(default=None, strict=False)
    status: EvidenceStatus = "published"
    scope: Scope | None = None
    note: str | None = None


class Credit(Strict):
    """Whose work this is."""

    who: str
    what: str
    source: str | None = None


class Source(Strict):
    """A document or repository that a recipe draws facts from, with the license it stands under."""

    title: str
    where: str
    date: dt.date | None = Field(default=None, strict=False)
    license: str | None = Field(default=None, description="SPDX expression; none stated is null")


class Note(Strict):
    """A caveat, an amendment or an open question, in the recipe author's words."""

    text: str = Field(min_length=3)
    source: str
    date: dt.date | None = Field(default=None, strict=False)
    status: EvidenceStatus = "published"


class Provenance(Strict):
    """Where a recipe comes from. Printed by `notes`, attached to images, receipts and bench reports."""

    sources: list[Source] = Field(min_length=1)
    credits: list[Credit] = []
    caveats: list[Note] = []
    amendments: list[Note] = []
    related: list[Note] = Field(default=[], description="facts worth knowing that constrain nothing")
