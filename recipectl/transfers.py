"""The display of many files on their way at once: each with its share, the whole with rate and time left."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from recipectl.console import Console, Progress


class Transfers(Protocol):
    """A running display. Safe to use from several threads."""

    def file(self, name: str, size: int) -> contextlib.AbstractContextManager[Progress]:
        """Show one file of `size` bytes while the context lasts; what it advances counts for the whole."""
        ...


def size_text(count: float) -> str:
    """Bytes for people, in powers of 1000 as disks and the hub count: `6.2 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} TB"


def time_text(seconds: float) -> str:
    """`1:02:03` or `2:03`."""
    minutes, s = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{s:02}" if hours else f"{minutes}:{s:02}"


@contextlib.contextmanager
def transfers(console: Console, text: str, total: int) -> Iterator[Transfers]:
    """A bar a file and one for the whole on a terminal; elsewhere a line every ten seconds."""
    if console.interactive:
        with _bars(text, total, console.redact) as shown:
            yield shown
    else:
        yield _Lines(console, text, total)


class _Lines:
    """Sparse lines, so that logs stay readable: done of total, rate, time left, then the files under way."""

    EVERY_S = 10.0

    def __init__(self, console: Console, text: str, total: int) -> None:
        self._console, self._text, self._total = console, text, total
        self._done, self._start, self._said = 0.0, time.monotonic(), time.monotonic()
        self._files: dict[str, list[float]] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def file(self, name: str, size: int) -> Iterator[Progress]:
        self._files[name] = [0.0, float(size)]
        try:
            yield _LineFile(self, name)
        finally:
            self._files.pop(name, None)

    def moved(self, name: str, amount: float) -> None:
        with self._lock:
            self._done += amount
            self._files[name][0] += amount
            now = time.monotonic()
            if now - self._said < self.EVERY_S:
                return
            self._said = now
            rate = self._done / (now - self._start)
            left = time_text((self._total - self._done) / rate) if rate > 0 else "?"
            files = ", ".join(f"{n} {100 * d / max(s, 1):.0f}%" for n, (d, s) in sorted(self._files.items()))
        done, total = size_text(self._done), size_text(self._total)
        self._console.notice(f"{self._text}: {done} of {total}, {size_text(rate)}/s, {left} left ({files})")


class _LineFile:
    def __init__(self, lines: _Lines, name: str) -> None:
        self._lines, self._name = lines, name

    def advance(self, amount: float = 1) -> None:
        self._lines.moved(self._name, amount)

    def describe(self, text: str) -> None:
        """The line names the file; there is no room for more."""


@contextlib.contextmanager
def _bars(text: str, total: int, redact: Callable[[str], str]) -> Iterator[Transfers]:
    from rich.console import Console as RichConsole
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    bars = Bars(*columns, console=RichConsole(stderr=True), transient=True)
    whole = bars.add_task(redact(text), total=total)

    class File:
        def __init__(self, name: str, size: int) -> None:
            self.task = bars.add_task(redact(f"  {name}"), total=size)

        def advance(self, amount: float = 1) -> None:
            bars.advance(self.task, amount)
            bars.advance(whole, amount)

        def describe(self, line: str) -> None:
            bars.update(self.task, description=redact(f"  {line}"))

    class Shown:
        @contextlib.contextmanager
        def file(self, name: str, size: int) -> Iterator[Progress]:
            shown = File(name, size)
            try:
                yield shown
            finally:
                bars.remove_task(shown.task)

    with bars:
        yield Shown()
