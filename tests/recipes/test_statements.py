"""Every statement of the published documents stands where the yardstick says, and the book is up to date."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.recipes import yardstick


@pytest.mark.parametrize("statement", yardstick.statements(), ids=lambda s: s.id)
def test_the_statement_has_its_place(statement: yardstick.Statement) -> None:
    assert statement.at, "a statement without a place proves nothing"
    problems = [problem for place in statement.at if (problem := place.problem())]
    assert not problems, f"{statement.says}\n" + "\n".join(problems)


def test_the_yardstick_covers_all_four_documents() -> None:
    statements = yardstick.statements()
    assert len({s.id for s in statements}) == len(statements)
    assert {s.kind for s in statements} == {"number", "constraint", "caveat", "credit", "fact"}
    per_document = Counter(s.id[:2] for s in statements)
    assert set(per_document) == set(yardstick.documents())
    assert min(per_document.values()) >= 30


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        (yardstick.Place("glm53-flash-dflash2", "lanes.sm121.args.max_model_len", value=1), "327680"),
        (yardstick.Place("glm53-flash-dflash2", "lanes.sm121.args.no_such", value=1), "no_such"),
        (yardstick.Place("glm53-flash-dflash2", "provenance.caveats", has=("no such words",)), "nothing there"),
        (yardstick.Place("glm53-flash-dflash2", "lanes.sm121.bench[protocol=none]", value=1), "0 elements"),
    ],
)
def test_a_place_that_does_not_hold_is_reported(place: yardstick.Place, complaint: str) -> None:
    problem = place.problem()
    assert problem is not None
    assert complaint in problem


def test_the_book_is_generated_from_the_yardstick() -> None:
    assert yardstick.BOOK.read_text() == yardstick.book(), "run: python tests/recipes/yardstick.py"
