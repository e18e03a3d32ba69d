"""The counting probe: is the text the numbers from 1 on, without a slip? PURE and insensitive to near ties."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Literal

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class CountCheck:
    """`exact` for a text that counts right as far as it goes; else `wrong_at` is the place and `seen` what stood there.

    `reached` is the last right number; `complete` says that this was the last one asked for.
    """

    exact: bool
    reached: int
    complete: bool
    wrong_at: int | None = None
    seen: str | None = None
    separator: Literal["comma", "space", "mixed", "other"] | None = None


def check(text: str, to: int, *, truncated: bool) -> CountCheck:
    """Hold a text against 1, 2, 3, ..., `to`. `truncated`: max_tokens cut it, so its last number may be a stump."""
    found = list(_NUMBER.finditer(text))
    separator = _separator(text, found)
    for place, match in enumerate(found, start=1):
        stump = truncated and place == len(found) and match.end() == len(text) and str(place).startswith(match.group())
        if place > to or (match.group() != str(place) and not stump):
            return CountCheck(False, place - 1, False, place, match.group(), separator)
        if stump and match.group() != str(place):
            return CountCheck(True, place - 1, False, separator=separator)
    reached = len(found)
    if reached < to and not truncated:
        return CountCheck(False, reached, False, reached + 1, "the end of the text", separator)
    if reached == 0:
        return CountCheck(False, 0, False, 1, text.strip()[:20] or "no text", separator)
    return CountCheck(True, reached, reached == to, separator=separator)


def _separator(text: str, found: list[re.Match[str]]) -> Literal["comma", "space", "mixed", "other"] | None:
    gaps = {text[a.end() : b.start()] for a, b in itertools.pairwise(found)}
    kinds = {"comma" if g.strip() == "," else "space" if g and not g.strip() else "other" for g in gaps}
    if not kinds:
        return None
    kind = kinds.pop()
    return "mixed" if kinds else "comma" if kind == "comma" else "space" if kind == "space" else "other"
