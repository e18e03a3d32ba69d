"""A finding: one thing wrong with a file, with its place, code, level and fix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """`line` and `column` count from 1; 0 means the file as a whole. `where` is the path inside the file."""

    code: str
    level: Level
    file: str
    line: int
    column: int
    where: str
    message: str
    fix: str | None = None

    def lines(self) -> list[str]:
        """`file:line:col: error[CODE] where: message`, then the fix."""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        head = f"{place}: {self.level}[{self.code}] {self.where + ': ' if self.where else ''}{self.message}"
        return [head, f"  fix: {self.fix}"] if self.fix else [head]

    def to_json(self) -> dict[str, object]:
        """For `--json`."""
        return asdict(self)


def in_file_order(findings: Iterable[Finding]) -> list[Finding]:
    """By file, line and column, errors first at one place."""
    return sorted(findings, key=lambda f: (f.file, f.line, f.column, f.level != "error", f.code))
