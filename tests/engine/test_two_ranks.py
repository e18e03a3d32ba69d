"""The real vLLM as two ranks on two hosts that share nothing but a network: one model, split in halves."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.engine.vllm_image import ENVIRONMENT, write_vllm
from tests.serving.test_docker_cli import in_container
from tests.serving.two_hosts import HEAD, NETNS_A, Hosts, two_hosts

pytestmark = [pytest.mark.engine, pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(2700)]

# One core for each rank. The image has no C++ compiler, and a vocabulary in halves has a function that torch compiles.
LANE_ENV = '      OMP_NUM_THREADS: "1"\n      TORCH_COMPILE_DISABLE: "1"\n'


def recipe(folder: Path, hosts: Hosts) -> Path:
    """tiny-dflash with its trained pair, over two nodes."""
    shutil.copytree(ROOT / "recipes" / "tiny-dflash", folder, ignore=shutil.ignore_patterns("recipe.lock.yaml"))
    in_container(folder, hosts.ref, hosts.digest, nodes=2, network="host")
    file = folder / "recipe.yaml"
    text = file.read_text().replace('      OMP_NUM_THREADS: "2"\n', LANE_ENV)
    text = text.replace("boot_timeout_s: 600\n", "boot_timeout_s: 1500\n")  # two boots at once, on a machine in use
    file.write_text(text.replace("network: host}", "network: host, shm_size: 1g}"))
    return folder.parent


def sent_by_head() -> int:
    """Bytes that the head's host has sent to the other."""
    counter = ["nsenter", f"--net=/run/netns/{NETNS_A}", "ip", "-s", "-j", "link", "show", "fab0"]
    found = json.loads(subprocess.run(counter, check=True, capture_output=True, text=True).stdout)
    return int(found[0]["stats64"]["tx"]["bytes"])


def test_two_ranks_on_two_hosts_speculate_are_gated_benched_and_stopped(tmp_path: Path) -> None:
    with two_hosts(write_vllm, ENVIRONMENT, far_has_it=False) as hosts:
        root = ("--recipes", str(recipe(tmp_path / "recipes" / "tiny-dflash", hosts)))
        assert hosts.recipectl(*root, "lock", "tiny-dflash", "--sm", "cpu").returncode == 0
        try:
            done = hosts.recipectl(*root, "serve", "tiny-dflash", "--sm", "cpu", "--hosts", f"local,{hosts.far}",
                                   "--carry-image", "--json", timeout=1800)  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            assert f"image carried to {hosts.far}" in done.stderr
            seen = {g["gate"]: g for g in json.loads(done.stdout)["gates"]}
            assert "2 rank(s)" in seen["alive"]["message"]
            assert {seen[g]["verdict"] for g in ("counting", "k-metrics", "acceptance", "prose-acceptance")} == {"PASS"}
            for rank in (0, 1):
                log = hosts.recipectl("logs", "--rank", str(rank)).stdout
                assert f"world_size=2 rank={rank} " in log and f"tcp://{HEAD}:" in log and "backend=gloo" in log, log

            before = sent_by_head()
            bench = hosts.recipectl(*root, "bench", "--phases", "counting", "--rounds", "1", "-c", "1", "--json",
                                    timeout=600)  # fmt: skip
            assert bench.returncode == 0, bench.stdout + bench.stderr
            # 200 tokens are 25 steps at least; in each, 6 layers add up the halves of 8 positions of 256 floats, twice.
            assert sent_by_head() - before > 25 * 6 * 2 * 8 * 256 * 4 / 2
            status = json.loads(hosts.recipectl("status", "--json").stdout)["deployments"]
            assert [d["state"] for d in status] == ["ready"]
            stopped = hosts.recipectl("stop", timeout=300)
            assert stopped.returncode == 0 and "nothing of it is left" in stopped.stdout, stopped.stderr
        finally:
            hosts.recipectl("stop", "--all", "--force", timeout=300)
        assert hosts.containers() == {"a": [], "b": []}
