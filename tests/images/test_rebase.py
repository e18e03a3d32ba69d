"""Rebasing: a proposal where the context is found once, words where a person has to decide."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipectl.images.overlay_files import load
from recipectl.images.rebase import Rebased, rebase
from recipectl.images.unidiff import apply, parse
from recipectl.settings import Settings

from .conftest import FIRST_NEW, FIRST_PATCH, FIRST_PY, manifest, sha, write_overlay


@pytest.fixture
def rebased(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    write_overlay(tmp_path)

    def run(text: str | None) -> Rebased:
        (only,) = rebase(load(settings, "toy-overlay"), lambda path: None if text is None else text.encode())
        return only

    return run


def test_moved_lines(rebased) -> None:  # type: ignore[no-untyped-def]
    new = "# one\n# two\n" + FIRST_PY
    got = rebased(new)
    assert got.notes == ("hunk 1: line 21 (+2)",)
    assert got.before == sha(new)
    (only,) = parse(got.diff, "p")
    assert apply(new, only, "p") == "# one\n# two\n" + FIRST_NEW
    assert got.after == sha("# one\n# two\n" + FIRST_NEW)


def test_the_same_version(rebased) -> None:  # type: ignore[no-untyped-def]
    got = rebased(FIRST_PY)
    assert got.diff == FIRST_PATCH
    assert "fits as it is" in got.notes[0]


def test_a_conflict_shows_the_nearest_place(rebased) -> None:  # type: ignore[no-untyped-def]
    got = rebased(FIRST_PY.replace("x20 = 20\n", "x20 = 'twenty'\n"))
    assert got.diff is None
    assert got.notes[0] == "hunk 1: nearest is line 19, which differs:"
    assert "    - x20 = 20" in got.notes and "    + x20 = 'twenty'" in got.notes


def test_upstream_has_it(rebased) -> None:  # type: ignore[no-untyped-def]
    assert "upstream has this change already" in rebased(FIRST_NEW).notes[0]


def test_nothing_alike_and_no_file(rebased) -> None:  # type: ignore[no-untyped-def]
    assert "nothing like its context" in rebased("print('other')\n").notes[0]
    assert "not in this tree" in rebased(None).notes[0]


def test_context_that_stands_twice(rebased) -> None:  # type: ignore[no-untyped-def]
    got = rebased(FIRST_PY + FIRST_PY)
    assert got.diff is None
    assert "stands at lines 19, 60" in got.notes[0]


def test_a_proposal_has_enough_context_to_be_unique(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where three lines of context would stand twice, the new diff carries more."""
    monkeypatch.chdir(tmp_path)
    block = "".join(f"b{n}\n" for n in range(12))
    old = "top\n" + block + "middle\n" + block + "end\n"
    wide = old.replace("middle\nb0\nb1\nb2\nb3\nb4\nb5", "middle\nb0\nb1\nb2\nb3\nb4\nB5")
    from recipectl.images.rebase import unified
    from recipectl.images.unidiff import split

    diff = unified("toy/first.py", split(old), split(wide))
    patches = [{**manifest()["patches"][0], "before": sha(old), "after": sha(wide)}]
    write_overlay(tmp_path, {"first.patch": diff}, patches=patches)
    (only,) = parse(diff, "p")
    assert apply(old, only, "p") == wide
    (got,) = rebase(load(settings, "toy-overlay"), lambda path: ("# new\n" + old).encode())
    assert got.diff is not None
    (only,) = parse(got.diff, "p")
    assert apply("# new\n" + old, only, "p") == "# new\n" + wide
