"""What the gates look at, as plain data, and the port they get it through. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from recipectl.bench.acceptance import Scrape


@dataclass(frozen=True)
class Reply:
    """One generation. `error` is set where there is no answer; `seconds` is the whole request on our clock."""

    text: str = ""
    finish: str | None = None
    tokens: int = 0
    seconds: float = 0.0
    error: str | None = None


@dataclass(frozen=True)
class RankState:
    """One rank as its runtime sees it. `log` is the whole log so far, by lines; `exit` says how it ended."""

    rank: int
    host: str
    alive: bool
    log: Sequence[str]
    exit: str | None = None


class Probes(Protocol):
    """Where the gates get their observations from: a real server, or a scripted one in tests."""

    def ranks(self) -> list[RankState]: ...
    def health(self) -> int | None: ...
    def models(self) -> list[str]: ...
    def scrape(self) -> Scrape: ...
    def generate(self, prompts: Sequence[str], max_tokens: int, temperature: float = 0.0) -> list[Reply]: ...
    def status_without_key(self) -> int | None: ...
