"""The result file as a codec, its exports and its pages."""

from __future__ import annotations

import datetime as dt
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from recipectl.bench import export, files, html, protocol, published, report, run, selftest, svg
from recipectl.bench.mock import Config
from recipectl.bench.result import Result, load
from recipectl.console import Console
from recipectl.errors import UsageError
from recipectl.recipe.base import Evidence
from recipectl.recipe.lane import BenchRef, PublishedRow
from tests.bench.conftest import text_of


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """One short real run against the mock server."""
    folder = tmp_path_factory.mktemp("run") / "out"
    wanted = [protocol.with_settings(protocol.load(n), {"rounds": 2, "concurrency": [1, 2], "max_tokens": 60}, folder)
              for n in ("counting", "sfxnz-legacy")]  # fmt: skip
    with selftest.mock_server(Config(step_s=0.005)) as url:
        target = run.Target(url=url, k=7, shares_cpu=True, recipe="demo", lane="cpu")
        return run.run(target, wanted, out=folder, console=Console(quiet=True)), folder


def test_it_reads_back_what_it_wrote(measured: tuple[Result, Path]) -> None:
    result, folder = measured
    assert load(result.dump(), "x") == result == files.read(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d | {"schema": "recipectl.bench/2"}, "not a bench result"),
        (lambda d: {"schema_version": "1.4", "aiperf_version": "0.13.0"}, "not a bench result"),
        (lambda d: d | {"surprise": 1}, "damaged"),
        (lambda d: d | {"seed": "7"}, "damaged"),
        (lambda d: d["measured"][0]["cells"][0]["rates"].update(tok_s=float("nan")) or d, "not JSON"),
        (lambda d: d["measured"][0]["blocks"][0]["requests"][0].update(ttft_s=float("inf")) or d, "not JSON"),
    ],
)
def test_files_that_are_none(measured: tuple[Result, Path], change: object, words: str) -> None:
    data = json.loads(measured[0].dump())
    with pytest.raises(UsageError, match=words):
        load(json.dumps(change(data)), "x")  # type: ignore[operator]
    with pytest.raises(UsageError):
        load("{", "x")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no run\.json in this folder"):
        files.read(tmp_path)


def test_the_table_and_the_markdown_row(measured: tuple[Result, Path]) -> None:
    result, _ = measured
    text = "\n".join(report.lines(result))
    assert "acceptance length" in text and "of 8" in text and "counting: exact" in text
    assert "reconstructed" in text, "a protocol whose prompt is not the published one says so"
    rows = report.markdown(result).splitlines()
    assert rows[0] == "| phase | c | tok/s | aggregate | acceptance length (of K+1) | step ms |"
    assert len([r for r in rows if r.startswith("| counting | ")]) == 2
    assert len([r for r in rows if r.startswith("| sfxnz-legacy prose | ")]) == 2, "prose is a protocol of its own"
    assert result.measured[0].digest[:12] in rows[-1]


def test_the_shape_of_vllm_bench_serve(measured: tuple[Result, Path]) -> None:
    peer = json.loads(text_of("peer-vllm_bench_serve_detailed.json"))
    flat = export.vllm(measured[0], html.read_chunks(measured[1] / files.CHUNKS))
    assert len(flat) == 6
    ours = next(v for k, v in flat.items() if k.startswith("counting-counting-infqps-concurrency2-mock-"))
    shared = set(ours) & set(peer)
    assert shared >= {"duration", "completed", "failed", "total_output_tokens", "output_throughput", "median_tpot_ms",
                      "mean_ttft_ms", "p99_ttft_ms", "output_lens", "ttfts", "errors", "start_times", "max_concurrency",
                      "itls", "mean_itl_ms", "input_lens", "total_input_tokens", "total_token_throughput",
                      "spec_decode_acceptance_rate", "spec_decode_acceptance_length",
                      "spec_decode_per_position_acceptance_rates"}  # fmt: skip
    for key in shared:  # one type, as the peer's readers expect it
        if peer[key] is not None and ours[key] is not None:
            same = isinstance(ours[key], type(peer[key])) or isinstance(peer[key], (int, float))
            assert same, (key, ours[key], peer[key])
    assert ours["total_output_tokens"] == sum(ours["output_lens"]) == ours["completed"] * 60
    assert ours["spec_decode_acceptance_rate"] > 1, "percent, as there"
    # 17 prompt tokens a request (the mock's). Gaps between chunks sum to the window: end to end less the first token.
    assert ours["input_lens"] == [17] * ours["completed"] and ours["total_input_tokens"] == 17 * ours["completed"]
    sums = [e - t for e, t in zip(ours["latencies"], ours["ttfts"], strict=True)]
    assert [sum(gaps) for gaps in ours["itls"]] == pytest.approx(sums)
    assert min(map(len, ours["itls"])) > 59 / 8 - 1, "a chunk bears at most 8 of the 59 tokens after the first"
    assert ours["mean_itl_ms"] == pytest.approx(1e3 * sum(sums) / sum(map(len, ours["itls"])))


class _Tags(HTMLParser):
    """Every tag and link; a tag that closes what is not open fails."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [v or "" for k, v in attrs if k in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_one_file_without_script_or_link(measured: tuple[Result, Path]) -> None:
    result, folder = measured
    page = html.page(result, html.read_chunks(folder / files.CHUNKS))
    tags = _Tags()
    tags.feed(page)
    assert "script" not in tags.seen and tags.links == [] and tags.open == []
    # Two protocols: tok/s and step time over c, acceptance by position, a timeline for each of three phases.
    assert tags.seen.count("svg") == 3 + 1 + 3 + 2
    assert "Count from 1 to 200" in page and "VOID" not in page
    assert html.page(result.model_copy(update={"recipe": "<b>&"})).count("&lt;b&gt;&amp;") == 2


def test_a_torn_chunk_file(tmp_path: Path) -> None:
    (tmp_path / "chunks.jsonl").write_text('{"t": 1, "text": "x"}\n{"t": 2, "te')
    assert html.read_chunks(tmp_path / "chunks.jsonl") == [{"t": 1}]
    assert html.read_chunks(tmp_path / "none.jsonl") == []


@pytest.mark.parametrize(("value", "top"), [(0, 1), (0.9, 1), (3.2, 4), (7.0, 8), (99, 100), (101, 200), (240, 250)])
def test_axes_end_on_round_numbers(value: float, top: float) -> None:
    assert svg.nice(value) == top


def test_plots_of_nothing_and_of_one_point() -> None:
    assert svg.draw(svg.Plot("t", "x", "y", [])) == ""
    assert "<svg" in svg.draw(svg.Plot("t", "x", "y", [svg.Line("a", [(1, 1)])], low=1))


WHO = [Evidence(source="a published table", date=dt.date(2026, 8, 29))]


def rows(measured: Result, **figures: object) -> list[published.Row]:
    row = PublishedRow.model_validate({"phase": "prose", "concurrency": 1, "evidence": WHO, **figures})
    return published.against(measured, [BenchRef(protocol="sfxnz-legacy", published=[row])])


def test_against_published(measured: tuple[Result, Path]) -> None:
    result, _ = measured
    cell = next(c for c in result.measured[1].cells if (c.phase, c.concurrency) == ("prose", 1))
    seen = cell.rates.tok_s or 0
    assert [r.verdict for r in rows(result, tok_s=seen * 1.05)] == ["within"]
    assert [r.verdict for r in rows(result, tok_s=seen * 1.2)] == ["below"]
    assert [r.verdict for r in rows(result, tok_s=seen * 0.8)] == ["above"]
    (ranged,) = rows(result, tok_s_range=(seen * 0.5, seen * 1.5))
    assert ranged.verdict == "within" and " to " in ranged.published and "reconstructed" in ranged.row()[-1]
    assert [r.figure for r in rows(result, tok_s=1.0, acceptance_length=3.5)] == ["tok/s", "acceptance length"]


def test_a_published_range_of_acceptance_is_held_as_a_range(measured: tuple[Result, Path]) -> None:
    # As ebfio publishes 54 to 67 %; what the mock accepts in so short a run is chance, so the ranges stand around it.
    result, _ = measured
    cell = next(c for c in result.measured[1].cells if (c.phase, c.concurrency) == ("prose", 1))
    assert cell.acceptance is not None and cell.acceptance.rate is not None
    seen = cell.acceptance.rate
    (row,) = rows(result, acceptance_rate_range=(seen + 0.01, seen + 0.02))
    assert (row.figure, row.verdict) == ("acceptance rate", "below") and " to " in row.published
    assert [r.verdict for r in rows(result, acceptance_rate_range=(seen - 0.2, seen + 0.2))] == ["within"]
    assert [r.verdict for r in rows(result, acceptance_rate_range=(0.0, seen - 0.01))] == ["above"]


def test_output_over_wall_is_held_against_output_over_wall(measured: tuple[Result, Path]) -> None:
    # A holdout streams, so it has a decode window too; the published aggregate is output tokens over wall time.
    result, _ = measured
    m = result.measured[1]
    cells = [c.model_copy(update={"rates": c.rates.model_copy(update={"agg_run": 50.0, "agg_decode": 99.0})})
             for c in m.cells]  # fmt: skip
    for formula, seen in (("output-over-wall", 50.0), ("legacy", 99.0)):
        p = m.protocol.model_copy(update={"formula": formula})
        other = result.model_copy(update={"measured": [m.model_copy(update={"protocol": p, "cells": cells})]})
        assert [r.measured for r in rows(other, aggregate_tok_s=1.0)] == [seen]


def test_clocks_stand_beside_the_figures(measured: tuple[Result, Path]) -> None:
    result, _ = measured
    clocks = {"sm_min_mhz": 1965, "sm_median_mhz": 1980, "temperature_max_c": 61, "power_capped": True}
    m = result.measured[0]
    blocks = [b.model_copy(update={"clocks": clocks if i == 0 else {}}) for i, b in enumerate(m.blocks)]
    text = "\n".join(report.lines(result.model_copy(update={"measured": [m.model_copy(update={"blocks": blocks})]})))
    assert "clock counting: SM 1965 MHz at least, median 1980, up to 61 C, at its power cap in 1 of 4 blocks" in text
    assert "clock" not in "\n".join(report.lines(result))


def test_a_published_row_of_another_protocol_or_k_is_not_compared(measured: tuple[Result, Path]) -> None:
    result, _ = measured
    row = PublishedRow.model_validate({"phase": "mixed", "concurrency": 1, "tok_s": 1.0, "evidence": WHO})
    with pytest.raises(UsageError, match="no published table follows the protocol") as caught:
        published.against(result, [BenchRef(protocol="ebfio-wall", published=[row])])
    assert caught.value.next_step == "recipectl bench --phases ebfio-wall"
    with pytest.raises(UsageError, match="no published row has a cell"):
        rows(result, tok_s=10.0, k=5)


def test_the_table_fits_80_columns_and_says_below_what_is_missing(measured: tuple[Result, Path]) -> None:
    result, _ = measured
    m = result.measured[1]
    cells = [c.model_copy(update={"void_rounds": 1, "failed_streams": 2}) for c in m.cells]
    text = report.lines(result.model_copy(update={"measured": [m.model_copy(update={"cells": cells})]}))
    head = next(i for i, line in enumerate(text) if line.startswith("phase"))
    assert all(len(line) <= 80 for line in text[head : head + 2 + len(cells)])
    assert text[head + 2].split()[-3:] == ["2", "of", "3"]
    assert "  prose c=1: 1 rounds are void, 2 streams failed" in text


def test_the_interval_stands_in_both_reports(measured: tuple[Result, Path]) -> None:
    result, _ = measured
    m = result.measured[1]
    a = m.cells[0].acceptance
    assert a is not None and a.low is None, "one prompt is no sample"
    cells = [
        m.cells[0].model_copy(update={"acceptance": a.model_copy(update={"length": 3.5, "low": 3.25, "high": 3.75})})
    ]
    shown = result.model_copy(update={"measured": [m.model_copy(update={"cells": cells})]})
    said = "prose c=1: acceptance length 3.500, 95 % interval 3.250 to 3.750 over the prompts"
    assert "  " + said in report.lines(shown) and said in html.page(shown)
