"""A bench result as a terminal table and as a Markdown row for a model card. PURE: text in, text out."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from recipectl import provenance
from recipectl.bench.result import Cell, Measured, Result

HEAD = ("phase", "c", "tok/s", "aggregate", "acceptance length", "rate", "step ms", "rounds")


def lines(result: Result) -> list[str]:
    """The whole report: tables, acceptance by position, what was void, what the server lacks."""
    found = [line for m in result.measured for line in _measured(result, m)]
    return [*_title(result), *found, *remarks(result), *provenance.summary(result.notes)]


def markdown(result: Result) -> str:
    """Rows to paste into a model card, with what a reader needs to repeat them."""
    out = ["| phase | c | tok/s | aggregate | acceptance length (of K+1) | step ms |", "|---" * 6 + "|"]
    for m in result.measured:
        for cell in m.cells:
            _, *figures = row(result, m, cell)
            out.append("| " + " | ".join([m.place(cell.phase), *figures[:4], figures[5]]) + " |")
    how = "; ".join(f"{m.protocol.name} v{m.protocol.version} ({m.digest[:12]})" for m in result.measured)
    s = result.server
    engine = " ".join(x for x in (s.engine, s.version) if x) or "engine not stated"
    return "\n".join(
        [*out, "", f"{s.model} on {engine}, K {_k(result)}; protocols {how}; {result.tool}, {result.started}.", "",
         *(f"- {line}" for line in provenance.summary(result.notes))]
    ).rstrip()  # fmt: skip


def _title(result: Result) -> Iterator[str]:
    s = result.server
    what = " ".join(x for x in (result.recipe, result.lane, result.variant) if x) or s.url
    engine = " ".join(x for x in (s.engine, s.version) if x) or "engine not stated"
    yield f"{what}: {s.model}, {engine}, K {_k(result)}, {result.started}" + (" (PARTIAL)" if result.partial else "")


def _measured(result: Result, m: Measured) -> Iterator[str]:
    p = m.protocol
    yield ""
    yield f"{p.name} v{p.version}: {p.transport}, {p.formula}, temperature {p.sampling.temperature:g}, " \
          f"max_tokens {p.max_tokens}, {p.rounds} rounds, digest {m.digest[:12]}"  # fmt: skip
    if not m.cells:
        yield "  no finished block"
        return
    yield from table(HEAD, [row(result, m, cell) for cell in m.cells])
    for cell in m.cells:
        if (a := cell.acceptance) and a.positions:
            where = f"{cell.phase} c={cell.concurrency}"
            yield f"  {where} by position: " + " ".join(f"{r:.3f}" for r in a.positions)
        yield from (f"  {note}" for note in cell_notes(result, cell))


def cell_notes(result: Result, cell: Cell) -> Iterator[str]:
    """What the columns of a cell do not hold."""
    where = f"{cell.phase} c={cell.concurrency}"
    if (a := cell.acceptance) and a.low is not None and a.high is not None:
        yield f"{where}: acceptance length {a.length:.3f}, 95 % interval {a.low:.3f} to {a.high:.3f} over the prompts"
    if a and a.source == "gauge":
        yield f"{where}: acceptance is the median of SGLang's gauge, sampled during decode; it is no count"
    if cell.void_rounds or cell.failed_streams:
        yield f"{where}: {cell.void_rounds} rounds are void, {cell.failed_streams} streams failed"
    if cell.count:
        yield f"{where} counting: {cell.count}"
    if cell.queueing:
        yield f"{where}: above max_num_seqs {result.server.max_num_seqs}, so requests queue"


def table(head: tuple[str, ...], rows: list[list[str]]) -> Iterator[str]:
    """Columns aligned, with a rule under the head."""
    cells = [list(head), *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for n, row in enumerate(cells):
        yield "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        if n == 0:
            yield "  ".join("-" * w for w in widths)


def row(result: Result, m: Measured, cell: Cell) -> list[str]:
    """One cell as the table shows it, under `HEAD`."""
    r = cell.rates
    k = result.server.k or (len(cell.acceptance.positions) if cell.acceptance else 0)
    aggregate = r.agg_run if m.protocol.formula == "output-over-wall" else r.aggregate or r.agg_decode
    return [
        cell.phase, str(cell.concurrency), number(r.tok_s, 1), number(aggregate, 1),
        f"{number(r.acceptance_length, 2)} of {k + 1}" if r.acceptance_length else "-",
        number(cell.acceptance.rate if cell.acceptance else None, 3), number(r.step_ms, 1),
        f"{cell.rounds} of {cell.rounds + cell.void_rounds}" if cell.void_rounds else str(cell.rounds),
    ]  # fmt: skip


def remarks(result: Result) -> Iterator[str]:
    """What is void, failed or missing, one line each."""
    yield ""
    for m in result.measured:
        for b in m.blocks:
            where = f"{m.place(b.phase)} c={b.concurrency} round {b.round + 1}"
            yield from (f"VOID {where}: {reason}" for reason in b.void)
            for i, r in enumerate(b.requests):
                if r.failure:
                    yield f"failed {where} stream {i + 1} ({r.prompt}): {r.failure}"
        yield from _texts(m)
        yield from _clocks(m)
        by_rule: dict[str, list[str]] = {}
        for w in (w for b in m.blocks for w in b.warnings):
            by_rule.setdefault(w.partition(":")[0], []).append(w)
        yield from (f"note {m.protocol.name}: {w[0]} ({len(w)} of {len(m.blocks)} blocks)" for w in by_rule.values())
        if m.protocol.note:
            yield f"note {m.protocol.name}: {m.protocol.note}"
    yield from (f"this server lacks {lack}" for lack in result.server.lacks)
    yield from result.warnings


def _texts(m: Measured) -> Iterator[str]:
    """Texts that look broken, prompt by prompt: a greedy server gives the same one in every round."""
    found: dict[str, list[str]] = {}
    for b in m.blocks:
        for r in b.requests:
            found.setdefault(r.prompt, []).extend(r.text_problems)
    bad = {prompt: problems for prompt, problems in found.items() if problems}
    if bad:
        first, problems = next(iter(bad.items()))
        yield f"text {m.protocol.name}: {len(bad)} prompts got a text that looks broken, first {first}: {problems[0]}"


def _clocks(m: Measured) -> Iterator[str]:
    """What the GPU did meanwhile: a card at half its clock looks like a slow engine."""
    seen = [b.clocks for b in m.blocks]
    low, mid, hot = ([v for c in seen if isinstance(v := c.get(name), (int, float))]
                     for name in ("sm_min_mhz", "sm_median_mhz", "temperature_max_c"))  # fmt: skip
    if mid:
        heat = f", up to {max(hot):.0f} C" if hot else ""
        capped = sum(c.get("power_capped") is True for c in seen)
        cap = f", at its power cap in {capped} of {len(seen)} blocks" if capped else ""
        yield f"clock {m.protocol.name}: SM {min(low):.0f} MHz at least, median {median(mid):.0f}{heat}{cap}"


def number(value: float | None, digits: int) -> str:
    """A figure, or a dash where it cannot be told."""
    return "-" if value is None else f"{value:.{digits}f}"


def _k(result: Result) -> str:
    if result.server.k is not None:
        return str(result.server.k)
    seen = {len(c.acceptance.positions) for m in result.measured for c in m.cells if c.acceptance}
    return ", ".join(f"{k} (seen)" for k in sorted(seen)) if seen else "none"
