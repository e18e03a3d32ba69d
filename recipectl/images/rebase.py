"""Move an overlay's patches to another version of the package: a proposal that a person reads. PURE.

Here, and nowhere else, a hunk may stand at another line, provided its context is found exactly once.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from recipectl.errors import RecipeError
from recipectl.images.overlay import Overlay, Step, sha256
from recipectl.images.unidiff import Hunk, parse, places, split

_NEAREST_CUTOFF = 0.5


@dataclass(frozen=True)
class Rebased:
    """The new patch of one file, or what stands in its way. `diff` is None where a person has to decide."""

    step: Step
    before: str | None
    after: str | None
    diff: str | None
    notes: tuple[str, ...]


def rebase(overlay: Overlay, read: Callable[[str], bytes | None]) -> list[Rebased]:
    """A proposal for each own patch against the tree that `read` opens, patches of one file one after the other."""
    current: dict[str, str] = {}
    out = []
    for step in overlay.steps:
        if step.patch.foreign or step.text is None:
            out.append(Rebased(step, None, None, None, ("foreign: ask its publisher",)))
            continue
        file = step.patch.file
        data = read(file)
        if data is None:
            out.append(Rebased(step, None, None, None, (f"{file} is not in this tree",)))
            continue
        text = current.get(file, data.decode("utf-8", "surrogateescape"))
        done, new = _one(step, text)
        out.append(done)
        if new is not None:
            current[file] = new
    return out


def _one(step: Step, text: str) -> tuple[Rebased, str | None]:
    assert step.text is not None
    file, lines = step.patch.file, split(text)
    before = _sha(text)
    if before == step.patch.before:
        return Rebased(step, before, step.patch.after, step.text, ("unchanged: the patch fits as it is",)), None
    diff = next((d for d in parse(step.text, step.name) if d.path == file), None)
    if diff is None:
        raise RecipeError("the diff does not change the file that the manifest names", on=step.name, expected=file)
    notes, edits = [], []
    for number, hunk in enumerate(diff.hunks, 1):
        found = places(lines, hunk.old)
        if len(found) == 1:
            edits.append((found[0], hunk))
            moved = found[0] - hunk.start
            notes.append(f"hunk {number}: line {found[0]}" + (f" ({moved:+d})" if moved else ""))
        else:
            notes += _conflict(number, hunk, lines, found)
    if len(edits) < len(diff.hunks):
        return Rebased(step, before, None, None, tuple(notes)), None
    new = list(lines)
    for at, hunk in sorted(edits, key=lambda e: -e[0]):
        new[at - 1 : at - 1 + len(hunk.old)] = hunk.new
    result = "".join(new)
    return Rebased(step, before, _sha(result), unified(file, lines, new), tuple(notes)), result


def _sha(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape"))


def unified(file: str, old: list[str], new: list[str]) -> str:
    """A unified diff with as much context as makes each hunk's place unique (3 lines at least)."""
    for context in (3, 5, 8, 12, 20):
        out = []
        for line in difflib.unified_diff(old, new, f"a/{file}", f"b/{file}", n=context):
            out.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
        text = "".join(out)
        if all(len(places(old, h.old)) == 1 for d in parse(text, file) for h in d.hunks):
            break
    return text


def _conflict(number: int, hunk: Hunk, lines: list[str], found: list[int]) -> list[str]:
    if found:
        return [f"hunk {number}: its context stands at lines {', '.join(map(str, found))}: choose one by hand"]
    if places(lines, hunk.new):
        return [f"hunk {number}: upstream has this change already: drop the hunk, or retire the overlay"]
    at, ratio = _nearest(lines, hunk)
    if ratio < _NEAREST_CUTOFF:
        return [f"hunk {number}: nothing like its context is in the file"]
    there = lines[at - 1 : at - 1 + len(hunk.old)]
    shown = [line.rstrip("\n") for line in difflib.ndiff(list(hunk.old), there) if not line.startswith("?")]
    return [f"hunk {number}: nearest is line {at}, which differs:", *(f"    {line}" for line in shown)]


def _nearest(lines: list[str], hunk: Hunk) -> tuple[int, float]:
    """The place whose lines share most with the hunk's context."""
    wanted = set(hunk.old)
    best = (1, 0.0)
    for at in range(max(1, len(lines) - len(hunk.old) + 1)):
        shared = sum(line in wanted for line in lines[at : at + len(hunk.old)]) / len(hunk.old)
        if shared > best[1]:
            best = (at + 1, shared)
    return best
