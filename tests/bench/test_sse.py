"""Recorded streams of real vLLM servers; expected values are those that were worked out from the recordings by hand
(`bench.md` of the field study, sections 1.3 to 1.5), marked [LIVE] there."""

from __future__ import annotations

import json

import pytest

from recipectl.bench import sse, stats
from tests.bench.conftest import recorded, recorded_lines


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def token(n: int, text: str = "x", **more: object) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "token_ids": list(range(n)), "finish_reason": None, **more}
    return event({"choices": [choice]})


ROLE = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
DONE = b"data: [DONE]\n\n"


def usage(n: int) -> bytes:
    return event({"choices": [], "usage": {"completion_tokens": n, "prompt_tokens": 3}})


def parse(*reads: bytes, status: int = 200, error: str | None = None, **more: int) -> sse.Stream:
    stamped = [(10**9 * (i + 1), data) for i, data in enumerate(reads)]
    return sse.parse(sse.RawStream(0, stamped, status, 10**9 * (len(reads) + 1), error), **more)


def test_chunks_are_not_tokens() -> None:
    # 120 tokens in 26 chunks (13 of 8 tokens, 12 of 1, 1 of 4) within 2659.2 ms: 44.8 tok/s, not 9.4.
    s = sse.parse(recorded("ngram-sse_chat_continuous_usage_token_ids.jsonl"))
    assert (s.failure, s.n, len(s.chunks), s.n_first, s.counted) == (None, 120, 26, 1, "token_ids")
    assert sorted(c.n or 0 for c in s.chunks) == [1] * 12 + [4] + [8] * 13
    window_ms = (s.chunks[-1].t - s.chunks[0].t) / 1e6
    assert window_ms == pytest.approx(2659.2, abs=0.05)
    assert stats.decode_tok_s(s) == pytest.approx(44.8, abs=0.05)
    # The server's own clock says 2660.6 ms for the same tokens.
    assert s.metrics["generation_time_ms"] == pytest.approx(window_ms, rel=0.001)
    assert s.metrics["speculative_decoding"]["num_spec_steps"] == 14


def test_the_role_chunk_is_not_the_first_token() -> None:
    # The role chunk came at 3524.370 ms, the first token at 3524.514 ms.
    s = sse.parse(recorded("ngram-sse_chat_continuous_usage_token_ids.jsonl"))
    assert stats.ttft_s(s) == pytest.approx(3.524514)


@pytest.mark.parametrize(("name", "n"), [("two-api-sse_b4", 60), ("two-api-sse_b5", 61)])
def test_counts_of_two_api_servers(name: str, n: int) -> None:
    # Emission identity at K 4 with all accepted: 60 = 1 + 12 x 5 - 1 trimmed; 61 = 1 + 12 x 5.
    s = sse.parse(recorded(f"{name}.jsonl"))
    assert (s.failure, s.n, s.counted, len(s.chunks)) == (None, n, "token_ids", 13)


def test_completions_and_plain_usage() -> None:
    s = sse.parse(recorded("ngram-sse_completions_usage_token_ids.jsonl"))
    assert (s.failure, s.n, s.counted) == (None, 100, "token_ids")
    s = sse.parse(recorded("ngram-sse_chat_plain_usage.jsonl"))
    assert (s.failure, s.n, s.counted, s.n_first) == (None, 80, "assumed", 1)


def test_a_server_that_ignores_return_token_ids() -> None:
    # H200, DFlash2 K 7: 200 tokens; the recording was made without the flag, so a chunk's tokens are not known.
    for i in (0, 1):
        s = sse.parse(recorded_lines("h200-sse_c2.jsonl", i))
        assert (s.failure, s.n, s.counted) == (None, 200, "assumed")
        assert stats.decode_tok_s(s) == pytest.approx(199 / ((s.chunks[-1].t - s.chunks[0].t) / 1e9))


def test_http_200_with_an_error_object_is_a_failure() -> None:
    s = sse.parse(recorded("error-event.jsonl"))
    assert s.failure is not None and "EngineCore encountered an issue" in s.failure


def test_one_read_may_hold_everything_and_one_event_may_span_reads() -> None:
    whole = ROLE + token(1) + token(8) + token(3, finish_reason="stop") + usage(12) + DONE
    at_once = parse(whole)
    assert (at_once.failure, at_once.n, [c.n for c in at_once.chunks]) == (None, 12, [1, 8, 3])
    assert stats.decode_tok_s(at_once) is None, "all tokens came in one read: no rate can be told"
    torn = parse(*[whole[i : i + 7] for i in range(0, len(whole), 7)])
    assert torn.failure is None and [c.n for c in torn.chunks] == [1, 8, 3]
    crlf = parse(whole.replace(b"\n\n", b"\r\n\r\n"))
    assert crlf.failure is None and crlf.n == 12


def test_reasoning_counts_under_both_names() -> None:
    for name in ("reasoning", "reasoning_content"):
        thought = event({"choices": [{"index": 0, "delta": {name: "hm"}, "finish_reason": None}]})
        s = parse(ROLE, thought, token(2, finish_reason="stop") + usage(3) + DONE)
        assert s.failure is None and stats.ttft_s(s) == 2.0


def test_tokens_without_text_still_count() -> None:
    # Half of a multi-byte character, or a special token: ids come, text does not.
    s = parse(ROLE, token(1, ""), token(4, ""), token(1, "é", finish_reason="length") + usage(6) + DONE)
    assert (s.failure, s.n, len(s.chunks)) == (None, 6, 3)


@pytest.mark.parametrize(
    ("reads", "words"),
    [
        ([ROLE, token(1), token(1)], "without finish_reason, usage, [DONE]"),
        ([ROLE, token(1, finish_reason="stop"), usage(1)], "without [DONE]"),
        ([ROLE, token(1, finish_reason="stop"), DONE], "without usage"),
        ([ROLE, token(1), usage(1), DONE], "without finish_reason"),
        ([ROLE, token(1), token(2, finish_reason="stop"), usage(4), DONE], "3 over the chunks (token_ids), 4 by usage"),
        ([ROLE, event({"choices": [{"delta": {}, "finish_reason": "stop"}]}), usage(0), DONE], "0 tokens"),
        ([ROLE, event({"choices": [{"delta": {}, "finish_reason": "stop"}]}), usage(5), DONE], "no chunk bears any"),
        ([ROLE, b"data: {not json}\n\n"], "not JSON"),
        ([ROLE, b"data: [1]\n\n"], "not an object"),
        ([event({"object": "error", "message": "boom", "code": 400})], "the server sent an error: boom"),
    ],
)
def test_what_makes_a_stream_fail(reads: list[bytes], words: str) -> None:
    failure = parse(*reads).failure
    assert failure is not None and words in failure


def test_http_status_and_broken_connection() -> None:
    assert "HTTP 503" in (parse(b"busy", status=503).failure or "")
    broken = parse(ROLE, token(1), error="ClientPayloadError: not enough data")
    assert broken.failure == "ClientPayloadError: not enough data" and not broken.ok


def test_ignoring_eos_is_checked() -> None:
    short = [ROLE, token(1), token(2, finish_reason="stop"), usage(3), DONE]
    assert "EOS was to be ignored: 3 of 8" in (parse(*short, expect_tokens=8).failure or "")


def test_a_response_that_is_not_streamed() -> None:
    body = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": {"completion_tokens": 2}}
    raw = sse.RawStream(0, [(5 * 10**8, json.dumps(body).encode())], 200, 5 * 10**8)
    s = sse.parse_whole(raw)
    assert (s.failure, s.n, s.text) == (None, 2, "hi")
    assert stats.wall_tok_s(s) == 4.0  # 2 tokens in 0.5 s
    dead = {"error": {"message": "engine is dead"}}
    s = sse.parse_whole(sse.RawStream(0, [(1, json.dumps(dead).encode())], 200, 1))
    assert s.failure == "the server sent an error: engine is dead"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_none_fails_the_stream(number: str) -> None:
    last = b'data: {"choices": [], "usage": {"completion_tokens": 3}, "metrics": {"generation_time_ms": %s}}\n\n'
    s = parse(ROLE, token(1), token(2, finish_reason="stop"), last % number.encode(), DONE)
    assert s.failure is not None and "not JSON" in s.failure
    body = b'{"choices": [{"text": "hi"}], "usage": {"completion_tokens": 2}, "metrics": {"x": %s}}' % number.encode()
    assert "not JSON" in (sse.parse_whole(sse.RawStream(0, [(1, body)], 200, 1)).failure or "")


def test_a_negative_count_is_no_count() -> None:
    plain = event({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]})
    assert parse(plain, usage(-3), DONE).failure == "the server reports -3 tokens"
