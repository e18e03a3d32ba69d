"""Hunks fit exactly, or the message says why not."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipectl.errors import RecipeError
from recipectl.images.unidiff import apply, parse, places, split

OLD = "".join(f"{n}\n" for n in range(1, 31))
NEW = OLD.replace("15\n", "fifteen\n")


def diff(old: str, new: str, context: int = 3, path: str = "f.py") -> str:
    out = []
    for line in difflib.unified_diff(split(old), split(new), f"a/{path}", f"b/{path}", n=context):
        out.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return "".join(out)


def patched(old: str, text: str) -> str:
    (only,) = parse(text, "p.patch")
    return apply(old, only, "p.patch")


def refused(old: str, text: str) -> RecipeError:
    with pytest.raises(RecipeError) as caught:
        patched(old, text)
    return caught.value


def test_a_hunk_at_its_place() -> None:
    assert patched(OLD, diff(OLD, NEW)) == NEW


def test_one_line_off_is_refused() -> None:
    """GNU patch would say "Hunk #1 succeeded (offset 1 line)"."""
    err = refused("extra\n" + OLD, diff(OLD, NEW))
    assert err.exit_code == 3
    assert "off its place" in err.what
    assert (err.seen, err.expected) == ("its context stands at line 13", "line 12, exactly")
    assert "--rebase" in str(err.next_step)


def test_context_that_matches_twice_is_refused_even_at_its_place() -> None:
    old = "a\nb\nc\nd\n" * 3
    err = refused(old, "--- a/f.py\n+++ b/f.py\n@@ -5,3 +5,3 @@\n a\n-b\n+B\n c\n")
    assert "matches more than once" in err.what
    assert err.seen == "lines 1, 5, 9"


def test_fuzz_is_refused() -> None:
    """One context line differs: `patch` would apply it with fuzz 1."""
    err = refused(OLD.replace("12\n", "twelve\n"), diff(OLD, NEW))
    assert "does not match" in err.what
    assert err.seen == "line 12: 'twelve'"
    assert err.expected == "'12'"


def test_line_ends_that_differ_are_named_and_the_same_ones_fit() -> None:
    dos_old, dos = OLD.replace("\n", "\r\n"), diff(OLD, NEW).replace("\n", "\r\n")
    assert patched(dos_old, dos) == NEW.replace("\n", "\r\n")
    assert refused(OLD, dos).seen == "CRLF in the patch alone"
    assert refused(dos_old, diff(OLD, NEW)).seen == "CRLF in the file alone"


def test_applied_already() -> None:
    assert "applied already" in refused(NEW, diff(OLD, NEW)).what


def test_hunk_without_context() -> None:
    assert "proves nothing" in refused(OLD, diff(OLD, OLD.replace("15\n", "15\nnew\n"), context=0)).what


def test_wrong_counts() -> None:
    broken = diff(OLD, NEW).replace("-12,7 +12,7", "-12,8 +12,7")
    err = refused(OLD, broken)
    assert "number of lines" in err.what
    assert err.on == "p.patch:3"


def test_line_numbers_that_do_not_add_up() -> None:
    two = diff(OLD, OLD.replace("5\n", "five\nand more\n", 1).replace("25\n", "twenty-five\n"))
    text = two.replace("+23,7", "+22,7")
    assert "do not add up" in refused(OLD, text).what


def test_binary_parts_are_refused() -> None:
    """Such parts are in a published backport diff (compiled .pyc files)."""
    text = "diff --git a/x.pyc b/x.pyc\nBinary files /dev/null and b/x.pyc differ\n" + diff(OLD, NEW)
    assert "binary part" in refused(OLD, text).what


def test_text_that_is_no_diff() -> None:
    assert "not a unified diff" in refused(OLD, "hello\n").what


def test_deleting_a_file_is_refused() -> None:
    with pytest.raises(RecipeError, match="deletes a file"):
        parse("--- a/f.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "p")


def test_creating_a_file() -> None:
    (made,) = parse("--- /dev/null\n+++ b/f.py\n@@ -0,0 +1,2 @@\n+x\n+y\n", "p")
    assert made.creates
    assert apply("", made, "p") == "x\ny\n"


def test_git_headers_and_several_files() -> None:
    text = "diff --git a/f.py b/f.py\nindex 1..2 100644\n" + diff(OLD, NEW) + diff(OLD, NEW, path="g.py")
    assert [d.path for d in parse(text, "p")] == ["f.py", "g.py"]


@pytest.mark.parametrize(
    ("old", "new"), [("a\nb", "a\nc"), ("a\nb", "a\nb\n"), ("a\nb\n", "a\nb"), ("a\r\nb\r\n", "a\r\nc\r\n")]
)
def test_ends_of_files_and_lines(old: str, new: str) -> None:
    assert patched(old, diff(old, new)) == new


def test_other_separators_are_no_line_ends() -> None:
    """str.splitlines cuts at form feeds and U+2028; a diff does not."""
    old = "a\x0cb\u2028c\nd\n"
    assert patched(old, diff(old, old.replace("d", "e"))) == old.replace("d", "e")


LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=3), max_size=25)


@given(LINES, LINES)
def test_whatever_difflib_writes_applies_or_is_ambiguous(old_lines: list[str], new_lines: list[str]) -> None:
    """The applier agrees with another implementation, or refuses because a context is not unique."""
    old, new = ("".join(line + "\n" for line in lines) for lines in (old_lines, new_lines))
    text = diff(old, new)
    if not text:
        return
    try:
        assert patched(old, text) == new
    except RecipeError as err:
        (only,) = parse(text, "p") if "proves nothing" not in err.what else (None,)
        assert only is None or any(len(places(split(old), h.old)) != 1 for h in only.hunks)
