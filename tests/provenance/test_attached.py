"""Licenses and credits stay with the numbers: in a bench result, in its report in every form, in `show`."""

from __future__ import annotations

import json
from pathlib import Path

from recipectl.bench import html, receipt, report
from recipectl.bench.result import Result, Server, load
from recipectl.bench.target import of_url
from recipectl.provenance import UNKNOWN, block, gather
from recipectl.recipe.schema import Recipe
from tests.conftest import Cli
from tests.provenance.conftest import only

WANTED = ("drafter incoai/GLM-5.3-Flash-DFlash2: CC-BY-NC-ND-4.0", "non-commercial use only", "credits: sfxnz")


def result(notes: object) -> Result:
    """A bench that measured nothing, of a server with these notes."""
    made = Result(tool="recipectl", started="2026-11-29T10:00:00Z", ended="2026-11-29T10:01:00Z", seed=1,
                  server=Server(url="http://127.0.0.1:1", model="m"), measured=[])  # fmt: skip
    return load(json.dumps({**json.loads(made.dump()), "notes": notes}), "run.json")


def test_every_form_of_a_bench_report_carries_them(flash: Recipe) -> None:
    found = result(block(gather(flash, lanes=[only(flash, "eager")])))
    for text in ("\n".join(report.lines(found)), report.markdown(found), html.page(found)):
        for wanted in WANTED:
            assert wanted in text


def test_a_bench_by_address_says_in_every_form_that_nothing_is_known() -> None:
    job = of_url("http://127.0.0.1:1", "m", None, gpu_here=False)
    assert job.target.notes == UNKNOWN
    found = result(job.target.notes)
    for text in ("\n".join(report.lines(found)), report.markdown(found), html.page(found)):
        assert "recipectl cannot know" in text


def test_a_receipt_holds_them_once(flash: Recipe) -> None:
    found = result(block(gather(flash, lanes=[only(flash, "eager")])))
    assert receipt.seen(found, Path("bench"))["bench"]["notes"] == {}


def test_show_ends_each_lane_with_them(cli: Cli) -> None:
    shown = cli("show", "glm53-flash-dflash2", "--sm", "121")
    for wanted in WANTED:
        assert wanted in shown.stdout
    told = json.loads(cli("show", "glm53-flash-dflash2", "--sm", "121", "--json").stdout)["notes"]
    assert [p["license"] for p in told[0]["parts"] if p["kind"] == "drafter"] == ["CC-BY-NC-ND-4.0"]
