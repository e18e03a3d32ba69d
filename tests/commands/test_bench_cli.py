"""bench, report and compare as a user types them, on a server that recipectl itself started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands.conftest import Shop


def test_bench_report_and_compare_of_a_deployment(shop: Shop, tmp_path: Path) -> None:
    assert shop("serve", "tiny-dflash", "--sm", "cpu").returncode == 0
    short = ("--phases", "counting", "--rounds", "7", "--concurrency", "1", "--max-tokens", "60")
    first = shop.document("bench", *short, "--out", str(tmp_path / "a"), "--export", "vllm")
    result = first["bench"]
    assert (result["recipe"], result["lane"], result["server"]["k"]) == ("tiny-dflash", "cpu", 7)
    assert result["server"]["max_num_seqs"] == 4 and result["resolution"].startswith("sha256:")
    (cell,) = result["measured"][0]["cells"]
    assert cell["rounds"] >= 5 and cell["count"] == "exact" and 1 < cell["rates"]["acceptance_length"] < 8
    assert cell["rates"]["tok_s"] == pytest.approx(cell["rates"]["server_tok_s"], rel=0.2)
    assert {p.name for p in (tmp_path / "a").iterdir()} >= {"run.json", "chunks.jsonl", "report.html", "scrapes"}
    assert len(list((tmp_path / "a").glob("counting-*.json"))) == 1

    printed = shop("report")
    assert printed.returncode == 0 and "counting" in printed.stdout and "of 8" in printed.stdout
    assert "recipe.yaml: sha256" in printed.stdout
    markdown = shop("report", first["receipt"], "--format", "markdown")
    assert markdown.stdout.startswith("| phase | c | tok/s |")
    page = tmp_path / "page.html"
    assert shop("report", str(tmp_path / "a"), "--format", "html", "--out", str(page)).returncode == 0
    assert page.read_text().startswith("<!doctype html>")

    shop.document("bench", *short, "--out", str(tmp_path / "b"))
    same = shop("compare", str(tmp_path / "a"), str(tmp_path / "b"))
    assert same.returncode == 0 and "regression: none" in same.stdout and "A/A control" in same.stderr
    assert shop("stop").returncode == 0

    assert shop("serve", "tiny-dflash", "--sm", "cpu", "--variant", "slow").returncode == 0
    shop.document("bench", *short, "--out", str(tmp_path / "c"))
    worse = shop.document("compare", str(tmp_path / "a"), str(tmp_path / "c"), code=10)
    assert worse["regressions"] == ["counting c=1: tok/s is worse"]
    assert {j["metric"]: j["verdict"] for j in worse["judged"]}["step_ms"] == "worse"
    better = shop.document("compare", str(tmp_path / "c"), first["receipt"])
    assert {j["metric"]: j["verdict"] for j in better["judged"]}["tok_s"] == "better"
    whole = tmp_path / "a" / "run.json"
    whole.write_text(whole.read_text().replace('"tool": "', '"tool": "other '))
    changed = shop("compare", str(tmp_path / "c"), first["receipt"])
    assert changed.returncode == 2 and "has changed since its receipt was written" in changed.stderr


def test_bad_input(shop: Shop, tmp_path: Path) -> None:
    none = shop("bench")
    assert none.returncode == 2 and "no deployment" in none.stderr
    for argv, code, words in (
        (["--url", "ftp://x"], 2, "no address of a server"),
        (["--url", "http://me:secret@127.0.0.1:1"], 2, "no credentials in the address"),
        (["--url", "http://127.0.0.1:9"], 9, "does not answer"),
        (["--model", "m"], 2, "belongs to --url"),
        (["--url", "http://127.0.0.1:9", "--phases", "prosa"], 2, "no such bench protocol"),
        (["--url", "http://127.0.0.1:9", "--concurrency", "1,x"], 2, "no list of stream counts"),
        (["--url", "http://127.0.0.1:9", "--phases", "holdout"], 2, "takes your own prompts"),
    ):
        done = shop("bench", *argv)
        assert (done.returncode, words in done.stderr) == (code, True), done.stderr
        assert "secret" not in done.stderr.replace("no credentials", "")
    assert "there is no receipt yet" in shop("report").stderr
    other = tmp_path / "aiperf.json"
    other.write_text(json.dumps({"schema_version": "1.4"}))
    assert shop("compare", str(other), str(other)).returncode == 2
    assert shop("compare", str(other)).returncode == 2
