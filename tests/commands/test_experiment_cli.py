"""Whole experiments: servers started, restarted and stopped by recipectl, and the one that ran before brought back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.commands.conftest import Shop

HEAD = """
schema: recipectl.experiment/1
name: %s
summary: A contract of the tests
recipe: tiny-dflash
lane: cpu
arms:
  base: {}
  slow: {variant: slow}
  broken: {variant: broken}
stages:
"""


def contract(folder: Path, name: str, *stages: str) -> str:
    file = folder / f"{name}.yaml"
    file.write_text(HEAD % name + "".join(f"  - {s}\n" for s in stages))
    return str(file)


def ready(shop: Shop) -> list[dict[str, Any]]:
    """What runs, as `status` says it."""
    return [d for d in shop.document("status")["deployments"] if d["state"] == "ready"]


def test_a_failed_gate_stops_and_the_server_before_is_restored(shop: Shop, tmp_path: Path) -> None:
    served = shop.document("serve", "tiny-dflash", "--sm", "cpu")
    file = contract(
        tmp_path,
        "stops",
        "{name: geometry, kind: geometry, arm: broken}",
        "{name: startup, kind: startup, arm: broken, amendments: [{set: env.MOCK_DIES=, reason: capture may fail}]}",
        "{name: acceptance, kind: acceptance, arm: broken, protocol: gate, threshold: 7.5}",
        "{name: speed, kind: speed, arm: broken, protocol: prose, concurrency: [1, 4, 8]}",
        "{name: quality, kind: quality, arm: broken, against: base}",
    )
    done = shop.document("experiment", file, code=10)
    assert [(o["stage"], o["status"]) for o in done["outcomes"]] == [
        ("geometry", "PASS"), ("startup", "PASS"), ("acceptance", "FAIL"), ("speed", "NOT_RUN"),
        ("quality", "NOT_RUN")]  # fmt: skip
    startup, gate, speed = done["outcomes"][1], done["outcomes"][2], done["outcomes"][3]
    assert startup["amended"] == ["env.MOCK_DIES= (capture may fail)"]
    assert len(startup["evidence"]["failed_boots"]) == 1
    assert len(gate["evidence"]["rows"]) == 4 and gate["evidence"]["proposed"] == 7 * gate["evidence"]["drafts"]
    assert speed["why"] == "blocked by acceptance"
    (restored,) = done["restored"]
    assert served["url"] in restored and "gated again" in restored
    assert [d["url"] for d in ready(shop)] == [served["url"]]
    printed = shop("report", done["receipt"])
    assert "acceptance" in printed.stdout and "NOT_RUN" in printed.stdout
    assert "acceptance saw:" in printed.stdout and "{'" not in printed.stdout, "no Python where a reader looks"
    pasted = shop("report", done["receipt"], "--format", "markdown").stdout
    assert "| speed | NOT_RUN | blocked by acceptance |" in pasted and "- verdict: STOP" in pasted
    assert shop("report", done["receipt"], "--format", "html").returncode == 2


def test_ctrl_c_brings_back_what_ran_before(shop: Shop, tmp_path: Path) -> None:
    served = shop.document("serve", "tiny-dflash", "--sm", "cpu")
    file = contract(
        tmp_path,
        "long",
        "{name: geometry, kind: geometry, arm: base}",
        "{name: speed, kind: speed, arm: base, protocol: counting, rounds: 500}",
        "{name: quality, kind: quality, arm: base, against: slow}",
    )
    argv = [sys.executable, "-m", "recipectl", "--recipes", str(shop.folder.parent), "experiment", file]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, env=dict(os.environ), **pipes) as done:
        assert done.stderr is not None
        said = next(line for line in done.stderr if line.startswith("bench counting"))  # rounds are running
        done.send_signal(signal.SIGINT)
        out, err = done.communicate(timeout=120)
    assert done.returncode == 130 and "broken off after 1 stages" in err, said + err
    assert "geometry  PASS" in out and "the experiment was broken off" in out and "restored: " in out
    assert [d["url"] for d in ready(shop)] == [served["url"]]
    assert "(PARTIAL)" in shop("report").stdout


def test_two_arms_on_interleaved_boots(shop: Shop, tmp_path: Path) -> None:
    file = contract(
        tmp_path,
        "ab",
        "{name: ab, kind: compare, arm: slow, against: base, protocol: counting, rounds: 3, boots: 2,"
        " concurrency: [2]}",
    )
    planned = shop.document("experiment", file, "--dry-run")
    done = shop.document("experiment", file, code=10)
    assert done["contract_sha256"] == planned["contract_sha256"] and done["restored"] == []
    (outcome,) = done["outcomes"]
    assert outcome["status"] == "FAIL" and "tok/s is worse" in outcome["why"]
    assert all("6 rounds, 2 boots" in line for line in outcome["evidence"]["lines"])
    folders = sorted(p.name for p in Path(done["folder"]).iterdir() if p.is_dir())
    assert folders == ["ab-boot1-base", "ab-boot2-slow", "ab-boot3-slow", "ab-boot4-base"]
    assert ready(shop) == [], "nothing is left running"


def test_contracts_that_cannot_run(shop: Shop, tmp_path: Path) -> None:
    assert shop("experiment", str(tmp_path / "none.yaml")).returncode == 2
    wrong = contract(tmp_path, "wrong", "{name: a, kind: speed, arm: nobody, protocol: prose}")
    done = shop("experiment", wrong)
    assert done.returncode == 2 and "no arm 'nobody'" in done.stderr


def test_what_a_contract_lacks_is_said_before_anything_is_stopped(shop: Shop, tmp_path: Path) -> None:
    served = shop.document("serve", "tiny-dflash", "--sm", "cpu")
    first = "{name: startup, kind: startup, arm: base}"
    for number, (stage, code, words) in enumerate((
        ("{name: a, kind: speed, arm: base, protocol: prosa}", 2, "no such bench protocol"),
        ("{name: a, kind: speed, arm: base, protocol: holdout}", 2, "takes your own prompts"),
        ("{name: a, kind: acceptance, arm: base, protocol: gate, threshold: 2, extension: more}", 2, "no such bench"),
        ("{name: a, kind: speed, arm: base, protocol: holdout, prompts: mine.txt}", 2, "prompt file cannot be read"),
    )):  # fmt: skip
        done = shop("experiment", contract(tmp_path, f"lacks-{number}", first, stage))
        assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    unknown = Path(contract(tmp_path, "variant", first))
    unknown.write_text(
        unknown.read_text().replace("{variant: slow}", "{variant: slower}").replace("arm: base}", "arm: slow}")
    )
    assert "slower" in shop("experiment", str(unknown)).stderr
    assert [d["url"] for d in ready(shop)] == [served["url"]]


def test_both_arms_are_asked_the_lanes_own_prompts(shop: Shop, tmp_path: Path) -> None:
    # The variant without speculation has no bench settings of its own; asked other prompts, nothing would pair.
    file = contract(
        tmp_path,
        "pays",
        "{name: ab, kind: compare, arm: base, against: none, protocol: prose, rounds: 5, concurrency: [2]}",
    )
    text = Path(file).read_text().replace("  slow: {variant: slow}\n", "  none: {variant: no-spec}\n")
    Path(file).write_text(text)
    done = shop.document("experiment", file)
    (outcome,) = done["outcomes"]
    assert outcome["status"] == "PASS" and "better" in outcome["why"], outcome
