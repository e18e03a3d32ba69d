"""No room for a log or a receipt: a real full disk, one clear error, nothing claimed, and the server's fate told."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import need
from tests.serving import test_docker_cli, test_serve_cli
from tests.serving.test_docker_cli import yard  # noqa: F401
from tests.serving.test_serve_cli import running

in_process, in_box = test_serve_cli.shop, test_docker_cli.shop


@pytest.fixture
def small_state() -> Iterator[Path]:
    """A state folder with 4 MiB."""
    if os.geteuid() != 0:
        need("root", "mounting a small file system needs root")
    folder = Path(os.environ["RECIPECTL_STATE"])
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], check=True, capture_output=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True, capture_output=True)


def fill(folder: Path) -> Path:
    """Leave no byte in a file system."""
    file = folder / "filler"
    with file.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(b"\0" * 4096)
        except OSError:
            return file


def test_a_log_that_fills_the_disk_ends_the_boot(small_state: Path, in_process: test_serve_cli.Shop) -> None:
    done = in_process.serve("noisy")
    assert done.returncode == 2, done.stderr
    assert "no room is left for the log and the receipt of a server" in done.stderr
    assert "tiny-dflash-cpu was torn down, nothing is left running" in done.stderr
    assert "No space left on device" in done.stderr and "RECIPECTL_STATE" in done.stderr
    assert done.stderr.count("error[") == 1 and "READY" not in done.stdout
    assert not running() and not list(small_state.glob("receipts/*"))


@pytest.mark.docker
def test_the_same_in_a_container(small_state: Path, in_box: test_docker_cli.Shop) -> None:
    done = in_box.serve("noisy")
    assert done.returncode == 2, done.stderr
    assert "tiny-dflash-cpu was torn down, nothing is left running" in done.stderr
    assert in_box.containers() == [] and not list(small_state.glob("receipts/*"))


def test_a_live_server_keeps_running_and_can_be_stopped(small_state: Path, in_process: test_serve_cli.Shop) -> None:
    assert in_process.serve().returncode == 0
    receipts = set(small_state.glob("receipts/*"))
    filler = fill(small_state)
    again = in_process("gate")
    assert again.returncode == 2 and "No space left on device" in again.stderr, again.stderr
    assert "receipts/" in again.stderr and "bug" not in again.stderr
    assert set(small_state.glob("receipts/*")) == receipts and running()
    assert json.loads(in_process("status", "--json").stdout)["deployments"][0]["state"] == "ready"
    stopped = in_process("stop")
    assert stopped.returncode == 0 and "nothing of it is left" in stopped.stdout, stopped.stderr
    assert not running()
    refused = in_process.serve()
    assert refused.returncode == 2 and "No space left on device" in refused.stderr, refused.stderr
    filler.unlink()
    assert not running()
