"""Recorded streams and scrapes of real servers, and the mock server for what no recording holds."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from recipectl.bench import sse
from recipectl.bench.mock import Config
from recipectl.bench.selftest import mock_server

DATA = Path(__file__).parents[1] / "data" / "bench"


def text_of(name: str) -> str:
    """A recorded file, unpacked."""
    return gzip.decompress((DATA / f"{name}.gz").read_bytes()).decode()


def recorded(name: str) -> sse.RawStream:
    """A stream recorded as raw reads with milliseconds since the request."""
    head, *rows = [json.loads(line) for line in text_of(name).splitlines()]
    reads = [(round(r["t_ms"] * 1e6), r["raw"].encode()) for r in rows]
    return sse.RawStream(0, reads, head["status"], reads[-1][0])


def recorded_lines(name: str, stream: int = 0) -> sse.RawStream:
    """A stream recorded as lines with seconds since the request (the H200 recordings)."""
    rows = [json.loads(line) for line in text_of(name).splitlines()]
    reads = [(round(r["t"] * 1e9), f"{r['l']}\n\n".encode()) for r in rows if r["i"] == stream]
    return sse.RawStream(0, reads, 200, reads[-1][0])


Mock = Callable[..., str]


@pytest.fixture
def mock() -> Iterator[Mock]:
    """Start mock servers: `mock(step_s=0.01, ...)` -> the address."""
    with ExitStack() as stack:
        yield lambda **config: stack.enter_context(mock_server(Config(**config)))
