"""Whether published numbers agree with each other: arithmetic that holds for every speculative server. PURE.

Acceptance length L is tokens per verify step: 1 + accepted drafts. So 1 <= L <= K + 1, L = 1 + K x acceptance rate,
and the per-position acceptances sum to L - 1. It held on every published row that was checked (vLLM's own metrics:
1 + accepted / drafts).
"""

from __future__ import annotations

from collections.abc import Iterator

from recipectl.recipe.lane import Lane, PublishedRow
from recipectl.recipe.merge import Path

Said = tuple[str, Path, str, str | None]
# Half a unit of the second decimal, for each rounded term: cards print .74 .54 .38.
ROUNDING = 0.005


def check(at: Path, lane: Lane) -> Iterator[Said]:
    """Findings R008 for the published rows of a lane. A row without K is held against the lane's."""
    for b, bench in enumerate(lane.bench):
        for r, row in enumerate(bench.published):
            k = row.k if row.k is not None else None if row.variant else lane.speculative.k
            path = (*at, "bench", b, "published", r)
            for message in _disagreements(row, k):
                yield "R008", path, message, "check the row against its source, or add k where it ran with another K"


def _disagreements(row: PublishedRow, k: int | None) -> Iterator[str]:
    length, positions = row.acceptance_length, row.per_position
    if length is not None and k is not None and not 1 - ROUNDING <= length <= k + 1 + ROUNDING:
        yield f"acceptance length {length:g} is not within 1 to {k + 1} (K {k})"
    if positions is not None and k is not None and len(positions) != k:
        yield f"{len(positions)} positions for K {k}"
    if positions is not None and length is not None:
        total = 1 + sum(positions)
        if abs(total - length) > ROUNDING * (len(positions) + 1) + 1e-9:
            yield f"the positions sum to acceptance length {total:.3f}, not {length:g}"
    if row.acceptance_rate is not None and length is not None and k is not None:
        total = 1 + k * row.acceptance_rate
        if abs(total - length) > ROUNDING * (k + 1) + 1e-9:
            yield f"rate {row.acceptance_rate:g} gives acceptance length {total:.3f} at K {k}, not {length:g}"
