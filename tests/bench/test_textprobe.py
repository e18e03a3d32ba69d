"""The cheap signs of a broken text: what is one, and what only looks like one."""

from __future__ import annotations

import pytest

from recipectl.bench import lossless
from recipectl.bench.lossless import Scored, judge
from recipectl.bench.textprobe import problems

PROSE = "The keeper climbed the stairs, and the lamp was out. He lit it again, as on every evening, and waited. "


@pytest.mark.parametrize(
    ("text", "truncated", "found"),
    [
        (PROSE, True, []),
        ("", False, []),
        ("one \ufffd two \ufffd three", True, ["2 replacement characters (U+FFFD)"]),
        # A cut at max_tokens splits a character of several bytes; a text that ended by itself has no such excuse.
        ("caf\ufffd", True, []),
        ("caf\ufffd", False, ["1 replacement characters (U+FFFD)"]),
        (PROSE + "!" * 60, True, ["repeats '!' to its end"]),
        (PROSE + "and so on " * 8, True, ["repeats 'and so on ' to its end"]),
        (PROSE + "and so on " * 6, True, []),
        (PROSE + "ha" * 4 + "!", True, []),
        # Counting moves on with every unit, and blank lines are no text.
        (", ".join(map(str, range(1, 201))), True, []),
        (PROSE + "\n" * 30, True, []),
    ],
)
def test_signs(text: str, truncated: bool, found: list[str]) -> None:
    assert problems(text, truncated=truncated) == found


def test_the_losslessness_verdict_tells_them_and_does_not_hang_on_them() -> None:
    tokens = tuple(range(300))
    fine = Scored("p1", tokens, (0.0,) * 300, (False,) * 300)
    looped = Scored("p2", tokens, (0.0,) * 300, (False,) * 300, broken=("repeats 'and so on ' to its end",))
    j = judge([fine, looped], [fine], "float32")
    assert j.verdict == "LOSSLESS"
    assert "  speculation: 1 signs of a broken text, first p2: repeats 'and so on ' to its end" in lossless.lines(j)
    assert j.to_json()["spec"]["broken"] == ["p2: repeats 'and so on ' to its end"]  # type: ignore[index,call-overload]
    assert not [line for line in lossless.lines(j) if line.startswith("  control: 1 signs")]
