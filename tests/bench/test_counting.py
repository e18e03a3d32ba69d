from __future__ import annotations

import pytest

from recipectl.bench.counting import check

FULL = ", ".join(map(str, range(1, 201)))


def test_exact_to_the_end() -> None:
    c = check(FULL, 200, truncated=False)
    assert (c.exact, c.reached, c.complete, c.separator) == (True, 200, True, "comma")
    assert check(FULL.replace(", ", " "), 200, truncated=False).separator == "space"


@pytest.mark.parametrize(("text", "reached"), [("1, 2, 3, 4", 4), ("1, 2, 3, ", 3), ("8, 9"[:0] + "1, 2, 3,", 3)])
def test_cut_by_max_tokens(text: str, reached: int) -> None:
    c = check(text, 200, truncated=True)
    assert (c.exact, c.reached, c.complete) == (True, reached, False)


def test_the_last_number_may_be_a_stump_only_where_it_was_cut() -> None:
    text = ", ".join(map(str, range(1, 103)))[:-2]  # ends in "..., 101, 1", the 102 was cut
    assert check(text, 200, truncated=True).exact
    c = check(text, 200, truncated=False)
    assert (c.exact, c.wrong_at, c.seen) == (False, 102, "1")


@pytest.mark.parametrize(
    ("text", "at", "seen"),
    [
        ("1, 2, 4, 5", 3, "4"),
        ("1, 2, 3, 3, 4", 4, "3"),
        ("Sure! 1, 2, 33", 3, "33"),
        ("no numbers", 1, "no numbers"),
        ("", 1, "no text"),
        (FULL + ", 201", 201, "201"),
    ],
)
def test_first_wrong_number(text: str, at: int, seen: str) -> None:
    c = check(text, 200, truncated=True)
    assert (c.exact, c.wrong_at, c.seen) == (False, at, seen)


def test_stopping_early_is_wrong() -> None:
    c = check("1, 2, 3", 200, truncated=False)
    assert (c.exact, c.reached, c.wrong_at) == (False, 3, 4)
