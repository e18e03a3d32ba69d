"""One writer: answers to stdout, notices to stderr, secrets nowhere."""

from __future__ import annotations

import io
import json

import pytest

from recipectl.console import Console
from recipectl.errors import EngineError

from .conftest import Captured


def test_secrets_are_redacted_known_or_recognisable(captured: Captured) -> None:
    captured.console.hide("correct horse battery")
    captured.console.print("token hf_abcdefghijklmnop and correct horse battery")
    captured.console.notice("Authorization: Bearer abc123def456, api_key=zzzzzz9999")
    written = captured.out.getvalue() + captured.err.getvalue()
    for secret in ("hf_abcdefghijklmnop", "correct horse battery", "abc123def456", "zzzzzz9999"):
        assert secret not in written
    assert "Bearer ***" in written


def test_ordinary_words_survive_redaction(captured: Captured) -> None:
    line = "max_num_batched_tokens: 8192, mask_token_id 154856, tokens drafted 7"
    captured.console.print(line)
    assert captured.out.getvalue() == line + "\n"


def test_json_mode_writes_one_document_and_nothing_else() -> None:
    out, err = io.StringIO(), io.StringIO()
    console = Console(json_mode=True, out=out, err=err)
    console.print("for people")
    console.table(["a"], [["b"]])
    console.document({"answer": 42})
    assert json.loads(out.getvalue()) == {"answer": 42}


class _Refusing(io.StringIO):
    """A stream that takes `room` lines and then none, as a full disk or a reader that has left."""

    def __init__(self, room: int, error: OSError) -> None:
        super().__init__()
        self.room, self.error = room, error

    def flush(self) -> None:
        self.room -= 1
        if self.room < 0:
            raise self.error


@pytest.mark.parametrize(("error", "why"), [(BrokenPipeError(), None), (OSError(28, "No space left"), "No space left")])
def test_a_stream_that_takes_no_more_breaks_nothing_off(error: OSError, why: str | None) -> None:
    out, err = _Refusing(1, error), io.StringIO()
    console = Console(json_mode=True, out=out, err=err)
    console.document("one")
    assert console.heard
    console.document("two")
    console.error(EngineError("told elsewhere then"))
    assert not console.heard
    assert (console.unwritten.strerror if console.unwritten else None) == why
    assert out.getvalue() == '"one"\n"two"\n' and "told elsewhere" in err.getvalue()


def test_an_error_says_what_seen_expected_and_next(captured: Captured) -> None:
    captured.console.error(
        EngineError(
            "the engine died", on="rank 1", seen="exit code 9", expected="alive", next_step="recipectl logs --rank 1"
        )
    )
    assert captured.err.getvalue().splitlines() == [
        "error[engine]: the engine died (rank 1)",
        "  seen:     exit code 9",
        "  expected: alive",
        "  next:     recipectl logs --rank 1",
    ]


def test_table_aligns_and_leaves_no_trailing_blanks(captured: Captured) -> None:
    captured.console.table(["c", "tok/s"], [[1, "51.4"], [16, None]])
    assert captured.out.getvalue().splitlines() == ["c   tok/s", "--  -----", "1   51.4", "16"]
