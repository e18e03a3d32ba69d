"""A bench result as one self-contained HTML page: tables, plots, void blocks, what it takes to repeat it. PURE."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from recipectl import provenance
from recipectl.bench import report
from recipectl.bench.protocol import FORMULAS
from recipectl.bench.result import Measured, Result
from recipectl.bench.svg import Line, Plot, draw

TIMELINES = 4
_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:1180px;margin:2em auto;padding:0 1em;color:#1a1a1a;background:#fff}
h1{font-size:1.5em;margin-bottom:.2em}h2{font-size:1.2em;margin-top:1.8em;border-bottom:1px solid #ddd}
table{border-collapse:collapse;margin:.8em 0}th,td{padding:.3em .8em;text-align:right;border-bottom:1px solid #e4e4e4}
th:first-child,td:first-child{text-align:left}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));
gap:1.2em}svg{width:100%;height:auto}.title{font-size:14px;font-weight:600}.tick{font-size:11px;fill:#555}
.axis{font-size:12px;fill:#333}.end{text-anchor:end}.mid{text-anchor:middle}.grid{stroke:#e4e4e4}
.legend{font-size:13px}.legend span{margin-right:1.2em;white-space:nowrap}.legend i{display:inline-block;width:.8em;
height:.8em;margin-right:.35em}.bad{color:#a40000}dt{font-weight:600}dd{margin:0 0 .4em 1.2em}pre{white-space:pre-wrap;
overflow-wrap:anywhere;background:#f6f6f6;padding:.7em;font-size:12px}
"""


def page(result: Result, chunks: Sequence[Mapping[str, Any]] = ()) -> str:
    """The whole page. `chunks` are rows of chunks.jsonl, for the timelines."""
    s = result.server
    title = " ".join(x for x in ("Bench", result.recipe, result.lane, result.variant) if x)
    head = ", ".join(x for x in (s.model, s.engine, s.version, f"K {s.k}" if s.k else None, result.started) if x)
    partial = '<p class="bad">PARTIAL: the run broke off; these are the finished blocks.</p>' if result.partial else ""
    body = "\n".join(_measured(result, m, chunks) for m in result.measured)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
        f"<h1>{escape(title)}</h1><p>{escape(head)}</p>{partial}{body}{_remarks(result)}{_facts(result)}</html>\n"
    )


def read_chunks(path: Path) -> list[dict[str, Any]]:
    """The rows of chunks.jsonl that timelines need; [] where the folder is gone. A torn last line is left out."""
    rows = []
    try:
        with path.open() as handle:
            for line in handle:
                if line.endswith("\n"):
                    rows.append({k: v for k, v in json.loads(line).items() if k != "text"})
    except OSError:
        return []
    return rows


def _measured(result: Result, m: Measured, chunks: Sequence[Mapping[str, Any]]) -> str:
    p = m.protocol
    how = (f"{p.name} v{p.version}, {p.transport}, {FORMULAS[p.formula]}, temperature {p.sampling.temperature:g}, "
           f"max_tokens {p.max_tokens}, {p.rounds} rounds, digest {m.digest[:12]}")  # fmt: skip
    said = [note for cell in m.cells for note in report.cell_notes(result, cell)]
    notes = f"<p>{'<br>'.join(escape(note) for note in said)}</p>" if said else ""
    plots = "".join(f"<figure>{svg}</figure>" for svg in (*_over_c(m), _positions(m), *_timelines(m, chunks)) if svg)
    return (f"<h2>{escape(p.name)}</h2><p>{escape(p.summary)}<br>{escape(how)}</p>{_table(result, m)}{notes}"
            f'<div class="plots">{plots}</div>')  # fmt: skip


def _table(result: Result, m: Measured) -> str:
    head = "".join(f"<th>{escape(h)}</th>" for h in report.HEAD)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(v)}</td>" for v in report.row(result, m, cell)) + "</tr>" for cell in m.cells
    )
    return f"<table><tr>{head}</tr>{rows}</table>"


def _over_c(m: Measured) -> list[str]:
    """tok/s and step time over concurrency, one line a phase."""
    wanted = (("tok/s per stream and aggregate", "tok/s", ("tok_s", "aggregate")), ("step time", "ms", ("step_ms",)))
    out = []
    for title, unit, names in wanted:
        lines = []
        for phase in m.protocol.phases:
            for name in names:
                points = [(float(c.concurrency), v) for c in m.cells
                          if c.phase == phase and (v := getattr(c.rates, name)) is not None]  # fmt: skip
                if points:
                    lines.append(Line(f"{phase} {name}", points, dashed=name == "aggregate"))
        if lines:
            ticks = sorted({p[0] for line in lines for p in line.points})
            out.append(draw(Plot(f"{title} over c", "concurrent streams", unit, lines, ticks)))
    return out


def _positions(m: Measured) -> str:
    lines = [
        Line(f"{c.phase} c={c.concurrency}", [(i + 1.0, r) for i, r in enumerate(c.acceptance.positions)])
        for c in m.cells
        if c.acceptance and c.acceptance.positions
    ]
    longest = max((len(line.points) for line in lines), default=0)
    ticks = [float(i + 1) for i in range(longest)]
    return draw(Plot("acceptance by draft position", "position", "accepted / drafts", lines, ticks, top=1.0, low=1.0))


def _timelines(m: Measured, chunks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Tokens over time of the first streams at the highest concurrency: steps, stalls and merged reads show."""
    out = []
    top = max((c.concurrency for c in m.cells), default=0)
    for phase in m.protocol.phases:
        rows = [r for r in chunks if r["protocol"] == m.protocol.name and r["phase"] == phase and r["c"] == top
                and r["round"] == 0 and r["wave"] == 0 and r["chunks"]]  # fmt: skip
        start = min((r["t_request"] for r in rows), default=0)
        lines = []
        for r in rows[:TIMELINES]:
            total, points = 0, [((r["t_request"] - start) / 1e9, 0.0)]
            for t, n in r["chunks"]:
                total += n or 1
                points.append(((t - start) / 1e9, float(total)))
            lines.append(Line(f"stream {r['stream'] + 1}", points))
        if lines:
            unit = "tokens" if all(n for r in rows for _, n in r["chunks"]) else "chunks"
            title = f"{phase} c={top}: chunk timeline of round 1"
            out.append(draw(Plot(title, "seconds since the request", unit, lines, steps=True, dots=False)))
    return out


def _remarks(result: Result) -> str:
    lines = [line for line in report.remarks(result) if line]
    items = "".join(
        f"<li{' class=bad' if line.startswith(('VOID', 'failed', 'text')) else ''}>{escape(line)}</li>"
        for line in lines
    )
    return f"<h2>Validity</h2><ul>{items or '<li>no block is void, no stream failed</li>'}</ul>"


def _facts(result: Result) -> str:
    s = result.server
    facts: dict[str, Any] = {
        "tool": result.tool, "client and rig": json.dumps(result.rig), "speculative config": json.dumps(s.speculative),
        "engine argv": " ".join(s.argv), "engine log sha256": s.log_sha256, "KV cache": json.dumps(s.cache_config),
        "lock": result.resolution, **{f"formula: {k}": v for k, v in result.formulas.items()},
    }  # fmt: skip
    prompts = {
        f"{m.protocol.name}/{name} {q.id}": f"{q.text} (sha256 {q.sha256[:12]})"
        for m in result.measured
        for name, phase in m.protocol.phases.items()
        for q in phase.prompts
    }
    rows = "".join(
        f"<dt>{escape(k)}</dt><dd>{escape(str(v))}</dd>"
        for k, v in {**facts, **prompts}.items()
        if v not in (None, "", "{}")
    )
    credit = "".join(f"<li>{escape(line)}</li>" for line in provenance.summary(result.notes))
    whose = f"<h2>Licenses and credits</h2><ul>{credit}</ul>" if credit else ""
    return f"<h2>To repeat it</h2><dl>{rows}</dl>{whose}"
