"""Rows as aligned lines of text, fitted into a width. PURE.

A table that does not fit keeps everything: columns named as `below` move to a line of their own beneath each row, and
what is still too wide is wrapped inside its column.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

GAP = "  "
INDENT = "    "
# No column is made narrower than this, or than the first number that lets the table fit.
FLOORS = (24, 16, 8)


def lines(
    headers: Sequence[str], rows: Sequence[Sequence[object]], width: int | None, below: Sequence[str] = ()
) -> Iterator[str]:
    """The lines of a table; `width` None is no limit."""
    cells = [[_text(c) for c in row] for row in rows]
    natural = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    fits = width is None or _total(natural) <= width
    beside = [i for i, h in enumerate(headers) if fits or h not in below]
    widths = _fitted([natural[i] for i in beside], width)
    for index, row in enumerate([list(headers), *cells]):
        yield from _row([row[i] for i in beside], widths)
        rest = "; ".join(row[i] for i in range(len(row)) if i not in beside and row[i])
        yield from (INDENT + line for line in _wrapped(rest, (width or 0) - len(INDENT)) if rest)
        if index == 0:
            yield GAP.join("-" * w for w in widths)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _fitted(natural: list[int], width: int | None) -> list[int]:
    """Column widths: each its floor, and a share of what is left by what it lacks."""
    if width is None or _total(natural) <= width:
        return natural
    floors = natural
    for most in FLOORS:
        floors = [min(n, most) for n in natural]
        if _total(floors) <= width:
            break
    left, lacking = max(0, width - _total(floors)), sum(natural) - sum(floors)
    return [f + (n - f) * left // lacking if lacking else f for n, f in zip(natural, floors, strict=True)]


def _row(cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    wrapped = [_wrapped(cell, w) for cell, w in zip(cells, widths, strict=True)]
    for index in range(max(map(len, wrapped))):
        parts = [part[index] if index < len(part) else "" for part in wrapped]
        yield GAP.join(p.ljust(w) for p, w in zip(parts, widths, strict=True)).rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    """Names and paths are broken only where a line has no other place to break."""
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, max(1, width), break_on_hyphens=False)
