"""Unified diffs, applied exactly: a hunk fits at its stated line and nowhere else, or it is refused. PURE.

`patch` and `git apply` search for a place and tolerate differences (offset, fuzz). That is how a hunk of a backport
lands in the wrong function and still "applies", so nothing of the kind exists here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from recipectl.errors import RecipeError

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_UNSUPPORTED = ("rename from", "rename to", "copy from", "copy to", "GIT binary patch", "Binary files ")
NO_NEWLINE = "\\ No newline at end of file"


@dataclass(frozen=True)
class Hunk:
    """One hunk: `old` and `new` are whole lines with their ends, `start` the 1-based line in the old file."""

    start: int
    new_start: int
    old: tuple[str, ...]
    new: tuple[str, ...]
    diff_line: int


@dataclass(frozen=True)
class FileDiff:
    """The hunks of one file. `creates` is true for a file that must not exist before."""

    path: str
    hunks: tuple[Hunk, ...]
    creates: bool = False


def parse(text: str, name: str) -> list[FileDiff]:
    """All file diffs of a text. `name` is the diff's own file name, for messages.

    RecipeError for anything but plain text hunks: binary parts, renames, wrong counts, hunks without context.
    """
    lines = text.split("\n")
    out: list[FileDiff] = []
    index = 0
    while index < len(lines):
        line = lines[index]
        if line.startswith(_UNSUPPORTED):
            raise RecipeError(
                "the diff holds a binary part, a rename or a copy",
                on=f"{name}:{index + 1}", seen=line[:100], expected="text hunks only",
                next_step="make the diff anew from sources without compiled files",
            )  # fmt: skip
        if line.startswith("--- ") and index + 1 < len(lines) and lines[index + 1].startswith("+++ "):
            old, new = _path(line), _path(lines[index + 1])
            hunks, index = _hunks(lines, index + 2, name, creates=old == "/dev/null")
            out.append(FileDiff(old if new == "/dev/null" else new, tuple(hunks), creates=old == "/dev/null"))
            if new == "/dev/null":
                raise RecipeError("the diff deletes a file: overlays only change and add", on=name, seen=old)
        elif line.startswith("@@"):
            raise RecipeError("a hunk stands before any --- and +++ line", on=f"{name}:{index + 1}")
        else:
            index += 1
    if not out:
        raise RecipeError("this is not a unified diff", on=name, expected="lines starting with ---, +++ and @@")
    return out


def _path(line: str) -> str:
    path = line[4:].split("\t", maxsplit=1)[0].strip()
    return path[2:] if path.startswith(("a/", "b/")) else path


def _hunks(lines: list[str], index: int, name: str, *, creates: bool) -> tuple[list[Hunk], int]:
    hunks: list[Hunk] = []
    delta = 0
    while index < len(lines) and (found := _HUNK.match(lines[index])):
        start, old_n, new_start, new_n = (int(g) if g else 1 for g in found.groups())
        at = index + 1
        old, new, index = _body(lines, index + 1, old_n, new_n, f"{name}:{at}")
        if not old and not creates:
            raise RecipeError(
                "a hunk without context proves nothing about its place", on=f"{name}:{at}", seen=lines[at - 1],
                expected="context lines (diff -U3)",
            )  # fmt: skip
        shift = delta if new_n else delta - 1  # a hunk that leaves nothing names the line before it
        if not creates and new_start != start + shift:
            raise RecipeError(
                "the line numbers of a hunk do not add up", on=f"{name}:{at}", seen=f"+{new_start}",
                expected=f"+{start + shift}", next_step="make the diff anew instead of editing it by hand",
            )  # fmt: skip
        hunks.append(Hunk(start, new_start, tuple(old), tuple(new), at))
        delta += len(new) - len(old)
    if not hunks:
        raise RecipeError("a file in the diff has no hunks", on=f"{name}:{index}")
    return hunks, index


def _body(lines: list[str], index: int, old_n: int, new_n: int, where: str) -> tuple[list[str], list[str], int]:
    """The old and new lines of a hunk that starts at `index`, and the index behind it."""
    old: list[str] = []
    new: list[str] = []
    last: tuple[list[str], ...] = ()
    while index < len(lines):
        line = lines[index]
        mark, rest = (line[:1] or " "), line[1:]
        if line.startswith(NO_NEWLINE[:12]):
            for side in last:
                side[-1] = side[-1].removesuffix("\n")
            index += 1
            continue
        if len(old) >= old_n and len(new) >= new_n:
            break
        sides = {" ": (old, new), "-": (old,), "+": (new,)}.get(mark)
        if sides is None or (line == "" and index == len(lines) - 1):
            break
        for side in sides:
            side.append(rest + "\n")
        last, index = sides, index + 1
    if (len(old), len(new)) != (old_n, new_n):
        raise RecipeError(
            "a hunk does not have the number of lines that it states", on=where,
            seen=f"-{len(old)} +{len(new)}", expected=f"-{old_n} +{new_n}",
            next_step="make the diff anew instead of editing it by hand",
        )  # fmt: skip
    return old, new, index


def apply(text: str, diff: FileDiff, name: str) -> str:
    """The patched text. RecipeError names the hunk, its line and what stands there instead.

    All hunks are placed against the unpatched text, as their line numbers mean it.
    """
    lines = split(text)
    out: list[str] = []
    done = 0
    for number, hunk in enumerate(diff.hunks, 1):
        at = hunk.start - 1
        if diff.creates:
            return "".join(hunk.new)
        _must_fit(lines, hunk, number, diff.path, name)
        if at < done:
            raise RecipeError("two hunks overlap", on=f"{name}:{hunk.diff_line}", seen=f"line {hunk.start}")
        out += [*lines[done:at], *hunk.new]
        done = at + len(hunk.old)
    return "".join([*out, *lines[done:]])


def split(text: str) -> list[str]:
    """Lines that end at \\n alone: str.splitlines would cut at other characters too."""
    *whole, tail = text.split("\n")
    return [line + "\n" for line in whole] + ([tail] if tail else [])


def places(lines: list[str], block: tuple[str, ...]) -> list[int]:
    """1-based lines at which a block of whole lines stands."""
    size = len(block)
    if not size:
        return []
    return [i + 1 for i in range(len(lines) - size + 1) if lines[i] == block[0] and tuple(lines[i : i + size]) == block]


def _must_fit(lines: list[str], hunk: Hunk, number: int, path: str, name: str) -> None:
    found = places(lines, hunk.old)
    if found == [hunk.start]:
        return
    on = f"{name}:{hunk.diff_line}, hunk {number} of {path}"
    rebase = "regenerate the patch for this version: recipectl check overlays/NAME --tree DIR --rebase"
    if hunk.start in found:
        raise RecipeError(
            "the context of a hunk matches more than once, so its place is a guess", on=on,
            seen="lines " + ", ".join(map(str, found)), expected="exactly one place",
            next_step="make the diff with more context lines (diff -U8)",
        )  # fmt: skip
    if places(lines, hunk.new):
        raise RecipeError("this hunk has been applied already", on=on, next_step="start from the unpatched file")
    if found:
        raise RecipeError(
            "a hunk is off its place", on=on, seen="its context stands at line " + ", ".join(map(str, found)),
            expected=f"line {hunk.start}, exactly", next_step=rebase,
        )  # fmt: skip
    if places([_unix(line) for line in lines], tuple(map(_unix, hunk.old))):
        crlf = any(line.endswith("\r\n") for line in hunk.old)
        raise RecipeError(
            "only the line ends of a hunk differ", on=on, seen=f"CRLF in the {'patch' if crlf else 'file'} alone",
            expected="the same line ends in both", next_step="make the diff anew from the file as it is, byte for byte",
        )  # fmt: skip
    offset, wanted, seen = _first_difference(lines, hunk)
    raise RecipeError(
        "the context of a hunk does not match", on=on, seen=f"line {hunk.start + offset}: {seen!r}",
        expected=f"{wanted!r}", next_step=rebase,
    )  # fmt: skip


def _unix(line: str) -> str:
    return line[:-2] + "\n" if line.endswith("\r\n") else line


def _first_difference(lines: list[str], hunk: Hunk) -> tuple[int, str, str]:
    for offset, wanted in enumerate(hunk.old):
        at = hunk.start - 1 + offset
        seen = lines[at] if at < len(lines) else "end of file"
        if seen != wanted:
            return offset, wanted.rstrip("\n"), seen.rstrip("\n")
    return 0, hunk.old[0], "end of file"
