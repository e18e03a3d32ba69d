"""The display of files on their way, where nobody watches and where somebody does."""

from __future__ import annotations

import io
import re
import sys

import pytest

from recipectl.console import Console
from recipectl.transfers import _Lines, size_text, time_text, transfers
from tests.conftest import Captured


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (6_200_000_000, "6.2 GB"), (1.69e12, "1.69 TB")],
)
def test_sizes(count: float, text: str) -> None:
    assert size_text(count) == text


def test_times() -> None:
    assert (time_text(5), time_text(125), time_text(3723)) == ("0:05", "2:05", "1:02:03")


def test_lines_name_files_rate_and_time_left(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Lines, "EVERY_S", 0.0)
    with transfers(captured.console, "pulling target", 200) as shown, shown.file("a.safetensors", 100) as file:
        file.advance(50)
    line = captured.err.getvalue().splitlines()[0]
    assert re.fullmatch(r"pulling target: 50 B of 200 B, [\d.]+ .?B/s, \d+:\d\d left \(a\.safetensors 50%\)", line)
    assert captured.out.getvalue() == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    err = Terminal()
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("TERM", "xterm")
    console = Console(out=io.StringIO(), err=err)
    with transfers(console, "pulling target", 200) as shown, shown.file("a.safetensors", 100) as file:
        file.advance(50)
    assert "a.safetensors" in err.getvalue() and "pulling target" in err.getvalue()
