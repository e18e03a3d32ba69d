"""One stream, read back after it has ended: raw reads become chunks, counts and a verdict. PURE.

A stream counts as done only with a finish reason, a usage and `[DONE]`, and without an error object: a dead engine
answers HTTP 200, then `data: {"error": ...}`, then `[DONE]`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Read = tuple[int, bytes]  # monotonic nanoseconds, bytes of one socket read
Counted = Literal["token_ids", "usage", "assumed"]
_EVENT_END = re.compile(rb"\r?\n\r?\n")
_TEXT_KEYS = ("content", "reasoning", "reasoning_content")  # 0.32 says reasoning, older and SGLang reasoning_content


@dataclass(frozen=True)
class RawStream:
    """What the client saw of one request. Times are monotonic nanoseconds."""

    t_request: int
    reads: Sequence[Read]
    status: int | None
    t_end: int
    error: str | None = None


@dataclass(frozen=True)
class Chunk:
    """One event that bears tokens. `n` is None where the server does not say how many."""

    t: int
    n: int | None
    text: str


@dataclass(frozen=True)
class Stream:
    """One request, measured. `failure` None means that it is complete and its counts agree."""

    t_request: int
    t_end: int
    chunks: tuple[Chunk, ...]
    n: int | None
    n_first: int
    counted: Counted
    failure: str | None
    finish_reason: str | None
    text: str
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    metrics: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether its figures may be used."""
        return self.failure is None


def events(reads: Sequence[Read]) -> list[tuple[int, bytes]]:
    """The payload of every `data:` event, stamped with the read that completed it."""
    out: list[tuple[int, bytes]] = []
    buffer = b""
    stamp = 0
    for stamp, data in reads:
        buffer += data
        parts = _EVENT_END.split(buffer)
        buffer = parts.pop()
        out += [(stamp, payload) for part in parts if (payload := _payload(part)) is not None]
    if buffer.strip() and (payload := _payload(buffer)) is not None:
        out.append((stamp, payload))
    return out


def _payload(event: bytes) -> bytes | None:
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


def parse(raw: RawStream, *, expect_tokens: int | None = None) -> Stream:
    """Chunks, counts and verdict of one raw stream. `expect_tokens` is max_tokens where EOS is ignored."""
    reader = _Reader()
    for t, payload in events(raw.reads):
        reader.take(t, payload)
    return reader.result(raw, expect_tokens)


def parse_whole(raw: RawStream) -> Stream:
    """A response that was not streamed: one JSON body, known only when it has ended."""
    body = b"".join(data for _, data in raw.reads)
    failure = _transport_failure(raw, body)
    data: dict[str, Any] = {}
    if failure is None:
        try:
            data = _object(_json(body))
        except ValueError as err:
            failure = f"the body is not JSON: {err}"
    choice = _object((data.get("choices") or [{}])[0])
    text = str(_object(choice.get("message")).get("content") or choice.get("text") or "")
    usage = _object(data.get("usage"))
    n = usage.get("completion_tokens")
    n = n if isinstance(n, int) and not isinstance(n, bool) else None
    if failure is None:
        failure = _error_text(data) or (None if n and n > 0 else "no completion tokens in usage")
    ids = choice.get("token_ids")
    return Stream(
        raw.t_request, raw.t_end, (), n, 0, "usage", failure, choice.get("finish_reason"), text,
        prompt_tokens=usage.get("prompt_tokens"),
        token_ids=tuple(ids) if isinstance(ids, list) else None,
        metrics=_object(data.get("metrics")),
    )  # fmt: skip


class _Reader:
    """Collects what the events of one stream say."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.usage: dict[str, Any] = {}
        self.cumulative = 0
        self.ids: list[int] = []
        self.every_chunk_has_ids = True
        self.every_chunk_counted = True
        self.finish: str | None = None
        self.done = False
        self.problem: str | None = None
        self.prompt_ids: tuple[int, ...] | None = None
        self.metrics: dict[str, Any] = {}

    def take(self, t: int, payload: bytes) -> None:
        if payload == b"[DONE]":
            self.done = True
            return
        try:
            event = _json(payload)
        except ValueError as err:
            self.problem = self.problem or f"an event is not JSON: {payload[:80]!r} ({err})"
            return
        if not isinstance(event, dict):
            self.problem = self.problem or f"an event is not an object: {payload[:80]!r}"
            return
        self.problem = self.problem or _error_text(event)
        usage = _object(event.get("usage"))
        if usage:
            self.usage = usage  # cumulative where the server sends it on every chunk: never summed
        if isinstance(event.get("metrics"), dict):
            self.metrics = event["metrics"]
        choices = event.get("choices") or []
        choice = _object(choices[0]) if choices else {}
        if isinstance(ids := event.get("prompt_token_ids") or choice.get("prompt_token_ids"), list):
            self.prompt_ids = tuple(ids)
        if choice:
            self._choice(t, choice, usage)

    def _choice(self, t: int, choice: dict[str, Any], usage: dict[str, Any]) -> None:
        delta = _object(choice.get("delta"))
        text = "".join(str(delta.get(key) or "") for key in _TEXT_KEYS) + str(choice.get("text") or "")
        calls = json.dumps(delta["tool_calls"]) if delta.get("tool_calls") else ""
        self.finish = choice.get("finish_reason") or self.finish
        ids = choice.get("token_ids")
        now = usage.get("completion_tokens")
        grown = now - self.cumulative if isinstance(now, int) else None
        if isinstance(now, int):
            self.cumulative = max(self.cumulative, now)
        bears = bool(ids) or bool(grown and grown > 0) or bool(text or calls)
        if not bears:
            return  # the role chunk, or a finish without tokens
        if isinstance(ids, list) and ids:
            self.ids += ids
        else:
            self.every_chunk_has_ids = False
        n = len(ids) if isinstance(ids, list) and ids else grown
        if n is None:
            self.every_chunk_counted = False
        self.chunks.append(Chunk(t, n, text or calls))

    def result(self, raw: RawStream, expect_tokens: int | None) -> Stream:
        n = self.usage.get("completion_tokens")
        n = n if isinstance(n, int) and not isinstance(n, bool) else None
        counted: Counted = "assumed"
        if self.chunks and self.every_chunk_counted:
            counted = "token_ids" if self.every_chunk_has_ids else "usage"
        first = self.chunks[0].n if self.chunks and counted != "assumed" else 1
        failure = _transport_failure(raw, b"".join(d for _, d in raw.reads)) or self._failure(n, counted, expect_tokens)
        details = _object(self.usage.get("prompt_tokens_details"))
        return Stream(
            raw.t_request, raw.t_end, tuple(self.chunks), n, first or 0, counted, failure, self.finish,
            "".join(c.text for c in self.chunks), self.usage.get("prompt_tokens"), details.get("cached_tokens"),
            self.prompt_ids, tuple(self.ids) if counted == "token_ids" else None, self.metrics,
        )  # fmt: skip

    def _failure(self, n: int | None, counted: Counted, expect_tokens: int | None) -> str | None:
        if self.problem:
            return self.problem
        missing = [
            name
            for name, there in (("finish_reason", self.finish), ("usage", n is not None), ("[DONE]", self.done))
            if not there
        ]
        if missing:
            return "the stream ended without " + ", ".join(missing)
        if n is None or n <= 0 or not self.chunks:
            return (
                f"the server reports {n} tokens" if not n or n < 0 else f"{n} tokens by usage, but no chunk bears any"
            )
        total = sum(c.n or 0 for c in self.chunks)
        if counted != "assumed" and total != n:
            return f"token counts disagree: {total} over the chunks ({counted}), {n} by usage"
        if expect_tokens is not None and (self.finish != "length" or n != expect_tokens):
            return f"EOS was to be ignored: {n} of {expect_tokens} tokens, finish_reason {self.finish}"
        return None


def _json(text: bytes) -> Any:
    """JSON without the numbers that are none. ValueError."""
    return json.loads(text, parse_constant=_finite, parse_float=_finite)


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is no number")
    return value


def _transport_failure(raw: RawStream, body: bytes) -> str | None:
    if raw.error:
        return raw.error
    if raw.status != 200:
        return f"HTTP {raw.status}: {body[:300].decode(errors='replace').strip()}"
    return None


def _error_text(event: dict[str, Any]) -> str | None:
    error = event.get("error")
    if error is None and event.get("object") != "error":
        return None
    detail = error if error is not None else event
    message = detail.get("message") if isinstance(detail, dict) else detail
    return f"the server sent an error: {message}"


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
