"""The real vLLM in a container, from lock to bench."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT, Cli
from tests.docker_engine import engine, publish, registry
from tests.engine.vllm_image import ENVIRONMENT, write_vllm

pytestmark = [pytest.mark.engine, pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1800)]


def recipe(tmp_path: Path, ref: str, digest: str) -> Path:
    """tiny-dflash with its trained pair, in a container."""
    folder = tmp_path / "recipes" / "tiny-dflash"
    shutil.copytree(ROOT / "recipes" / "tiny-dflash", folder, ignore=shutil.ignore_patterns("recipe.lock.yaml"))
    file = folder / "recipe.yaml"
    text = file.read_text()
    text = text[: text.index("    variants:\n")]
    image = f"      runtime: docker\n      image: {{ref: '{ref}', digest: '{digest}'}}\n"
    container = "    container: {gpus: none, shm_size: 1g}\n"
    text = text.replace("      runtime: process\n", image).replace(
        "    status: measured\n", "    status: measured\n" + container
    )
    file.write_text(text)
    return folder.parent


def test_tiny_dflash_in_a_real_container_from_lock_to_bench(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("RECIPECTL_DOCKER_HOST", engine().host)
    work = tmp_path_factory.mktemp("vllm-registry")
    write_vllm(work / "rootfs.tar")
    with registry(work) as found:
        digest = publish(found.address, "vllm-cpu", work / "rootfs.tar", ENVIRONMENT)
        (work / "rootfs.tar").unlink()
        root = ("--recipes", str(recipe(tmp_path, f"{found.address}/vllm-cpu:1", digest)))
        assert cli(*root, "lock", "tiny-dflash", "--sm", "cpu").returncode == 0
        assert cli(*root, "pull", "tiny-dflash", "--sm", "cpu", timeout=300).returncode == 0
        unknown = cli(*root, "serve", "tiny-dflash", "--sm", "cpu", "--set", "args.no_such_argument=1", timeout=600)
        assert unknown.returncode == 3 and "no-such-argument" in unknown.stderr, unknown.stderr
        done = cli(*root, "serve", "tiny-dflash", "--sm", "cpu", "--json", timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
        verdicts = {g["gate"]: g["verdict"] for g in json.loads(done.stdout)["gates"]}
        assert verdicts["counting"] == verdicts["k-metrics"] == verdicts["prose-acceptance"] == "PASS"
        bench = cli(*root, "bench", "--phases", "counting", "--rounds", "1", "-c", "1", "--json", timeout=300)
        assert bench.returncode == 0, bench.stderr
        assert cli("stop").returncode == 0
