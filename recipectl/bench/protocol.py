"""Protocols as data: which prompts, which sampling, which lengths, which formula. One YAML file each.

Published numbers of one configuration differ by 2x because these differ, so each file is pinned by its digest and
results of different protocols are refused by `compare`. PURE apart from reading the files that ship with recipectl.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import yaml
from pydantic import Field, ValidationError, model_validator

from recipectl.errors import UsageError
from recipectl.recipe.base import Json, Sha256, Slug, Strict

FOLDER = Path(__file__).with_name("protocols")
SCHEMA = "recipectl.protocol/1"

# What a recipe may change about a protocol, and what it may say about how published numbers came about.
AMENDMENTS = frozenset({"prompts", "phases", "requests", "concurrency", "rounds", "max_tokens", "temperature"})
DESCRIPTIONS = frozenset({"statistic", "stream", "thinking", "acceptance", "formula", "note"})

# What tok/s means (docs/bench.md, "Formulas"). N tokens by the server's usage, n_first those in the first chunk that
# bears a token, times of the client's monotonic clock.
Formula = Literal["after-first-chunk", "legacy", "wall", "output-over-wall"]
FORMULAS: dict[str, str] = {
    "after-first-chunk": "(N - n_first) / (t_last - t_first), per stream",
    "legacy": "(N - 1) / (t_last - t_first), per stream",
    "wall": "N / (t_end - t_request), per request, not streamed",
    "output-over-wall": "sum of N / wall time of the block, all streams together",
}


class Prompt(Strict):
    """One prompt, pinned by the sha256 of its UTF-8 text."""

    id: Slug
    text: str = Field(min_length=1)
    sha256: Sha256

    @model_validator(mode="after")
    def _pinned(self) -> Prompt:
        if (seen := sha256_text(self.text)) != self.sha256:
            raise ValueError(f"prompt {self.id}: the text has sha256 {seen}, not {self.sha256}")
        return self


class Count(Strict):
    """The answer is the numbers from 1 to `to`, and is checked for that."""

    to: int = Field(ge=2)
    separator: Literal["comma", "space"]


class Phase(Strict):
    """One kind of prompt of a protocol; figures of different phases are never averaged."""

    prompts: list[Prompt] = Field(default=[], description="empty: the user brings a prompt file")
    count: Count | None = None
    requests: int | None = Field(default=None, ge=1, description="per round; prompts rotate. None: each prompt once")
    max_tokens: int | None = Field(default=None, ge=1, description="when it differs from the protocol's")
    concurrency: list[int] | None = Field(default=None, description="when it differs from the protocol's")


class Sampling(Strict):
    """Sent explicitly, because a server may have defaults of its own (generation_config.json)."""

    temperature: float = Field(default=0.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = -1
    seed: Literal["none", "per-request"] = "none"


class Warmup(Strict):
    """Before the first round of each cell, at its own concurrency and sampling."""

    waves: int = Field(default=1, ge=0)
    max_tokens: int = Field(default=32, ge=1)


class Protocol(Strict):
    """One way to measure. `digest` names it: two results compare only under one digest."""

    schema_: Literal["recipectl.protocol/1"] = Field(alias="schema")
    name: Slug
    version: int = Field(ge=1)
    summary: str
    sources: list[str] = Field(min_length=1)
    exact: bool = Field(default=True, description="false: a prompt is reconstructed from a description")
    note: str | None = None
    endpoint: Literal["chat", "completions"] = "chat"
    transport: Literal["stream", "wall"] = "stream"
    load: Literal["wave", "closed"] = Field(default="wave", description="c streams at once; or c workers over a list")
    formula: Formula = "after-first-chunk"
    thinking: bool | None = Field(default=False, description="chat template flag; null: not sent")
    sampling: Sampling = Sampling()
    max_tokens: int = Field(ge=1)
    ignore_eos: bool = False
    nonce: bool = Field(default=False, description="a unique first line per prompt, as some field scripts send")
    concurrency: list[int] = Field(min_length=1)
    rounds: int = Field(ge=1)
    boots: int = Field(default=1, ge=1, description="cold starts that the protocol asks for")
    warmup: Warmup = Warmup()
    phases: dict[Slug, Phase] = Field(min_length=1)

    @property
    def digest(self) -> str:
        """sha256 over everything that decides the numbers (not over summary, sources and notes)."""
        body = self.model_dump(mode="json", by_alias=True, exclude={"summary", "sources", "note"})
        return sha256_text(json.dumps(body, sort_keys=True))

    def cells(self) -> list[tuple[str, int]]:
        """(phase, concurrency) of every cell, in file order."""
        return [(name, c) for name, phase in self.phases.items() for c in phase.concurrency or self.concurrency]

    @model_validator(mode="after")
    def _coherent(self) -> Protocol:
        if self.transport == "wall" and self.formula in ("after-first-chunk", "legacy"):
            raise ValueError(f"formula {self.formula} needs transport stream: a wall clock sees no first token")
        return self


def sha256_text(text: str) -> str:
    """sha256 in hex of the UTF-8 text."""
    return hashlib.sha256(text.encode()).hexdigest()


def names() -> list[str]:
    """The protocols that ship with recipectl."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name: str) -> Protocol:
    """A shipped protocol by name. UsageError names those on offer."""
    path = FOLDER / f"{name}.yaml"
    if name not in names():
        raise UsageError("no such bench protocol", seen=name, expected="one of " + ", ".join(names()))
    return parse(path.read_text(), str(path.name))


def parse(text: str, where: str) -> Protocol:
    """A protocol from YAML text. UsageError lists every field that is wrong."""
    try:
        return Protocol.model_validate_json(json.dumps(yaml.load(text, Loader=yaml.CSafeLoader)))
    except yaml.YAMLError as err:
        raise UsageError("the protocol file is not YAML", on=where, seen=err) from err
    except ValidationError as err:
        details = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in err.errors()]
        raise UsageError("the protocol file breaks its format", on=where, details=details) from err


def with_settings(protocol: Protocol, settings: Mapping[str, Json], folder: Path) -> Protocol:
    """The protocol as a recipe's `bench[].settings` amend it; `prompts` names a text file beside the recipe.

    Accepted keys: prompts (file), phases, requests, concurrency, rounds, max_tokens, temperature. The digest changes
    with them, so that amended results are only ever compared with results under the same amendment. What a recipe
    says beyond that describes the published run (`statistic`, `stream`, ...) and must not contradict the protocol.
    """
    if unknown := sorted(set(settings) - AMENDMENTS - DESCRIPTIONS):
        raise UsageError(f"unknown bench settings of {protocol.name}", seen=", ".join(unknown),
                         expected=", ".join(sorted(AMENDMENTS)))  # fmt: skip
    body = protocol.model_dump(mode="json", by_alias=True)
    _hold(protocol, settings)
    for key in ("concurrency", "rounds", "max_tokens"):
        if key in settings:
            body[key] = settings[key]
    if "phases" in settings:
        chosen = settings["phases"] if isinstance(settings["phases"], list) else [settings["phases"]]
        body["phases"] = {name: phase for name, phase in body["phases"].items() if name in chosen}
    if "temperature" in settings:
        body["sampling"]["temperature"] = settings["temperature"]
    for phase in body["phases"].values():
        if "prompts" in settings:
            phase["prompts"] = [p.model_dump() for p in read_prompts(folder / str(settings["prompts"]))]
        if "requests" in settings:
            phase["requests"] = settings["requests"]
        for key in ("max_tokens", "concurrency"):
            if key in settings:
                phase[key] = None
    return _rebuilt(body, protocol.name)


def with_flags(
    protocol: Protocol,
    *,
    concurrency: Sequence[int] | None = None,
    max_tokens: int | None = None,
    rounds: int | None = None,
    temperature: float | None = None,
) -> Protocol:
    """The protocol with `--concurrency`, `--max-tokens`, `--rounds`, `--temperature`; None leaves its own values."""
    given = {"concurrency": list(concurrency) if concurrency else None, "max_tokens": max_tokens, "rounds": rounds,
             "temperature": temperature}  # fmt: skip
    return with_settings(protocol, {k: cast(Json, v) for k, v in given.items() if v is not None}, FOLDER)


def _hold(protocol: Protocol, settings: Mapping[str, Json]) -> None:
    """A description that contradicts the protocol is an error: the published numbers were made another way."""
    facts: dict[str, Json] = {"stream": protocol.transport == "stream", "thinking": protocol.thinking}
    for key, fact in facts.items():
        if key in settings and settings[key] != fact:
            raise UsageError(f"the recipe and protocol {protocol.name} disagree about {key}", seen=settings[key],
                             expected=fact)  # fmt: skip


def ready(protocol: Protocol) -> Protocol:
    """The protocol, if it has all its prompts. UsageError for one that needs a prompt file."""
    if empty := [name for name, phase in protocol.phases.items() if not phase.prompts]:
        raise UsageError(f"protocol {protocol.name} takes your own prompts", seen=f"none for {', '.join(empty)}",
                         next_step="add --prompts FILE (one a line, or .jsonl with a `prompt` each)")  # fmt: skip
    return protocol


def read_prompts(path: Path) -> list[Prompt]:
    """Prompts from a file: one a line without blank lines and `#` comments, or JSON lines with a `prompt` each.

    UsageError if it cannot be read or holds none.
    """
    try:
        lines = path.read_text().splitlines()
        if path.suffix == ".jsonl":
            texts = [str(json.loads(line)["prompt"]) for line in lines if line.strip()]
        else:
            texts = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise UsageError("the prompt file cannot be read", on=str(path), seen=f"{type(err).__name__}: {err}") from err
    if not texts:
        raise UsageError("the prompt file holds no prompt", on=str(path))
    return [Prompt(id=f"p{i + 1:03d}", text=t, sha256=sha256_text(t)) for i, t in enumerate(texts)]


def _rebuilt(body: dict[str, Any], name: str) -> Protocol:
    try:
        return Protocol.model_validate_json(json.dumps(body))
    except ValidationError as err:
        details = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in err.errors()]
        raise UsageError(f"these settings do not fit protocol {name}", details=details) from err
