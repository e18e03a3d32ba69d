"""Guards and fixtures that every test shares.

No test may touch the user's folders or leave this machine: the environment is emptied of hub and Docker settings,
HOME is a temporary folder, and a connection to anything but loopback raises.
"""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from recipectl.console import Console
from recipectl.settings import Settings, load

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(__file__).resolve().parent / "data"
_CLEARED = ("HF_", "HUGGING", "DOCKER_", "RECIPECTL_", "VLLM_", "XDG_")
# What .ci/run sets must survive the clearing.
_KEPT = ("RECIPECTL_TEST_REQUIRE", "RECIPECTL_TEST_UNTIL")
# 10.77.0.0/16 lies inside the network namespaces that the two-host tests make.
_LOCAL = ("127.", "::1", "localhost", "10.77.")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """No slow test begins after RECIPECTL_TEST_UNTIL (seconds since the epoch): CI has an hour. The summary says so."""
    until = os.environ.get("RECIPECTL_TEST_UNTIL")
    if until and item.get_closest_marker("slow") and time.time() > float(until):
        pytest.skip("NOT RUN: the time of this run was used up")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in list(os.environ):
        if name.startswith(_CLEARED) and name not in _KEPT:
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("CACHE", "STATE", "DATA"):
        monkeypatch.setenv(f"RECIPECTL_{name}", str(home / name.lower()))
    monkeypatch.setenv("RECIPECTL_SETTINGS", str(home / "settings.toml"))
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")


@pytest.fixture(autouse=True)
def _loopback_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        inet = self.family in (socket.AF_INET, socket.AF_INET6)
        if inet and not str(address[0]).startswith(_LOCAL):
            raise AssertionError(f"a test tried to reach {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)
    yield


@pytest.fixture
def settings() -> Settings:
    """Settings whose folders are this test's own."""
    return load(dict(os.environ))


@dataclass
class Captured:
    """A console with what it wrote."""

    console: Console
    out: io.StringIO
    err: io.StringIO


@pytest.fixture
def captured() -> Captured:
    """A console for people, captured."""
    out, err = io.StringIO(), io.StringIO()
    return Captured(Console(out=out, err=err), out, err)


@pytest.fixture
def console(captured: Captured) -> Console:
    """Just the console of `captured`."""
    return captured.console


Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cli() -> Cli:
    """Run the command line as a user would: `cli("check", "name", env={...})` -> the completed process."""

    def run(
        *argv: str,
        env: dict[str, str] | None = None,
        timeout: float = 120,
        cwd: Path | None = None,
        stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "recipectl", *argv],
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            cwd=cwd or ROOT,
            input=stdin,
        )

    return run


def need(what: str, reason: str) -> None:
    """Skip for a reason that is printed, unless RECIPECTL_TEST_REQUIRE says that `what` must be here."""
    if what in os.environ.get("RECIPECTL_TEST_REQUIRE", "").split(","):
        pytest.fail(f"{what} is required here: {reason}")
    pytest.skip(f"{what}: {reason}")
