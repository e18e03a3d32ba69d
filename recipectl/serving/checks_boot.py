"""Gates over what a server says of itself: ranks, log lines, names, pool, runner, graphs, taps, K. PURE."""

from __future__ import annotations

import re
from collections.abc import Sequence

from recipectl.recipe.lane import LogLine
from recipectl.serving.gates import Context, Result, passed, skipped
from recipectl.serving.signatures import classify, diagnose


def alive(c: Context) -> Sequence[Result]:
    """Every rank's process or container runs."""
    c.look()
    if c.gone():
        return [Result("alive", "FAIL", c.dead() or "a rank is gone", fix="recipectl logs")]
    return [passed("alive", f"{len(c.ranks)} rank(s) run")]


def _lines_for(c: Context, line: LogLine) -> list[tuple[int, Sequence[str]]]:
    return [(r.rank, r.log) for r in c.ranks if line.ranks == "all" or r.rank == 0]


def required_log(c: Context) -> Sequence[Result]:
    """The lines without which the recipe does not run as it should, on the ranks that print them."""
    out = []
    for line in c.plan.gates.required_log:
        pattern = re.compile(line.pattern)
        missing = [rank for rank, log in _lines_for(c, line) if not any(pattern.search(raw) for raw in log)]
        if missing:
            ranks = ", ".join(map(str, missing))
            out.append(Result("required-log", "FAIL", f"rank {ranks} never logged it: {line.meaning}",
                              seen="no such line", expected=line.pattern, fix=line.fix))  # fmt: skip
    if not c.plan.gates.required_log:
        return [skipped("required-log", "the recipe requires no line")]
    return out or [passed("required-log", f"{len(c.plan.gates.required_log)} required line(s) found")]


def forbidden_log(c: Context) -> Sequence[Result]:
    """No forbidden line of the recipe and no fatal signature in any rank's log."""
    for line in c.plan.gates.forbidden_log:
        pattern = re.compile(line.pattern)
        for rank, log in _lines_for(c, line):
            if found := next((raw for raw in log if pattern.search(raw)), None):
                return [Result("forbidden-log", "FAIL", f"rank {rank}: {line.meaning}", seen=found.strip()[:200],
                               expected=f"no {line.pattern}", fix=line.fix)]  # fmt: skip
    for state in c.ranks:
        bad = any((s := classify(raw)) is not None and s.kind in ("fatal", "symptom") for raw in state.log)
        if bad and (cause := diagnose(state.log)):
            return [Result("forbidden-log", "FAIL", f"rank {state.rank}: {cause.meaning}",
                           seen=f"log line {cause.number}: {cause.line}", fix=cause.fix)]  # fmt: skip
    return [passed("forbidden-log", "no fatal line on any rank")]


def health(c: Context) -> Sequence[Result]:
    """/health answers 200: the least a server says, and no proof."""
    status = c.probes.health()
    if status == 200:
        return [passed("health", "/health answers 200")]
    return [Result("health", "FAIL", "/health does not answer 200", seen=f"HTTP {status}" if status else "no answer",
                   expected="HTTP 200")]  # fmt: skip


def served_name(c: Context) -> Sequence[Result]:
    """The server serves the model name of the plan, not another server on that port."""
    names = c.probes.models()
    if c.plan.served_name in names:
        return [passed("model", f"serves {c.plan.served_name}")]
    return [
        Result(
            "model",
            "FAIL",
            "the server serves another model",
            seen=", ".join(names) or "none",
            expected=c.plan.served_name,
            fix="another server may sit on this port: recipectl status",
        )
    ]


def exposure(c: Context) -> Sequence[Result]:
    """With --expose, a call without the key must be refused."""
    if not c.exposed:
        return [skipped("unauthorized", "listens on loopback only, no key")]
    status = c.probes.status_without_key()
    if status == 401:
        return [passed("unauthorized", "a call without the API key gets 401")]
    return [Result("unauthorized", "FAIL", "a call without the API key is answered", seen=f"HTTP {status}",
                   expected="HTTP 401", fix="recipectl stop; the engine did not take the key")]  # fmt: skip


def kv_pool(c: Context) -> Sequence[Result]:
    """The KV pool, the minimum over ranks, holds what the recipe needs, or at least one request of full length."""
    pools = {rank: f.kv_pool_tokens for rank, f in c.facts.items() if f.kv_pool_tokens is not None}
    needed = c.plan.gates.kv_pool_tokens_min or c.plan.max_model_len
    if not pools:
        if c.plan.engine == "sglang":
            return [skipped("kv-pool", "SGLang does not log its pool in tokens")]
        return [Result("kv-pool", "FAIL", "no rank logged its KV pool", expected="a line `KV cache size: N tokens`")]
    smallest = min(pools.values())
    rank = min(pools, key=lambda r: pools[r])
    if needed is not None and smallest < needed:
        return [
            Result(
                "kv-pool",
                "FAIL",
                f"the KV pool of rank {rank} is too small",
                seen=f"{smallest} tokens",
                expected=f"at least {needed} tokens",
                fix="free memory on that host: recipectl doctor",
            )
        ]
    return [passed("kv-pool", f"{smallest} tokens" + (f", {needed} needed" if needed else ""))]


def runner(c: Context) -> Sequence[Result]:
    """The V2 model runner where the recipe needs it (DFlash2 does)."""
    if not c.plan.gates.v2_runner:
        return [skipped("v2-runner", "not asked for")]
    without = [r.rank for r in c.ranks if not c.facts[r.rank].v2_runner]
    if without:
        return [Result("v2-runner", "FAIL", f"rank {without[0]} does not use the V2 model runner",
                       expected="Using V2 Model Runner")]  # fmt: skip
    return [passed("v2-runner", "V2 on every rank")]


def graphs(c: Context) -> Sequence[Result]:
    """CUDA graphs are live on every rank, where asked for: launchers have said so while the server ran eager."""
    if not c.plan.gates.graphs:
        return [skipped("graphs", "not asked for")]
    without = [r.rank for r in c.ranks if not c.facts[r.rank].graphs]
    if without:
        return [Result("graphs", "FAIL", f"rank {without[0]} captured no CUDA graphs",
                       expected="Graph capturing finished in", fix="look for enforce_eager in the argv")]  # fmt: skip
    return [passed("graphs", "captured on every rank")]


def taps(c: Context) -> Sequence[Result]:
    """The drafter reads the target layers it was trained on. The engine logs each one higher than config.json."""
    logged = next((f.taps for f in c.facts.values() if f.taps), None)
    if c.plan.taps is None or c.plan.speculative is None:
        return [skipped("taps", "the drafter states no taps")]
    expected = tuple(t + 1 for t in c.plan.taps)
    if logged is None:
        return [skipped("taps", "the engine does not log them")]
    if logged != expected:
        return [Result("taps", "FAIL", "the drafter reads other layers than it was trained on", seen=str(logged),
                       expected=str(expected))]  # fmt: skip
    return [passed("taps", f"{logged} (logged one higher than {c.plan.taps})")]


def k_in_log(c: Context) -> Sequence[Result]:
    """The K that the engine says it runs is the plan's."""
    logged = next((f.k for f in c.facts.values() if f.k is not None), None)
    if c.plan.k == logged:
        return [passed("k-log", f"K {logged} in the boot log" if logged else "no speculation, none logged")]
    if logged is None:
        if c.plan.engine == "sglang":
            return [skipped("k-log", "SGLang does not log K in this form")]
        return [Result("k-log", "FAIL", "the boot log shows no speculation", expected=f"K {c.plan.k}")]
    return [Result("k-log", "FAIL", "the server runs another K", seen=f"K {logged}", expected=f"K {c.plan.k}")]
