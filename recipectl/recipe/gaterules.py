"""Gates of a recipe that could never pass, or never fail. PURE."""

from __future__ import annotations

import re
from collections.abc import Iterator

from recipectl.recipe.lane import Gates, Lane
from recipectl.recipe.merge import Path as At
from recipectl.recipe.shape import nearest

Said = tuple[str, At, str, str | None]
# As the server's gates are called (a test holds this to `serving.checks`); `generation` is also generation-c1, -c2, ...
NAMES = (
    "alive", "required-log", "forbidden-log", "health", "model", "unauthorized", "kv-pool", "v2-runner", "graphs",
    "taps", "k-log", "generation", "counting", "counters", "k-metrics", "acceptance", "prose-acceptance", "temperature",
    "needle",
)  # fmt: skip


def check(at: At, lane: Lane) -> Iterator[Said]:
    """Findings R010 and R011 of one lane."""
    gates, here = lane.gates, (*at, "gates")
    yield from _patterns(here, gates)
    seqs, longest = lane.args.get("max_num_seqs"), lane.args.get("max_model_len")
    if isinstance(seqs, int) and max(gates.concurrency) > seqs:
        yield (
            "R011", (*here, "concurrency"), f"{max(gates.concurrency)} streams on max_num_seqs {seqs} would queue",
            f"gate at {seqs} at most",
        )  # fmt: skip
    top = (lane.speculative.k or 0) + 1
    for name, wanted in gates.acceptance.items():
        low, high = wanted.min or 1, wanted.max or top
        if not low <= high <= top:
            yield (
                "R011", (*here, "acceptance", name), f"{low:g} to {high:g} is no range within 1 to {top} (K + 1)",
                "acceptance length counts tokens per verify step: accepted drafts plus one",
            )  # fmt: skip
    if gates.needle_tokens and isinstance(longest, int) and 0 < longest <= gates.needle_tokens:
        yield (
            "R011", (*here, "needle_tokens"), f"a prompt of {gates.needle_tokens} tokens on max_model_len {longest}",
            "leave room for the prompt and its answer",
        )  # fmt: skip
    for called, members in gates.sets.items():
        for index, member in enumerate(members):
            if re.sub(r"\Ageneration-c\d+\Z", "generation", member) not in NAMES:
                fix = nearest(member, NAMES).replace("keys", "names")
                yield "R011", (*here, "sets", called, index), f"no gate is called {member}", fix


def _patterns(here: At, gates: Gates) -> Iterator[Said]:
    for kind in ("required_log", "forbidden_log"):
        for index, line in enumerate(getattr(gates, kind)):
            where = (*here, kind, index)
            try:
                if re.compile(line.pattern).search(""):
                    yield "R010", where, "the pattern is found in every line", "write what the line says"
            except re.error as err:
                yield "R010", where, f"not a regular expression: {err}", "escape ( ) [ ] . with a backslash"
