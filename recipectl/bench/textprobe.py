"""Cheap signs of a broken decode path in a text: replacement characters, endless repetition. PURE."""

from __future__ import annotations

REPEATS = 8
MIN_PERIOD_CHARS = 3


def problems(text: str, *, truncated: bool) -> list[str]:
    """What is wrong with the text, each as one phrase; empty for a text that looks like one.

    `truncated`: max_tokens cut it, so its last character may be half of one.
    """
    found = []
    if count := (text.rstrip("\ufffd") if truncated else text).count("\ufffd"):
        found.append(f"{count} replacement characters (U+FFFD)")
    if loop := repetition(text):
        found.append(f"repeats {loop!r} to its end")
    return found


def repetition(text: str) -> str | None:
    """The unit that the end of the text repeats at least eight times, or None. A NaN-ridden engine says `!!!!`."""
    tail = text[-600:]
    if len(tail) >= 40 and len(set(tail[-40:])) == 1:
        return tail[-1]
    for period in range(MIN_PERIOD_CHARS, len(tail) // REPEATS + 1):
        unit = tail[-period:]
        if tail.endswith(unit * REPEATS) and unit.strip():
            return unit
    return None
