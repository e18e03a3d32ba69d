from __future__ import annotations

from pathlib import Path

import pytest

from recipectl.bench import protocol
from recipectl.bench.body import Dialect, body, salt, schedule
from recipectl.errors import UsageError
from recipectl.recipe import catalog
from recipectl.settings import Settings

NAMED = {
    "counting", "counting-spaces", "prose", "code", "smoke", "holdout", "gate", "sfxnz-legacy", "mia", "jnardiello",
    "canada-holdout", "limechain-waves", "ebfio-wall", "jm-wall",
}  # fmt: skip


def test_every_protocol_loads_and_has_a_digest_of_its_own() -> None:
    loaded = {n: protocol.load(n) for n in protocol.names()}
    assert set(loaded) >= NAMED
    assert len({p.digest for p in loaded.values()}) == len(loaded)
    assert all(p.name == n for n, p in loaded.items())


# Results name their protocol by version and digest: a file that changes without a new version would make two ways to
# measure one name. Whoever changes a file raises its version here and there.
PINNED = {
    "beastllama-wall": (1, "2c539f444145"),
    "calibration": (1, "9009bf08504c"),
    "calibration-gate": (1, "0a8e45664894"),
    "calibration-gate-extension": (1, "df6ffad1e5cf"),
    "calibration-speed": (1, "11353afde7e2"),
    "canada-holdout": (1, "8ba651cb7090"),
    "catid-sustained": (1, "5a5760609a37"),
    "code": (1, "cfd6b5fef7ae"),
    "counting": (1, "41e345af78bc"),
    "counting-spaces": (1, "6605bf2d288a"),
    "ebfio-wall": (1, "cc8dec45f856"),
    "gate": (1, "e07faedf6446"),
    "gate-extension": (1, "c1b4426d6875"),
    "holdout": (1, "b5346f154045"),
    "jm-bench3": (1, "ad45abdeba08"),
    "jm-knee": (1, "f2cccadc9bfe"),
    "jm-speed-reps": (1, "c9c67c2dd794"),
    "jm-wall": (1, "0e7fdf16b2ec"),
    "jnardiello": (1, "ae71406deae7"),
    "limechain-waves": (1, "cf458afd009b"),
    "mia": (1, "ef4ef593f893"),
    "prose": (1, "b3a326213adb"),
    "sfxnz-legacy": (1, "943bf8bc63fa"),
    "smoke": (1, "0182e5a17dd5"),
    "tonyd2wild-c1c6": (1, "b3df6955b5a4"),
}  # fmt: skip


def test_a_protocol_that_changes_gets_a_new_version() -> None:
    assert {n: ((p := protocol.load(n)).version, p.digest[:12]) for n in protocol.names()} == PINNED


def test_the_digest_is_over_what_decides_the_numbers() -> None:
    base = protocol.load("counting")
    assert base.model_copy(update={"summary": "x", "sources": ["y"], "note": "z"}).digest == base.digest
    for changed in ({"max_tokens": 201}, {"rounds": 4}, {"thinking": None}, {"formula": "legacy"}, {"nonce": True}):
        assert base.model_copy(update=changed).digest != base.digest
    # printf %s "$TEXT" | sha256sum
    assert base.phases["counting"].prompts[0].sha256.startswith("eb5e9f32e43b6a0e")


def test_cells_as_the_field_describes_them() -> None:
    # Field report 5b: prose and structured, c=1,2,4, 200 tokens, 3 runs; 500 x c16 x 1024 at T 1.0 and top_p 0.95.
    legacy = protocol.load("sfxnz-legacy")
    assert legacy.cells() == [(p, c) for p in ("prose", "structured") for c in (1, 2, 4)]
    assert (legacy.max_tokens, legacy.rounds, legacy.formula) == (200, 3, "legacy")
    holdout = protocol.load("canada-holdout")
    assert holdout.cells() == [("smoke", 1), ("c16", 16), ("c1", 1)]
    assert (holdout.sampling.temperature, holdout.sampling.top_p, holdout.sampling.seed) == (1.0, 0.95, "per-request")
    assert (holdout.phases["c16"].requests, holdout.max_tokens, holdout.phases["smoke"].max_tokens) == (500, 1024, 512)
    assert protocol.load("ebfio-wall").transport == "wall"
    assert len(protocol.load("smoke").phases["smoke"].prompts) == 20
    counting = protocol.load("counting").phases["counting"].prompts[0].text
    assert counting == "Count from 1 to 200. Output only the numbers, separated by commas, with no other text."


def test_prompts_are_pinned() -> None:
    text = (protocol.FOLDER / "counting.yaml").read_text().replace("1 to 200. Output", "1 to 201. Output")
    with pytest.raises(UsageError) as caught:
        protocol.parse(text, "counting.yaml")
    assert "the text has sha256" in caught.value.details[0]


@pytest.mark.parametrize("text", ["name: [", "schema: recipectl.protocol/9\nname: x", "[]", "name: x\nwat: 1"])
def test_broken_protocol_files(text: str) -> None:
    with pytest.raises(UsageError):
        protocol.parse(text, "x.yaml")


def test_a_wall_clock_knows_no_first_token() -> None:
    text = (protocol.FOLDER / "ebfio-wall.yaml").read_text().replace("formula: wall", "formula: legacy")
    with pytest.raises(UsageError) as caught:
        protocol.parse(text, "x.yaml")
    assert "needs transport stream" in caught.value.details[0]


def test_unknown_name_lists_those_on_offer() -> None:
    with pytest.raises(UsageError) as caught:
        protocol.load("countig")
    assert "counting" in (caught.value.expected or "")


def test_settings_amend_and_change_the_digest(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("# comment\nFirst.\n\nSecond.\n")
    base = protocol.load("prose")
    amended = protocol.with_settings(base, {"prompts": "mine.txt", "rounds": 5, "concurrency": [8]}, tmp_path)
    assert [p.text for p in amended.phases["prose"].prompts] == ["First.", "Second."]
    assert amended.cells() == [("prose", 8)] and amended.rounds == 5
    assert amended.digest != base.digest
    assert protocol.with_flags(base, rounds=base.rounds).digest == base.digest


def test_settings_that_are_wrong(tmp_path: Path) -> None:
    base = protocol.load("prose")
    for settings, words in (
        ({"promts": "x"}, "unknown bench settings"),
        ({"rounds": 0}, "do not fit"),
        ({"stream": False}, "disagree about stream"),
        ({"prompts": "missing.txt"}, "cannot be read"),
    ):
        with pytest.raises(UsageError, match=words):
            protocol.with_settings(base, settings, tmp_path)  # type: ignore[arg-type]
    (tmp_path / "empty.txt").write_text("# nothing\n")
    with pytest.raises(UsageError, match="holds no prompt"):
        protocol.read_prompts(tmp_path / "empty.txt")
    (tmp_path / "bad.jsonl").write_text('{"text": "x"}\n')
    with pytest.raises(UsageError, match="cannot be read"):
        protocol.read_prompts(tmp_path / "bad.jsonl")
    with pytest.raises(UsageError, match="takes your own prompts"):
        protocol.ready(protocol.load("holdout"))


def test_prompts_from_json_lines(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "two\\nlines"}\n{"prompt": "b"}\n')
    assert [p.text for p in protocol.read_prompts(tmp_path / "p.jsonl")] == ["two\nlines", "b"]


def test_waves_are_full_and_rounds_rotate() -> None:
    phase = protocol.load("prose").phases["prose"]  # four prompts
    ids = [p.id for p in phase.prompts]
    assert [p.id for p in schedule(phase, 1, 0, "wave")] == ids
    assert [p.id for p in schedule(phase, 3, 0, "wave")] == [*ids, ids[0], ids[1]]
    assert [p.id for p in schedule(phase, 8, 0, "wave")] == ids * 2
    few = phase.model_copy(update={"requests": 1})
    assert [schedule(few, 1, r, "wave")[0].id for r in range(5)] == [*ids, ids[0]]


def test_the_body_says_everything_that_decides_the_numbers() -> None:
    b = body(protocol.load("counting"), "hi", "m", Dialect(), salt=salt("run", 1), seed=None, max_tokens=200)
    assert (b["temperature"], b["top_p"], b["top_k"], b["max_tokens"]) == (0.0, 1.0, -1, 200)
    assert b["chat_template_kwargs"]["enable_thinking"] is False
    assert b["stream_options"] == {"include_usage": True, "continuous_usage_stats": True} and b["return_token_ids"]
    plain = body(protocol.load("counting"), "hi", "m", Dialect(frozenset({"cache_salt", "return_token_ids"})), salt="s",
                 seed=7, max_tokens=5)  # fmt: skip
    assert "cache_salt" not in plain and "return_token_ids" not in plain and plain["seed"] == 7
    assert salt("run", 1) != salt("run", 2) and len(salt("x")) <= 128


def test_every_recipes_bench_settings_fit_their_protocol(settings: Settings) -> None:
    for entry in catalog.entries(settings):
        recipe = catalog.load(entry)
        for _, lane in recipe.all_lanes():
            for ref in lane.bench:
                amended = protocol.with_settings(protocol.load(ref.protocol), ref.settings, entry.file.parent)
                assert {r.phase for r in ref.published} <= set(amended.phases), (entry.name, ref.protocol)
