"""Every fault of the test hub, as a user meets it: exit code, message, and what lies on the disk afterwards."""

from __future__ import annotations

import pytest

from tests.hub.matrix import CASES, Case, play
from tests.hub.pair import Pair

TOKENS = ("hf_reader_token_1234", "hf_stranger_token_99")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name.replace(" ", "-"))
def test_fault(case: Case, pair: Pair) -> None:
    outcome = play(case, pair)
    assert outcome.code == case.code, outcome.text
    for fragment in case.said:
        assert fragment in outcome.text
    assert "Traceback" not in outcome.text
    assert outcome.whole == case.whole, "complete and right, or not claimed to be"
    if outcome.code:
        assert outcome.text.count("error[") == 1, "one clear message"
        verify = pair.run("verify", "pair", "--sm", "cpu")
        assert verify.returncode == 4, "what is not whole is not trusted"
    wrong = [p for p in (pair.cache / "models").rglob("*") if p.is_file() and not _right(pair, p.name, p.read_bytes())]
    assert wrong == [], "no file is in its place with wrong bytes"
    assert not any(token in outcome.text for token in TOKENS)
    assert all("Authorization" not in s.headers for s in pair.hub.seen if s.origin == "cdn")


def _right(pair: Pair, name: str, body: bytes) -> bool:
    repos = pair.hub.repos.values()
    return any(body == files.get(name) for repo in repos for files in repo.commits.values())
