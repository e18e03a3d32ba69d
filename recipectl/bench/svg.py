"""Small charts as inline SVG, so that a report is one file without a script and without a network. PURE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 560, 280
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 34, 46
# Colours that stay apart for colour-blind readers (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


@dataclass(frozen=True)
class Line:
    """One series of (x, y) points."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


@dataclass(frozen=True)
class Plot:
    """Title, axis names, series. `ticks` are x values to label; `top` fixes the upper end of y; both axes start at 0
    unless `low` says where x begins. `steps` draws levels instead of slopes."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    ticks: Sequence[float] = ()
    top: float | None = None
    low: float = 0.0
    steps: bool = False
    dots: bool = True


def draw(plot: Plot) -> str:
    """The plot as an SVG element."""
    points = [p for line in plot.lines for p in line.points]
    if not points:
        return ""
    x_low, x_high = plot.low, max(p[0] for p in points)
    x_high = x_high if x_high > x_low else x_low + 1
    x_high = x_high if plot.ticks else nice(x_high)
    y_high = plot.top or nice(max(p[1] for p in points))

    def px(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (x - x_low) / (x_high - x_low)

    def py(y: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / y_high

    out = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(plot.title)}">',
           f'<text x="{LEFT}" y="18" class="title">{escape(plot.title)}</text>']  # fmt: skip
    for i in range(5):
        y = y_high * i / 4
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{py(y):.1f}" y2="{py(y):.1f}" class="grid"/>')
        out.append(f'<text x="{LEFT - 6}" y="{py(y) + 4:.1f}" class="tick end">{y:.4g}</text>')
    for x in plot.ticks or [x_low + (x_high - x_low) * i / 4 for i in range(5)]:
        out.append(f'<text x="{px(x):.1f}" y="{HEIGHT - BOTTOM + 16}" class="tick mid">{x:.3g}</text>')
    out.append(f'<text x="{(WIDTH + LEFT) / 2:.0f}" y="{HEIGHT - 10}" class="axis mid">{escape(plot.x)}</text>')
    middle = (HEIGHT - BOTTOM + TOP) / 2
    out.append(f'<text x="14" y="{middle:.0f}" class="axis mid" transform="rotate(-90 14 {middle:.0f})">'
               f"{escape(plot.y)}</text>")  # fmt: skip
    for n, line in enumerate(plot.lines):
        colour = COLOURS[n % len(COLOURS)]
        placed = [(px(x), py(y)) for x, y in line.points]
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        out.append(f'<path d="{path(placed, plot.steps)}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        if plot.dots:
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
    out.append("</svg>")
    return "\n".join([*out, legend([line.name for line in plot.lines])])


def path(points: Sequence[tuple[float, float]], steps: bool) -> str:
    """The `d` attribute through the points."""
    if steps:
        rest = "".join(f"H{x:.1f}V{y:.1f}" for x, y in points[1:])
    else:
        rest = "".join(f"L{x:.1f},{y:.1f}" for x, y in points[1:])
    return f"M{points[0][0]:.1f},{points[0][1]:.1f}{rest}"


def legend(names: Sequence[str]) -> str:
    """Names with their colours, as HTML below the plot: long names wrap there."""
    items = [
        f'<span><i style="background:{COLOURS[n % len(COLOURS)]}"></i>{escape(name)}</span>'
        for n, name in enumerate(names)
    ]
    return f'<div class="legend">{"".join(items)}</div>'


def nice(value: float) -> float:
    """The next round number above: 1, 2, 2.5, 4, 5 or 8 times a power of ten (all divide well by four)."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 4, 5, 8, 10) if step * power >= value)
