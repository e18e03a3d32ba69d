"""What a YAML syntax error means, in plain words. PURE.

The commonest slips of authors (a tab, an open quote, a missing colon or space) have the worst messages in every YAML
library, and PyYAML reports most of them a line late. The table says what was done and points at the line to mend.
"""

from __future__ import annotations

import re

import yaml

# Substring of libyaml's problem -> (message, fix). First match wins.
_PROBLEMS: list[tuple[str, str, str]] = [
    ("mapping values are not allowed", "a second `: ` stands in one value, or this line is indented too far",
     "put the whole value in quotes, or align the key with its neighbours"),
    ("could not find expected ':'", "a key has no colon after it", "write `key: value`, with a space after the colon"),
    ("found unexpected end of stream", "a quote is opened here and never closed", "close the quote on the same line"),
    ("found unexpected document indicator", "a quote is opened here and never closed", "close the quote"),
    ("found unknown escape character", "a backslash in double quotes starts an escape that YAML does not know",
     "use single quotes: they take backslashes as they are"),
    ("found character that cannot start any token", "a plain value cannot start with this character",
     "put the value in quotes"),
    ("did not find expected ',' or '}'", "a { is not closed, or a comma is missing", "close the brace, check commas"),
    ("did not find expected ',' or ']'", "a [ is not closed, or a comma is missing", "close the bracket, check commas"),
    ("did not find expected '-' indicator", "a line stands between list items without its own `- `",
     "start each item with `- `, all at the same indentation"),
    ("did not find expected key", "this line does not line up with the keys above it, or text follows a closed quote",
     "align the key with its neighbours; put quotes around the whole value"),
    ("block sequence entries are not allowed", "a list item `- ` stands where a value was expected",
     "start the list on the next line, indented under its key"),
    ("block mapping", "this line does not line up with the keys above it", "align the key with its neighbours"),
    ("found undefined alias", "a * starts a plain value, which YAML reads as an alias", "put the value in quotes"),
    ("found duplicate anchor", "an & starts a plain value, which YAML reads as an anchor", "put the value in quotes"),
    ("another document", "a second YAML document starts here (---)", "keep one recipe in one file"),
    ("exceeded maximum nesting depth", "values are nested too deep here", "flatten them"),
    ("found undefined tag", "a ! starts a plain value, which YAML reads as a tag", "put the value in quotes"),
]  # fmt: skip


def explain(err: Exception, text: str) -> tuple[int, int, str, str]:
    """Line and column (from 1), message and fix for what the YAML library raised on this text."""
    if isinstance(err, yaml.MarkedYAMLError):
        return _marked(err, text.split("\n"))
    if isinstance(err, yaml.reader.ReaderError):
        line = text.count("\n", 0, min(err.position, len(text))) + 1
        character = ord(err.character) if isinstance(err.character, str) else err.character
        return line, 1, f"a control character (U+{character:04X}) stands in the file", "save it as plain UTF-8 text"
    return 1, 1, f"this is not YAML: {(str(err) or type(err).__name__).splitlines()[0]}", "mend the file"


def _marked(err: yaml.MarkedYAMLError, lines: list[str]) -> tuple[int, int, str, str]:
    problem = err.problem or err.context or ""
    starts_earlier = any(p in problem for p in ("unexpected end of stream", "expected ':'", "',' or"))
    mark = (err.context_mark if starts_earlier else None) or err.problem_mark or err.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    if place := _tab_near(lines, line):
        return *place, "the line is indented with a tab", "indent with spaces: YAML takes no tabs there"
    if place := _open_quote(lines, line):
        return *place, "a quote is opened here and never closed", "close the quote on the same line"
    if "node content" in problem and (last := _last(lines)) < line:
        return last, len(lines[last - 1]) + 1, "the file ends where a value is still open", "close the { or ["
    shown = lines[line - 1].strip() if line <= len(lines) else ""
    quoted = f", in `{shown[:60]}`" if shown else ""
    for part, message, fix in _PROBLEMS:
        if part in problem:
            return line, column, message + quoted, fix
    return line, column, f"this is not YAML: {problem}{quoted}", "mend the line"


def _last(lines: list[str]) -> int:
    """The last line that holds anything."""
    return max((number for number, text in enumerate(lines, 1) if text.strip()), default=1)


def _tab_near(lines: list[str], line: int) -> tuple[int, int] | None:
    """Place of a tab in the indentation of the reported line or of the one before it."""
    for number in (line, line - 1):
        text = lines[number - 1] if 0 < number <= len(lines) else ""
        lead = text[: len(text) - len(text.lstrip())]
        if "\t" in lead and text.strip():
            return number, lead.index("\t") + 1
    return None


def _open_quote(lines: list[str], line: int) -> tuple[int, int] | None:
    """Place of a value on this line or the one before that opens a quote and does not close it."""
    for number in (line - 1, line):
        text = lines[number - 1] if 0 < number <= len(lines) else ""
        found = re.match(r"(\s*(?:- )?[\w.\-]+:\s+)([\"'])(.*)$", text)
        if found and found.group(2) not in found.group(3).replace("\\" + found.group(2), ""):
            return number, len(found.group(1)) + 1
    return None
