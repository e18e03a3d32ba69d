"""The only writer. Answers go to stdout, progress and notices to stderr, secrets nowhere.

Plain on a pipe, rich on a terminal (imported only there: it costs 60 ms), one JSON document with `--json`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TextIO

from recipectl import tables
from recipectl.errors import RecipectlError

# What tokens look like, wherever they come from; known values are added by `hide`.
_SECRET = re.compile(
    r"\b(hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9\-_]{8,})|(?i:(bearer\s+|api[_-]?key[=:]\s*|token[=:]\s*))([^\s\"',]{6,})"
)


def columns(stream: TextIO, environ: Mapping[str, str]) -> int | None:
    """How wide a table may be: COLUMNS, else what the terminal says. None for pipes and files: whole lines for grep."""
    if (given := environ.get("COLUMNS", "")).isdigit() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


class Progress(Protocol):
    """A running display: advance by an amount, or replace the text of the line."""

    def advance(self, amount: float = 1) -> None: ...
    def describe(self, text: str) -> None: ...


class Console:
    """Writes for people or for programs. Tests give their own streams.

    A stdout that takes no more breaks nothing off: work that has begun ends as it should. `heard` says that nobody
    reads on, as after `| head`; `unwritten` is why, unless the reader just left.
    """

    def __init__(
        self, *, json_mode: bool = False, quiet: bool = False, out: TextIO | None = None, err: TextIO | None = None,
        width: int | None = None,
    ) -> None:  # fmt: skip
        self.json_mode = json_mode
        self.quiet = quiet
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self.width = width
        self._hidden: set[str] = set()
        self.unwritten: OSError | None = None
        self.heard = True

    @property
    def interactive(self) -> bool:
        """Whether a person watches stderr."""
        return bool(self._err.isatty()) and not self.quiet and not self.json_mode

    def hide(self, *secrets: str | None) -> None:
        """Never print these values, whole or inside other text."""
        self._hidden.update(s for s in secrets if s and len(s) >= 4)

    def redact(self, text: str) -> str:
        """The text without known or recognisable secrets."""
        for secret in self._hidden:
            text = text.replace(secret, "***")
        return _SECRET.sub(lambda m: (m.group(2) or "") + "***", text)

    def print(self, text: str = "") -> None:
        """A line of the answer. Silent with --json, where `document` is the answer."""
        if not self.json_mode:
            self._write(self._out, text)

    def document(self, value: object) -> None:
        """The answer as one JSON document, with --json only."""
        if self.json_mode:
            self.data(value)

    def data(self, value: object) -> None:
        """An answer that is a JSON document in any case, such as a schema."""
        self._write(self._out, json.dumps(value, indent=2, ensure_ascii=False, default=str))

    def notice(self, text: str) -> None:
        """Something worth knowing that is not the answer (stderr)."""
        if not self.quiet:
            self._write(self._err, text)

    def warn(self, text: str) -> None:
        """A warning (stderr), also with --quiet."""
        self._write(self._err, f"warning: {text}")

    def error(self, error: RecipectlError) -> None:
        """An error: to stderr for people, as the JSON document with --json."""
        if self.json_mode and self.heard:
            self.document(error.to_json())
        else:
            self._write(self._err, "\n".join(error.lines()))

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[object]], below: Sequence[str] = ()) -> None:
        """An aligned plain table. On a terminal that is too narrow, the columns `below` go beneath each row."""
        for line in tables.lines(headers, rows, self.width, below):
            self.print(line)

    @contextlib.contextmanager
    def progress(self, text: str, total: float | None = None, *, unit: str = "") -> Iterator[Progress]:
        """A progress display on stderr: a live bar on a terminal, a line every ten seconds elsewhere."""
        if self.interactive:
            with _rich_progress(text, total, unit, self.redact) as shown:
                yield shown
        else:
            yield _Lines(self, text, total, unit)

    def _write(self, stream: TextIO, text: str) -> None:
        if stream is self._out and not self.heard:
            return
        try:
            stream.write(self.redact(text) + "\n")
            stream.flush()
        except OSError as error:
            if stream is self._out:
                self.heard, self.unwritten = False, None if isinstance(error, BrokenPipeError) else error


class _Lines:
    """Progress where nobody watches live: sparse lines, so that CI logs stay readable."""

    EVERY_S = 10.0

    def __init__(self, console: Console, text: str, total: float | None, unit: str) -> None:
        self._console, self._text, self._total, self._unit = console, text, total, unit
        self._done, self._said, self._start = 0.0, time.monotonic(), time.monotonic()

    def advance(self, amount: float = 1) -> None:
        self._done += amount
        self._say()

    def describe(self, text: str) -> None:
        self._text = text
        self._say()

    def _say(self) -> None:
        now = time.monotonic()
        if now - self._said < self.EVERY_S:
            return
        self._said = now
        share = f" {100 * self._done / self._total:.0f}%" if self._total else ""
        self._console.notice(f"{self._text}{share} ({now - self._start:.0f} s)")


@contextlib.contextmanager
def _rich_progress(text: str, total: float | None, unit: str, redact: object) -> Iterator[Progress]:
    from rich.console import Console as RichConsole
    from rich.progress import (  # 60 ms: only where a person watches
        BarColumn,
        DownloadColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import (
        Progress as Bar,
    )

    bytes_ = unit == "B"
    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        *([BarColumn()] if total else []),
        *([DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()] if bytes_ else []),
        TimeElapsedColumn(),
    ]
    bar = Bar(*columns, console=RichConsole(stderr=True), transient=True)
    clean = redact if callable(redact) else str

    class Shown:
        def __init__(self) -> None:
            self.task = bar.add_task(clean(text), total=total)

        def advance(self, amount: float = 1) -> None:
            bar.advance(self.task, amount)

        def describe(self, line: str) -> None:
            bar.update(self.task, description=clean(line))

    with bar:
        yield Shown()
