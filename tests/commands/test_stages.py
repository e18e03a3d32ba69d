"""How the blocks of an acceptance stage become the witnesses of its interval."""

from __future__ import annotations

from recipectl.bench import measure
from recipectl.bench.acceptance import Acceptance
from recipectl.bench.result import Block, Rates, Request
from recipectl.commands.stages import rows


def block(prompt: str, drafts: int, accepted: int, *void: str) -> Block:
    request = Request(prompt="p", prompt_sha256=prompt * 64, text_sha256="0" * 64, counted="token_ids", t_request_ns=0,
                      t_end_ns=1)  # fmt: skip
    return Block(phase="gate", concurrency=1, round=0, boot="b", started="s", void=list(void), requests=[request],
                 rates=Rates(), acceptance=measure.accepted(Acceptance(drafts, 7 * drafts, accepted)))  # fmt: skip


def test_one_prompt_is_one_witness_however_often_it_was_asked() -> None:
    blocks = [block("a", 100, 200), block("b", 50, 60), block("a", 100, 200), block("c", 9, 9, "foreign: x")]
    assert rows(blocks) == [(200, 400), (50, 60)]
