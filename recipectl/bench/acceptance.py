"""Acceptance from the engine's counters: two scrapes become one delta. PURE.

Lengths are tokens per verify step with the bonus token inside (1 to K+1); rates are fractions of draft tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Literal

from recipectl.errors import BenchError

Series = tuple[tuple[str, str], ...]  # the full label set, sorted
_COUNTERS = {
    "drafts": "vllm:spec_decode_num_drafts",
    "proposed": "vllm:spec_decode_num_draft_tokens",
    "accepted": "vllm:spec_decode_num_accepted_tokens",
    "per_position": "vllm:spec_decode_num_accepted_tokens_per_pos",
    "generated": "vllm:generation_tokens",
    "prompt": "vllm:prompt_tokens",
    "succeeded": "vllm:request_success",
    "preempted": "vllm:num_preemptions",
    "prefix_hits": "vllm:prefix_cache_hits",
    "step_seconds": "vllm:inter_token_latency_seconds_sum",
    "steps": "vllm:inter_token_latency_seconds_count",
}
_GAUGES = {"running": ("vllm:num_requests_running", "sglang:num_running_reqs"),
           "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs")}  # fmt: skip


@dataclass(frozen=True)
class Scrape:
    """One reading of /metrics: every sample by name and full label set. `boot` changes with a restart."""

    samples: Mapping[str, Mapping[Series, float]]
    model: str | None
    text: str = ""

    def series(self, counter: str) -> dict[Series, float]:
        """The counter's series of the benched model; older builds expose names without `_total`."""
        name = _COUNTERS[counter]
        found = self.samples.get(f"{name}_total", self.samples.get(name, {}))
        return {labels: v for labels, v in found.items() if self._mine(labels)}

    def gauge(self, which: Literal["running", "waiting"]) -> float | None:
        """Requests in that state over all engines and models (foreign ones count); None: not exposed."""
        for name in _GAUGES[which]:
            if name in self.samples:
                return sum(self.samples[name].values())
        return None

    def value(self, name: str) -> float | None:
        """The mean over the series of one sample, as for SGLang's gauges; None: not exposed."""
        found = list(self.samples.get(name, {}).values())
        return sum(found) / len(found) if found else None

    def created(self) -> dict[tuple[str, Series], float]:
        """When each series was registered, plus the process start: what a restart changes."""
        return {
            (name, labels): value
            for name, series in self.samples.items()
            if name.endswith("_created") or name == "process_start_time_seconds"
            for labels, value in series.items()
        }

    def cache_config(self) -> dict[str, str]:
        """The labels of vllm:cache_config_info: KV pool, block size, prefix caching."""
        for labels in self.samples.get("vllm:cache_config_info", {}):
            return dict(labels)
        return {}

    def speculates(self) -> bool:
        """Whether the engine exposes speculation counters at all; without a speculative config they are absent."""
        return bool(self.series("drafts"))

    def _mine(self, labels: Series) -> bool:
        name = dict(labels).get("model_name")
        return self.model is None or name is None or name == self.model


def parse_metrics(text: str, model: str | None = None) -> Scrape:
    """A scrape from exposition text. BenchError where it is not Prometheus text."""
    from prometheus_client.parser import text_string_to_metric_families

    samples: dict[str, dict[Series, float]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for s in family.samples:
                samples.setdefault(s.name, {})[tuple(sorted(s.labels.items()))] = float(s.value)
    except (ValueError, KeyError, IndexError) as err:
        raise BenchError("/metrics is not in the Prometheus text format", seen=f"{err}: {text[:80]!r}") from err
    return Scrape(samples, model, text)


@dataclass(frozen=True)
class Acceptance:
    """Drafts D, proposed P and accepted A tokens (bonus excluded), accepted by draft position."""

    drafts: int
    proposed: int
    accepted: int
    per_position: tuple[int, ...] = ()
    source: Literal["counters", "requests", "gauge"] = "counters"

    @property
    def length(self) -> float | None:
        """Pooled acceptance length 1 + A / D; None without a draft."""
        return 1 + self.accepted / self.drafts if self.drafts else None

    @property
    def rate(self) -> float | None:
        """A / P. Depends on K: not comparable across K."""
        return self.accepted / self.proposed if self.proposed else None

    @property
    def positions(self) -> tuple[float, ...]:
        """Unconditional rate of each draft position: accepted there over all drafts. 1 + their sum is the length."""
        return tuple(a / self.drafts for a in self.per_position) if self.drafts else ()

    @property
    def conditional(self) -> tuple[float | None, ...]:
        """Rate of a position given the one before it: a cliff to 0 is a bug, a slow decay is honest."""
        before = (float(self.drafts), *map(float, self.per_position))
        return tuple(a / b if b else None for a, b in zip(self.per_position, before, strict=False))

    @property
    def k_seen(self) -> float | None:
        """Draft tokens per draft: what K the engine really runs."""
        return self.proposed / self.drafts if self.drafts else None

    def __add__(self, other: Acceptance) -> Acceptance:
        return Acceptance(
            self.drafts + other.drafts, self.proposed + other.proposed, self.accepted + other.accepted,
            tuple(a + b for a, b in zip_longest(self.per_position, other.per_position, fillvalue=0)), self.source,
        )  # fmt: skip


@dataclass(frozen=True)
class Delta:
    """What the counters moved by over one block, and what speaks against believing them."""

    acceptance: Acceptance | None
    generated: int | None
    prompt: int | None
    finished: int | None
    preempted: int | None
    prefix_hits: int | None
    step_s: float | None
    per_engine: Mapping[str, Acceptance] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def delta(before: Scrape, after: Scrape) -> Delta:
    """Differences per (name, full label set), then summed over engines. A reset is a problem, never a number."""
    problems = list(_resets(before, after))
    if problems:
        return Delta(None, None, None, None, None, None, None, problems=tuple(problems))
    acceptance = None
    per_engine: dict[str, Acceptance] = {}
    if after.speculates():
        engines = sorted({_engine(labels) for labels in after.series("drafts")})
        per_engine = {e: _acceptance(before, after, e) for e in engines}
        acceptance = _acceptance(before, after, None)
        problems += _contradictions(acceptance)
    steps = _moved(before, after, "steps")
    seconds = _difference(before, after, "step_seconds", None)
    return Delta(
        acceptance, _moved(before, after, "generated"), _moved(before, after, "prompt"),
        _moved(before, after, "succeeded"), _moved(before, after, "preempted"), _moved(before, after, "prefix_hits"),
        seconds / steps if seconds is not None and steps else None, per_engine, tuple(problems),
    )  # fmt: skip


def of_request(row: Mapping[str, object]) -> Acceptance | None:
    """Acceptance of one request by its `metrics.speculative_decoding`; None where the server does not tell.

    The per-position counts come from the histogram: a step that accepted j tokens accepted positions 0 to j-1.
    """
    steps, accepted = row.get("num_spec_steps"), row.get("num_accepted_draft_tokens")
    proposed, histogram = row.get("num_draft_tokens"), row.get("acceptance_histogram")
    if not (isinstance(steps, int) and isinstance(accepted, int) and isinstance(proposed, int)):
        return None
    positions: tuple[int, ...] = ()
    if isinstance(histogram, list) and all(isinstance(h, int) for h in histogram):
        positions = tuple(sum(histogram[i + 1 :]) for i in range(len(histogram) - 1))
    return Acceptance(steps, proposed, accepted, positions, "requests")


def from_requests(rows: Sequence[Mapping[str, object]]) -> Acceptance | None:
    """Acceptance of all requests together: free of other traffic, warm-up and restarts. None if one does not tell."""
    total: Acceptance | None = None
    for row in rows:
        one = of_request(row)
        if one is None:
            return None
        total = one if total is None else total + one
    return total


def _resets(before: Scrape, after: Scrape) -> Iterator[str]:
    old, new = before.created(), after.created()
    if changed := [name for (name, labels), v in old.items() if new.get((name, labels), v) != v]:
        yield f"the server restarted inside the block ({changed[0]} changed)"
    for counter, name in _COUNTERS.items():
        now, was = after.series(counter), before.series(counter)
        if not all(map(math.isfinite, (*now.values(), *was.values()))):
            yield f"{name} is no number"
            continue
        for labels, value in was.items():
            if labels not in now:
                yield f"a series of {name} vanished inside the block"
                break
            if now[labels] < value:
                yield f"{name} fell from {value:.0f} to {now[labels]:.0f}: the counters were reset"
                break


def _contradictions(a: Acceptance) -> Iterator[str]:
    if a.accepted > a.proposed:
        yield f"more draft tokens accepted ({a.accepted}) than proposed ({a.proposed})"
    if a.per_position and sum(a.per_position) != a.accepted:
        yield f"accepted per position sums to {sum(a.per_position)}, the total says {a.accepted}"


def _acceptance(before: Scrape, after: Scrape, engine: str | None) -> Acceptance:
    def moved(counter: str) -> int:
        return round(_difference(before, after, counter, engine) or 0)

    at: dict[int, float] = {}
    old = before.series("per_position")
    for labels, value in after.series("per_position").items():
        place = dict(labels).get("position", "")
        if (engine is None or _engine(labels) == engine) and place.isdigit():
            at[int(place)] = at.get(int(place), 0.0) + value - old.get(labels, 0.0)
    positions = tuple(round(at.get(i, 0.0)) for i in range(max(at) + 1)) if at else ()
    return Acceptance(moved("drafts"), moved("proposed"), moved("accepted"), positions)


def _engine(labels: Series) -> str:
    return dict(labels).get("engine", "0")


def _difference(before: Scrape, after: Scrape, counter: str, engine: str | None) -> float | None:
    now = after.series(counter)
    if not now:
        return None
    old = before.series(counter)
    return sum(v - old.get(labels, 0.0) for labels, v in now.items() if engine is None or _engine(labels) == engine)


def _moved(before: Scrape, after: Scrape, counter: str) -> int | None:
    value = _difference(before, after, counter, None)
    return None if value is None else round(value)
