"""A step-synchronous mock of a speculating server, for the self-test and for tests: its token times are known.

All live streams get one chunk a step, as a batched engine gives them; a chunk bears 1 + (accepted drafts) tokens. The
server notes when it wrote what (`GET /truth`), on the same monotonic clock as the client, so every figure that a
client reports has a true value to be held against. `mockhttp` is its HTTP side.

Faults are asked for inside a prompt: `[[error]]` an error object in band, `[[die]]` the connection breaks,
`[[http500]]`, `[[no-usage]]`, `[[no-done]]`, `[[no-finish]]`, `[[zero]]` no token at all, `[[empty]]` tokens without
text, `[[merge]]` the events of two steps in one write, `[[plain]]` neither token ids nor continuous usage.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

# Per-position acceptance of the published E drafter card (K 7): length 3.569. The self-test's default.
RATES = (0.744, 0.545, 0.405, 0.306, 0.237, 0.185, 0.147)
PROMPT_TOKENS = 17
TABLE = 4096
FAULTS = ("error", "die", "http500", "no-usage", "no-done", "no-finish", "zero", "empty", "merge", "plain")


@dataclass
class Config:
    """`step_s` between steps; `rates` unconditional acceptance by position, empty for a server without speculation.

    `refuses` are body fields that get HTTP 400; `metrics` False hides /metrics; `sglang` exposes its gauges instead.
    `moves` are counters that move by one with every finished request: preempted, prefix_hits, finished (a request of
    someone else), restart (the process start).
    """

    step_s: float = 0.02
    rates: Sequence[float] = RATES
    model: str = "mock"
    refuses: Sequence[str] = ()
    metrics: bool = True
    per_request: bool = True
    sglang: bool = False
    moves: Sequence[str] = ()
    seed: int = 0


@dataclass
class Truth:
    """What was really written for one stream, in monotonic nanoseconds and tokens."""

    salt: str
    t_first: int = 0
    t_last: int = 0
    n: int = 0
    steps: int = 0
    accepted: int = 0
    writes: list[tuple[int, int]] = field(default_factory=list)


class Engine:
    """The batch: streams join at a step boundary and leave when they have their tokens."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.k = len(config.rates)
        self.live: list[Stream] = []
        self.truth: list[Truth] = []
        self.counters: dict[str, float] = dict.fromkeys(
            ("drafts", "proposed", "accepted", "generated", "prompt", "finished", "itl_sum", "itl_count"), 0.0
        )
        self.positions = [0] * self.k
        self.start = time.time()
        self.table = self._table()

    def _table(self) -> list[int]:
        """How many drafts each step accepts: shuffled, in exactly the proportions of the rates, and drawn beforehand
        because random numbers cost more than the writes."""
        edges = [1.0, *self.config.rates, 0.0]
        counts = [round(TABLE * (edges[j] - edges[j + 1])) for j in range(self.k + 1)]
        table = [j for j, count in enumerate(counts) for _ in range(count)]
        random.Random(self.config.seed).shuffle(table)
        return table

    async def run(self) -> None:
        """Steps, for ever, on a fixed grid."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + self.config.step_s, loop.time())
            await asyncio.sleep(due - loop.time())
            for stream in list(self.live):
                stream.step()

    def exposition(self) -> str:
        """What /metrics says, under vLLM's names."""
        c = self.counters
        if self.config.sglang:
            length = 1 + sum(self.config.rates) if self.live else 0.0
            running = len(self.live)
            return f"sglang:num_running_reqs {running}\nsglang:num_queue_reqs 0\nsglang:spec_accept_length {length}\n"
        label = f'engine="0",model_name="{self.config.model}"'
        moved = dict.fromkeys(self.config.moves, int(c["finished"]))
        finished = c["finished"] + moved.get("finished", 0)
        rows = [
            f"process_start_time_seconds {self.start + moved.get('restart', 0)}",
            f"vllm:num_requests_running{{{label}}} {len(self.live)}", f"vllm:num_requests_waiting{{{label}}} 0",
            f"vllm:generation_tokens_total{{{label}}} {c['generated']:.0f}",
            f"vllm:prompt_tokens_total{{{label}}} {c['prompt']:.0f}",
            f"vllm:num_preemptions_total{{{label}}} {moved.get('preempted', 0)}",
            f"vllm:prefix_cache_hits_total{{{label}}} {moved.get('prefix_hits', 0)}",
            f'vllm:request_success_total{{finished_reason="length",{label}}} {finished:.0f}',
            f"vllm:inter_token_latency_seconds_sum{{{label}}} {c['itl_sum']}",
            f"vllm:inter_token_latency_seconds_count{{{label}}} {c['itl_count']:.0f}",
        ]  # fmt: skip
        if self.k:
            rows += [
                f"vllm:spec_decode_num_drafts_total{{{label}}} {c['drafts']:.0f}",
                f"vllm:spec_decode_num_draft_tokens_total{{{label}}} {c['proposed']:.0f}",
                f"vllm:spec_decode_num_accepted_tokens_total{{{label}}} {c['accepted']:.0f}",
            ]
            rows += [
                f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{label},position="{i}"}} {n}'
                for i, n in enumerate(self.positions)
            ]
        return "\n".join(rows) + "\n"


class Answer(Protocol):
    """The HTTP side of one stream (`mockhttp.Http`)."""

    open: bool

    def event(self, value: dict[str, Any]) -> None: ...
    def chunk(self, data: bytes) -> None: ...
    def finish(self, data: bytes = b"", *, done: bool) -> None: ...
    def drop(self) -> None: ...
    def answer(self, status: int, value: object) -> None: ...


class Stream:
    """One request in the batch."""

    def __init__(self, engine: Engine, http: Answer, body: dict[str, Any]) -> None:
        self.engine, self.http, self.body = engine, http, body
        text = json.dumps(body.get("messages") or body.get("prompt") or "")
        self.faults = {f for f in FAULTS if f"[[{f}]]" in text}
        self.counting = "Count from 1" in text
        self.spaces = "separated by spaces" in text
        self.limit = int(body.get("max_tokens") or body.get("max_completion_tokens") or 16)
        self.chat = "messages" in body
        self.ids = bool(body.get("return_token_ids")) and "plain" not in self.faults
        continuous = (body.get("stream_options") or {}).get("continuous_usage_stats")
        self.usage = bool(continuous) and not self.faults & {"plain", "no-usage"}
        self.truth = Truth(str(body.get("cache_salt", "")))
        self.place = random.Random(f"{engine.config.seed}/{self.truth.salt}").randrange(len(engine.table))
        self.histogram = [0] * (engine.k + 1)
        self.held = b""
        self.whole: list[str] | None = None if body.get("stream") else []
        engine.truth.append(self.truth)
        engine.counters["prompt"] += PROMPT_TOKENS

    def step(self) -> None:
        """One engine step: the prefill's token first, then drafts verified."""
        if not self.http.open:
            self._leave()
        elif self.truth.n == 0:
            self._first()
        elif "error" in self.faults and self.truth.steps >= 2:
            self._leave()
            self.http.event({"error": {"message": "EngineCore encountered an issue.", "code": 500}})
            self.http.finish(done=True)
        elif "die" in self.faults and self.truth.steps >= 2:
            self._leave()
            self.http.drop()
        else:
            self._decode()

    def _first(self) -> None:
        if self.chat and self.whole is None:
            self.http.event(self._choices({"role": "assistant", "content": ""}, []))
        if "zero" in self.faults:
            self._end(sse(self._choices({} if self.chat else "", [], "stop")))
            return
        self._emit(1)

    def _decode(self) -> None:
        engine = self.engine
        accepted = engine.table[self.place % len(engine.table)] if engine.k else 0
        self.place += 1
        c = engine.counters
        if engine.k:
            self.histogram[accepted] += 1
            c["drafts"] += 1
            c["proposed"] += engine.k
            c["accepted"] += accepted
            for i in range(accepted):
                engine.positions[i] += 1
        c["itl_sum"] += engine.config.step_s
        c["itl_count"] += 1
        self.truth.steps += 1
        self.truth.accepted += accepted
        self._emit(min(accepted + 1, self.limit - self.truth.n))

    def _emit(self, n: int) -> None:
        first = self.truth.n
        self.truth.n += n
        self.engine.counters["generated"] += n
        ids = list(range(first, first + n))
        text = "" if "empty" in self.faults else "".join(self._word(i) for i in ids)
        last = self.truth.n >= self.limit
        if self.whole is not None:
            self._emit_whole(text, last)
            return
        delta = {"content": text} if self.chat else text
        finish = "length" if last and "no-finish" not in self.faults else None
        data = sse(self._choices(delta, ids, finish))
        if "merge" in self.faults and not last and not self.held:
            self.held = data
            return
        self._stamp()
        data, self.held = self.held + data, b""
        if last:
            self._end(data)
        else:
            self.http.chunk(data)

    def _emit_whole(self, text: str, last: bool) -> None:
        """A request that is not streamed: one JSON body at its end."""
        assert self.whole is not None
        self.whole.append(text)
        self._stamp()
        if not last:
            return
        self.engine.counters["finished"] += 1
        self._leave()
        text = "".join(self.whole)
        said = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        choice = {"index": 0, **said, "finish_reason": "length", "token_ids": list(range(self.truth.n))}
        self.http.answer(200, {"choices": [choice], "usage": self._usage(), "metrics": self._metrics()})

    def _stamp(self) -> None:
        now = time.perf_counter_ns()
        self.truth.t_first = self.truth.t_first or now
        self.truth.t_last = now
        self.truth.writes.append((now, self.truth.n))

    def _end(self, data: bytes) -> None:
        """The last tokens, the usage and [DONE] in one write, as one TCP read often brings them."""
        self.engine.counters["finished"] += 1
        self._leave()
        if "no-usage" not in self.faults:
            data += sse({"choices": [], "usage": self._usage(), "metrics": self._metrics()})
        self.http.finish(data, done="no-done" not in self.faults)

    def _leave(self) -> None:
        if self in self.engine.live:
            self.engine.live.remove(self)

    def _word(self, i: int) -> str:
        if self.counting:
            return str(i // 2 + 1) if i % 2 == 0 else (" " if self.spaces else ", ")
        return f"word{(i * 7919 + self.place) % 997} "

    def _choices(self, delta: dict[str, str] | str, ids: list[int], finish: str | None = None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "delta" if self.chat else "text": delta, "finish_reason": finish}
        if self.ids and ids:
            choice["token_ids"] = ids
        out: dict[str, Any] = {"id": "mock", "object": "chat.completion.chunk", "choices": [choice]}
        if self.usage:
            out["usage"] = self._usage()
        return out

    def _usage(self) -> dict[str, int]:
        n = self.truth.n
        return {"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS + n, "completion_tokens": n}

    def _metrics(self) -> dict[str, Any] | None:
        if not self.engine.config.per_request:
            return None
        t, k = self.truth, self.engine.k
        out: dict[str, Any] = {"generation_time_ms": (t.t_last - t.t_first) / 1e6}
        if k:
            out["speculative_decoding"] = {
                "acceptance_histogram": self.histogram, "num_spec_steps": t.steps,
                "num_accepted_draft_tokens": t.accepted, "num_draft_tokens": t.steps * k, "num_spec_tokens": k,
            }  # fmt: skip
        return out


def sse(value: dict[str, Any]) -> bytes:
    """One event as bytes."""
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
