"""Whole runs against the mock server: real HTTP, real counters, known truth."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from recipectl.bench import discover, files, protocol, report, run
from recipectl.bench.body import Dialect
from recipectl.bench.protocol import Protocol
from recipectl.bench.result import Result
from recipectl.console import Console
from recipectl.errors import BenchError, UsageError
from tests.bench.conftest import Mock
from tests.conftest import Captured, Cli

RATES = (0.744, 0.545, 0.405, 0.306, 0.237, 0.185, 0.147)


def short(name: str = "prose", **flags: object) -> Protocol:
    settings = {"rounds": 2, "concurrency": [1, 2], "max_tokens": 60, **flags}
    return protocol.with_settings(protocol.load(name), settings, Path("/"))  # type: ignore[arg-type]


def measure(url: str, folder: Path, console: Console, protocols: Sequence[Protocol], **target: object) -> Result:
    # The tests' machine shares its cores, so the client's own lag is a warning here, as on the CPU lane.
    made = run.Target(url=url, shares_cpu=True, **target)  # type: ignore[arg-type]
    return run.run(made, protocols, out=folder / "out", console=console, seed=1)


def test_counting_and_prose(mock: Mock, tmp_path: Path, console: Console) -> None:
    result = measure(mock(step_s=0.01), tmp_path, console, [short("counting"), short()], k=7)
    assert [(c.phase, c.concurrency, c.rounds, c.void_rounds) for m in result.measured for c in m.cells] == [
        (p, c, 2, 0) for p in ("counting", "prose") for c in (1, 2)]  # fmt: skip
    for m in result.measured:
        for cell in m.cells:
            # Against the server's own clock, and widely: a busy machine stretches steps and reads alike. Counting
            # chunks as tokens would be off by a factor of 3.6.
            assert cell.rates.tok_s == pytest.approx(cell.rates.server_tok_s, rel=0.5)
            assert cell.acceptance is not None and cell.acceptance.length is not None
            assert 1 + sum(cell.acceptance.positions) == pytest.approx(cell.acceptance.length)
            assert cell.rates.tok_s == pytest.approx(
                1e3 * (cell.rates.emitted_length or 0) / (cell.rates.step_ms or 1), rel=0.6
            )
            assert cell.failed_streams == 0
        for b in m.blocks:
            assert b.void == [] and b.request_acceptance is not None and b.acceptance is not None
            assert b.request_acceptance.model_dump(exclude={"source"}) == b.acceptance.model_dump(exclude={"source"})
            assert b.trimmed is not None and b.client["late_connections"] == 0
    counting, prose = result.measured
    assert [c.count for c in counting.cells] == ["exact", "exact"] and prose.cells[0].count is None
    assert counting.blocks[0].requests[0].prompt_sha256 == counting.protocol.phases["counting"].prompts[0].sha256
    assert result.server.k == 7 and result.formulas["acceptance_length"].startswith("1 + accepted / drafts")


def test_what_lies_on_disk_is_the_result(mock: Mock, tmp_path: Path, console: Console) -> None:
    result = measure(mock(step_s=0.005), tmp_path, console, [short(rounds=1, concurrency=[2])], k=7)
    assert files.read(tmp_path / "out") == result
    rows = [json.loads(line) for line in (tmp_path / "out" / files.CHUNKS).read_text().splitlines()]
    assert [sum(n for _, n in r["chunks"]) for r in rows] == [60] * 4
    assert len(list((tmp_path / "out" / "scrapes").glob("*.prom.gz"))) == 2
    with pytest.raises(UsageError, match="already holds a bench result"):
        measure(mock(), tmp_path, console, [short()])


def test_a_failed_stream_is_reported_and_leaves_the_rest(mock: Mock, tmp_path: Path, captured: Captured) -> None:
    (tmp_path / "p.txt").write_text("A healthy prompt.\n[[error]] A prompt that ends badly.\n")
    amended = protocol.with_settings(short(rounds=1, concurrency=[2]), {"prompts": "p.txt"}, tmp_path)
    result = measure(mock(step_s=0.005), tmp_path, captured.console, [amended])
    (cell,) = result.measured[0].cells
    assert (cell.rounds, cell.failed_streams) == (1, 1) and cell.rates.tok_s is not None
    assert cell.rates.step_ms is None, "the counters hold the failed stream's drafts too"
    text = "\n".join(report.lines(result))
    assert "1 streams failed" in text and "EngineCore encountered an issue" in text


def test_a_server_without_speculation(mock: Mock, tmp_path: Path, console: Console) -> None:
    result = measure(mock(step_s=0.005, rates=()), tmp_path, console, [short(rounds=1)], speculates=False)
    for cell in result.measured[0].cells:
        assert cell.acceptance is None and cell.rates.tok_s == pytest.approx(cell.rates.server_tok_s, rel=0.5)
        assert cell.rates.step_ms == pytest.approx(1e3 / (cell.rates.tok_s or 1), rel=0.6)


def test_no_counters_on_a_server_that_should_speculate(mock: Mock, tmp_path: Path, console: Console) -> None:
    result = measure(mock(step_s=0.005, rates=()), tmp_path, console, [short(rounds=1)], speculates=True, k=7)
    assert all(b.void[0].startswith("absent:") for b in result.measured[0].blocks)
    assert result.measured[0].cells[0].rates.tok_s is None


def test_another_k_than_planned_voids(mock: Mock, tmp_path: Path, console: Console) -> None:
    result = measure(mock(step_s=0.005), tmp_path, console, [short(rounds=1)], k=5)
    assert all("is more than K 5" in b.void[0] for b in result.measured[0].blocks)


def test_a_dead_drafter_at_temperature(mock: Mock, tmp_path: Path, console: Console) -> None:
    dead = mock(step_s=0.002, rates=(1e-9,) * 7)
    for heat, rule in ((0.8, "temperature:"), (0.0, "drafting:")):
        result = measure(dead, tmp_path / rule, console, [short(rounds=1, temperature=heat)], k=7)
        assert all(b.void[0].startswith(rule) for b in result.measured[0].blocks)


def test_foreign_traffic_voids(mock: Mock, tmp_path: Path, console: Console) -> None:
    import requests

    url, busy = mock(step_s=0.005), threading.Event()

    def elsewhere() -> None:
        while not busy.is_set():
            requests.post(f"{url}/v1/chat/completions", timeout=30, json={
                "model": "mock", "messages": [{"role": "user", "content": "x"}], "max_tokens": 10})  # fmt: skip

    thread = threading.Thread(target=elsewhere)
    thread.start()
    try:
        result = measure(url, tmp_path, console, [short(rounds=1, concurrency=[2])], k=7)
    finally:
        busy.set()
        thread.join()
    rules = {v.partition(":")[0] for v in result.measured[0].blocks[0].void}
    assert "foreign" in rules


@pytest.mark.parametrize(
    ("moves", "rule"),
    [("preempted", "preempted: 1 requests"), ("prefix_hits", "prefix-cache: 1 prompt tokens"),
     ("finished", "requests: the server finished 2, 1 were sent"), ("restart", "counters: the server restarted")],
)  # fmt: skip
def test_counters_that_move_beside_the_block_void_it(
    mock: Mock, tmp_path: Path, console: Console, moves: str, rule: str
) -> None:
    one = short("counting", rounds=1, concurrency=[1])
    result = measure(mock(step_s=0.002, moves=[moves]), tmp_path, console, [one], k=7)
    (block,) = result.measured[0].blocks
    assert len(block.void) == 1 and block.void[0].startswith(rule)
    assert result.measured[0].cells[0].rates.tok_s is None


def test_a_server_that_ignores_what_it_is_asked_for(mock: Mock, tmp_path: Path, console: Console) -> None:
    (tmp_path / "p.txt").write_text("[[plain]] Neither token ids nor continuous usage.\n")
    p = protocol.with_settings(short(rounds=1, concurrency=[1]), {"prompts": "p.txt"}, tmp_path)
    result = measure(mock(step_s=0.005), tmp_path, console, [p], k=7)
    (block,) = result.measured[0].blocks
    assert block.void == [] and (block.requests[0].counted, block.requests[0].n) == ("assumed", 60)
    assert any("the first is assumed to bear 1" in w for w in block.warnings)


def test_fields_that_a_server_refuses_are_left_out_and_named(mock: Mock, tmp_path: Path, console: Console) -> None:
    url = mock(step_s=0.005, refuses=("cache_salt", "return_token_ids", "chat_template_kwargs"))
    result = measure(url, tmp_path, console, [short(rounds=1)], k=7)
    lacks = "\n".join(result.server.lacks)
    for name in ("cache_salt", "return_token_ids", "chat_template_kwargs"):
        assert f"{name}: refused" in lacks
    assert result.measured[0].blocks[0].requests[0].counted == "usage"
    assert result.measured[0].cells[0].rounds == 1


def test_sglang_gauges_are_sampled_and_labelled(mock: Mock, tmp_path: Path, captured: Captured) -> None:
    result = measure(
        mock(step_s=0.02, sglang=True), tmp_path, captured.console, [short(rounds=1)], speculates=True, k=7
    )
    (cell, _) = result.measured[0].cells
    assert result.server.engine == "sglang" and cell.rounds == 1 and cell.acceptance is not None
    assert (cell.acceptance.source, cell.acceptance.drafts) == ("gauge", 0)
    assert cell.rates.acceptance_length == pytest.approx(3.569) and cell.rates.step_ms is None
    assert "median of SGLang's gauge" in "\n".join(report.lines(result))


def test_a_server_without_metrics(mock: Mock, tmp_path: Path, console: Console) -> None:
    result = measure(mock(step_s=0.005, metrics=False), tmp_path, console, [short(rounds=1)])
    (cell, _) = result.measured[0].cells
    assert cell.rounds == 1 and cell.rates.tok_s is not None
    assert cell.acceptance is not None and cell.acceptance.source == "requests"
    assert any("/metrics answers HTTP 404" in lack for lack in result.server.lacks)


def test_a_speculating_server_that_shows_nothing_is_void(mock: Mock, tmp_path: Path, console: Console) -> None:
    url = mock(step_s=0.005, metrics=False, per_request=False)
    result = measure(url, tmp_path, console, [short(rounds=1, concurrency=[1])], k=7, speculates=True)
    assert [b.void for b in result.measured[0].blocks] == [
        ["absent: no /metrics, and requests do not say what was accepted of them"]]  # fmt: skip


def test_seeds_are_the_same_in_two_runs_and_differ_between_requests(
    mock: Mock, tmp_path: Path, console: Console
) -> None:
    (tmp_path / "p.txt").write_text("One.\nTwo.\n")
    p = protocol.with_settings(
        protocol.load("holdout"), {"prompts": "p.txt", "concurrency": [2], "rounds": 2}, tmp_path
    )
    places = [(name, c, r, i) for name, c in p.cells() for r in range(2) for i in range(2)]
    runs = [run.Session(run.Target(url="http://127.0.0.1:9"), [p], files.Files(tmp_path / n), 0) for n in ("a", "b")]
    for session in runs:
        session.found = discover.Found("m", None, None, Dialect(), (), None)
    one, two = ([s._body(p, "x", 9, *place)["seed"] for place in places] for s in runs)
    assert one == two and len(set(one)) == 4


def test_wall_clock_protocols(mock: Mock, tmp_path: Path, console: Console) -> None:
    p = short("ebfio-wall", rounds=1, concurrency=[1], max_tokens=40)
    result = measure(mock(step_s=0.005), tmp_path, console, [p], k=7)
    (cell,) = result.measured[0].cells
    rows = result.measured[0].blocks[0].requests
    assert [r.tok_s for r in rows] == [pytest.approx(40 / ((r.t_end_ns - r.t_request_ns) / 1e9)) for r in rows]
    assert cell.rates.aggregate is None and cell.rates.ttft_s is None and cell.rates.acceptance_length is not None


def test_holdout_counts_output_over_wall(mock: Mock, tmp_path: Path, console: Console) -> None:
    (tmp_path / "p.txt").write_text("\n".join(f"Prompt number {i}." for i in range(10)))
    p = protocol.with_settings(
        protocol.load("holdout"), {"prompts": "p.txt", "concurrency": [4], "max_tokens": 30}, tmp_path
    )
    result = measure(mock(step_s=0.005), tmp_path, console, [p], k=7)
    (cell,), (block,) = result.measured[0].cells, result.measured[0].blocks
    wall = (max(r.t_end_ns for r in block.requests) - min(r.t_request_ns for r in block.requests)) / 1e9
    assert len(block.requests) == 10 and cell.rates.agg_run == pytest.approx(300 / wall)
    assert cell.rates.tok_s == pytest.approx(300 / wall / 4)


def test_concurrency_above_max_num_seqs_is_labelled(mock: Mock, tmp_path: Path, captured: Captured) -> None:
    result = measure(mock(step_s=0.005), tmp_path, captured.console, [short(rounds=1)], k=7, max_num_seqs=1)
    assert [c.queueing for c in result.measured[0].cells] == [False, True]
    assert "above max_num_seqs 1, so requests queue" in "\n".join(report.lines(result))


@pytest.mark.parametrize("model", ["another", None])
def test_the_served_model(mock: Mock, tmp_path: Path, console: Console, model: str | None) -> None:
    if model is None:
        assert measure(mock(step_s=0.005), tmp_path, console, [short(rounds=1)]).server.model == "mock"
        return
    with pytest.raises(UsageError) as caught:
        measure(mock(), tmp_path, console, [short()], model=model)
    assert caught.value.expected == "mock" and caught.value.next_step == "--model mock"


class _Locked(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(401)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def locked_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Locked)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def test_a_server_behind_a_key(locked_server: str, tmp_path: Path, console: Console) -> None:
    with pytest.raises(UsageError, match="wants an API key"):
        measure(locked_server, tmp_path, console, [short()])
    assert not (tmp_path / "out").exists(), "nothing is written for a run that never began"


def server_process(step_s: float) -> tuple[subprocess.Popen[str], str]:
    argv = [sys.executable, "-m", "recipectl.bench.mockhttp", "--config", json.dumps({"step_s": step_s})]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, f"http://127.0.0.1:{process.stdout.readline().strip()}"


def until(path: Path) -> None:
    """Wait until the first finished block is on disk."""
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def test_a_server_that_dies_in_the_middle_keeps_the_finished_blocks(tmp_path: Path, console: Console) -> None:
    process, url = server_process(0.02)

    def kill() -> None:
        until(tmp_path / "out" / files.CHUNKS)
        process.kill()

    with process:
        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(BenchError, match="broke off"):
            measure(url, tmp_path, console, [short(rounds=50, concurrency=[1])], k=7)
        killer.join()
    kept = files.read(tmp_path / "out")
    assert kept.partial and kept.measured[0].blocks and "broke off" in kept.warnings[0]


def test_ctrl_c_keeps_the_finished_blocks(tmp_path: Path, cli: Cli) -> None:
    process, url = server_process(0.005)
    with process:
        argv = [
            sys.executable,
            "-m",
            "recipectl",
            "bench",
            "--url",
            url,
            "--rounds",
            "100",
            "--out",
            str(tmp_path / "o"),
        ]
        bench = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
        until(tmp_path / "o" / files.CHUNKS)
        bench.send_signal(signal.SIGINT)
        _, err = bench.communicate(timeout=30)
        process.kill()
    assert bench.returncode == 130, err
    assert "finished blocks are kept, marked partial" in err
    assert files.read(tmp_path / "o").partial
    shown = cli("report", str(tmp_path / "o"))
    assert shown.returncode == 0 and "(PARTIAL)" in shown.stdout
