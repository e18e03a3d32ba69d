"""The client against the mock server: connections, order, failures beside healthy streams."""

from __future__ import annotations

import resource
from typing import Any

import pytest

from recipectl.bench import sse
from recipectl.bench.client import check_descriptors, connect
from recipectl.errors import BenchError, UsageError
from tests.bench.conftest import Mock

PATH = "/v1/chat/completions"


def body(prompt: str = "hello", tokens: int = 20, **more: Any) -> dict[str, Any]:
    return {
        "model": "mock", "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True}, "return_token_ids": True, **more,
    }  # fmt: skip


async def test_connections_are_opened_before_the_barrier(mock: Mock) -> None:
    async with connect(mock()) as client:
        raw, cost = await client.wave(PATH, [body(cache_salt=str(i)) for i in range(24)])
    assert cost.late_connections == 0
    assert all(sse.parse(r).ok for r in raw)
    starts = [r.t_request for r in raw]
    assert max(starts) - min(starts) < 250e6, "all streams start together, even on a busy machine"


async def test_closed_loop_keeps_the_order_of_the_bodies(mock: Mock) -> None:
    async with connect(mock(step_s=0.002)) as client:
        lengths = [5, 30, 9, 12, 7, 21, 3]
        raw, _ = await client.closed_loop(PATH, [body(tokens=n, cache_salt=str(n)) for n in lengths], 3)
    assert [sse.parse(r).n for r in raw] == lengths


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("error", "the server sent an error: EngineCore"), ("die", "Payload"), ("http500", "HTTP 500"),
        ("no-usage", "without usage"), ("no-done", "without [DONE]"), ("no-finish", "without finish_reason"),
        ("zero", "0 tokens"),
    ],
)  # fmt: skip
async def test_a_failed_stream_fails_alone(mock: Mock, fault: str, words: str) -> None:
    async with connect(mock(step_s=0.005)) as client:
        raw, _ = await client.wave(PATH, [body(), body(f"[[{fault}]]"), body()])
    failures = [sse.parse(r).failure for r in raw]
    assert failures[0] is None and failures[2] is None
    assert failures[1] is not None and words in failures[1]


async def test_a_server_that_is_not_there() -> None:
    async with connect("http://127.0.0.1:9") as client:
        with pytest.raises(BenchError, match="does not answer"):
            await client.get("/v1/models")
        with pytest.raises(BenchError, match="connections cannot be opened"):
            await client.wave(PATH, [body()])


def test_more_streams_than_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
        check_descriptors(200)  # 464 files: the soft limit is raised
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 464
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with pytest.raises(UsageError, match="more open files"):
        check_descriptors(hard)
