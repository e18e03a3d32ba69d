"""Tables in the width that there is: nothing is lost, and nothing sticks out."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipectl.console import columns
from recipectl.tables import lines

from .conftest import ROOT

HEADERS = ["rule", "verdict", "what", "source"]
ROWS = [["K001", "PASS", "5 <= 7 (dflash: block_size 8 minus 1)", "vLLM"], ["K009", "FAIL", "mask_embedding.pt", None]]


@pytest.mark.parametrize("width", [None, 60])
def test_what_fits_is_one_line_a_row(width: int | None) -> None:
    assert list(lines(HEADERS, ROWS, width, ["source"])) == [
        "rule  verdict  what                                   source",
        "----  -------  -------------------------------------  ------",
        "K001  PASS     5 <= 7 (dflash: block_size 8 minus 1)  vLLM",
        "K009  FAIL     mask_embedding.pt",
    ]


def test_a_column_moves_below_its_row_and_then_the_rest_wraps() -> None:
    assert list(lines(HEADERS, ROWS, 44, ["source"])) == [
        "rule  verdict  what",
        "    source",
        "----  -------  -----------------------------",
        "K001  PASS     5 <= 7 (dflash: block_size 8",
        "               minus 1)",
        "    vLLM",
        "K009  FAIL     mask_embedding.pt",
    ]


cells = st.lists(st.text("abc/.", min_size=1, max_size=30), max_size=12).map(" ".join)


@given(st.integers(40, 200), st.lists(st.tuples(cells, cells, cells, cells), max_size=5), st.booleans())
def test_nothing_is_lost_and_nothing_sticks_out(width: int, rows: list[tuple[str, ...]], below: bool) -> None:
    made = list(lines(["W", "X", "Y", "Z"], rows, width, ["X", "Z"] if below else []))
    assert all(len(line) <= width for line in made)
    assert sorted(c for c in "".join(made) if c in "abc/.") == sorted(
        c for row in rows for c in "".join(row).replace(" ", "")
    )


@pytest.mark.parametrize(("environ", "width"), [({"COLUMNS": "77"}, 77), ({"COLUMNS": "wide"}, None), ({}, None)])
def test_a_pipe_has_no_width_unless_one_is_given(environ: dict[str, str], width: int | None) -> None:
    with Path(os.devnull).open("w") as out:
        assert columns(out, environ) == width


def test_the_list_fits_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    process = subprocess.Popen([sys.executable, "-m", "recipectl", "list"], stdout=theirs, cwd=ROOT)
    os.close(theirs)
    text = b""
    while part := _read(ours):
        text += part
    os.close(ours)
    shown = text.decode().splitlines()
    assert process.wait() == 0 and shown[0].startswith("recipe ") and "incoai/GLM-5.3-Flash-DFlash2" in text.decode()
    assert max(map(len, shown)) <= 80


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other side has closed
        return b""
