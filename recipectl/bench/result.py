"""A bench result: every block with its requests, its counters and the rules that voided it. PURE codec.

Times are seconds, rates tokens per second, lengths tokens per verify step. NaN and infinity are refused on reading.
"""

from __future__ import annotations

import json
from typing import Literal

from pydantic import ConfigDict, Field, ValidationError

from recipectl.bench import protocol as protocols
from recipectl.errors import UsageError
from recipectl.recipe.base import Json, Strict

SCHEMA = "recipectl.bench/1"


class Part(Strict):
    """Strict, and no number that is not one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Counted(Part):
    """The answer of a counting prompt, held against 1, 2, 3, ..."""

    exact: bool
    reached: int
    complete: bool
    wrong_at: int | None = None
    seen: str | None = None
    separator: str | None = None


class Request(Part):
    """One stream. `failure` None means complete, with counts that agree."""

    prompt: str
    prompt_sha256: str
    prompt_token_ids_sha256: str | None = None
    text_sha256: str
    failure: str | None = None
    finish_reason: str | None = None
    n: int | None = None
    n_first: int = 0
    counted: Literal["token_ids", "usage", "assumed"]
    chunks: int = 0
    t_request_ns: int
    t_first_ns: int | None = None
    t_last_ns: int | None = None
    t_end_ns: int
    prompt_tokens: int | None = None
    ttft_s: float | None = None
    tok_s: float | None = None
    spec: dict[str, Json] = {}
    server: dict[str, Json] = {}
    cached_tokens: int | None = None
    count: Counted | None = None
    text_problems: list[str] = []


class Accepted(Part):
    """Acceptance of a block or a cell, from one source."""

    source: Literal["counters", "requests", "gauge"]
    drafts: int
    proposed: int
    accepted: int
    per_position: list[int] = []
    length: float | None = None
    low: float | None = Field(default=None, description="95 % interval of a cell's length, prompts as clusters")
    high: float | None = None
    rate: float | None = None
    positions: list[float] = []
    conditional: list[float | None] = []


class Rates(Part):
    """What a block or a cell comes to. None: cannot be told from what this server says."""

    tok_s: float | None = Field(default=None, description="per stream, by the protocol's formula")
    legacy_tok_s: float | None = None
    aggregate: float | None = Field(default=None, description="while all streams were live (agg_steady)")
    agg_decode: float | None = None
    agg_run: float | None = None
    ttft_s: float | None = None
    acceptance_length: float | None = None
    emitted_length: float | None = Field(default=None, description="(N - 1) / D: what times step rate is tok/s")
    step_ms: float | None = Field(default=None, description="windows of the streams over the verify steps in them")
    server_step_ms: float | None = Field(default=None, description="the engine's own inter-token histogram, mean")
    server_tok_s: float | None = Field(default=None, description="(N - 1) / generation_time_ms, median of streams")


class Block(Part):
    """One round of one cell."""

    phase: str
    concurrency: int
    round: int
    boot: str
    arm: str | None = None
    started: str
    void: list[str] = Field(default=[], description="the named rules that void it")
    warnings: list[str] = []
    requests: list[Request]
    acceptance: Accepted | None = None
    acceptance_by_engine: dict[str, Accepted] = {}
    request_acceptance: Accepted | None = None
    prefix_hits: int | None = None
    trimmed: int | None = Field(default=None, description="tokens of last steps cut by max_tokens or EOS")
    rates: Rates
    client: dict[str, Json] = {}
    clocks: dict[str, Json] = {}

    @property
    def valid(self) -> bool:
        """No rule voided it and at least one stream is whole."""
        return not self.void and any(r.failure is None for r in self.requests)


class Cell(Part):
    """The summary of one (protocol phase, concurrency): medians over its valid rounds."""

    phase: str
    concurrency: int
    rounds: int
    void_rounds: int
    failed_streams: int
    rates: Rates
    acceptance: Accepted | None = None
    cv_tok_s: float | None = None
    queueing: bool = False
    count: str | None = Field(default=None, description="exact, or the first wrong number of any stream")


class Measured(Part):
    """One protocol as it was run, with its blocks."""

    protocol: protocols.Protocol
    digest: str
    cells: list[Cell]
    blocks: list[Block]

    def place(self, phase: str) -> str:
        """A phase where figures of several protocols stand together: two of them may call theirs prose."""
        return phase if phase == self.protocol.name else f"{self.protocol.name} {phase}"


class Server(Part):
    """What was measured, as far as it says."""

    url: str
    model: str
    engine: str | None = None
    version: str | None = None
    cache_config: dict[str, str] = {}
    speculative: dict[str, Json] = {}
    k: int | None = None
    max_num_seqs: int | None = None
    lacks: list[str] = Field(default=[], description="what this server does not offer, and what that costs")
    argv: list[str] = []
    log_sha256: str | None = None


class Result(Part):
    """The result file (run.json)."""

    schema_: Literal["recipectl.bench/1"] = Field(default="recipectl.bench/1", alias="schema")
    tool: str
    started: str
    ended: str
    partial: bool = False
    recipe: str | None = None
    lane: str | None = None
    variant: str | None = None
    resolution: str | None = Field(default=None, description="digest of what the lock resolves")
    seed: int
    server: Server
    rig: dict[str, Json] = {}
    client: dict[str, Json] = {}
    formulas: dict[str, str] = {}
    measured: list[Measured]
    warnings: list[str] = []
    notes: dict[str, Json] = Field(default={}, description="licenses, credits, amendments and caveats of what answered")

    def dump(self) -> str:
        """As JSON text."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=1, ensure_ascii=False) + "\n"


def load(text: str, where: str) -> Result:
    """A result from JSON text. UsageError for another schema, a broken file, or a number that is none."""
    try:
        data = json.loads(text, parse_constant=_refuse)
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema != SCHEMA:
            raise UsageError("this is not a bench result of recipectl", on=where, seen=schema, expected=SCHEMA)
        return Result.model_validate_json(text)
    except ValidationError as err:
        details = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in err.errors()[:8]]
        raise UsageError("the bench result is damaged", on=where, details=details) from err
    except (ValueError, RecursionError) as err:
        raise UsageError("the bench result is not JSON", on=where, seen=err) from err


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no measurement")
