"""A run held against the table that a recipe carries, row by row and only under the same protocol. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from recipectl.bench.protocol import Formula
from recipectl.bench.result import Cell, Measured, Result
from recipectl.errors import UsageError
from recipectl.recipe.lane import BenchRef, PublishedRow

# Published rows carry no interval. Two published runs of one configuration differ by up to 7 % (field report 5c).
TOLERANCE = 0.07
LENGTH_TOLERANCE = 0.05
COLUMNS = ("cell", "figure", "published", "measured", "verdict", "source")


@dataclass(frozen=True)
class Row:
    """One published figure and ours. `below` and `above` lie outside the tolerance, or outside a published range."""

    phase: str
    concurrency: int
    figure: str
    published: str
    measured: float
    verdict: Literal["within", "below", "above"]
    source: str
    note: str | None = None

    def row(self) -> tuple[str, ...]:
        """The cells under `COLUMNS`."""
        more = f"; {self.note}" if self.note else ""
        return (f"{self.phase} c={self.concurrency}", self.figure, self.published, f"{self.measured:.4g}", self.verdict,
                f"{self.source}{more}")  # fmt: skip


def against(result: Result, refs: Sequence[BenchRef]) -> list[Row]:
    """Every published figure that has a cell of ours. UsageError where no protocol is shared, with both lists."""
    ours = {m.protocol.name: m for m in result.measured}
    shared = [r for r in refs if r.protocol in ours and r.published]
    if not shared:
        wanted = ", ".join(r.protocol for r in refs if r.published) or "nothing"
        raise UsageError("no published table follows the protocol of this result", seen=", ".join(ours),
                         expected=wanted, next_step=f"recipectl bench --phases {wanted.split(',')[0]}")  # fmt: skip
    out = [
        row
        for ref in shared
        for published in ref.published
        for cell in ours[ref.protocol].cells
        if cell.phase == published.phase and cell.concurrency == (published.concurrency or cell.concurrency)
        for row in _rows(published, cell, ours[ref.protocol])
        if published.variant in (None, result.variant) and published.k in (None, result.server.k)
    ]
    if not out:
        cells = ", ".join(f"{c.phase} c={c.concurrency}" for m in ours.values() for c in m.cells)
        raise UsageError("no published row has a cell in this result", seen=cells)
    return out


def _rows(p: PublishedRow, cell: Cell, m: Measured) -> Iterator[Row]:
    note = None if m.protocol.exact else "prompts reconstructed"
    r = cell.rates
    source = p.evidence[0].source
    a = cell.acceptance
    figures: list[tuple[str, tuple[float, float] | float | None, float | None, float]] = [
        ("tok/s", p.tok_s_range or p.tok_s, r.tok_s, TOLERANCE),
        ("aggregate tok/s", p.aggregate_tok_s, _aggregate(m.protocol.formula, cell), TOLERANCE),
        ("acceptance length", p.acceptance_length, r.acceptance_length, LENGTH_TOLERANCE),
        ("acceptance rate", p.acceptance_rate_range or p.acceptance_rate, a.rate if a else None, LENGTH_TOLERANCE),
    ]
    for figure, wanted, seen, tolerance in figures:
        if wanted is None or seen is None:
            continue
        low, high = wanted if isinstance(wanted, tuple) else (wanted * (1 - tolerance), wanted * (1 + tolerance))
        shown = f"{wanted[0]:g} to {wanted[1]:g}" if isinstance(wanted, tuple) else f"{wanted:g}"
        verdict: Literal["within", "below", "above"] = "below" if seen < low else "above" if seen > high else "within"
        yield Row(m.place(cell.phase), cell.concurrency, figure, shown, seen, verdict, source, note)


def _aggregate(formula: Formula, cell: Cell) -> float | None:
    """The aggregate that the field publishes: decode tokens from the first token to the last, or by the wall."""
    r = cell.rates
    return r.agg_run if formula == "output-over-wall" else r.agg_decode or r.agg_run
