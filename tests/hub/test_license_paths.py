"""A drafter under CC-BY-NC-ND-4.0 on the way through serve, bench and build: nothing runs that was not accepted."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hub import models
from tests.hub.pair import NC_ND, Pair
from tests.images.conftest import write_overlay
from tests.serving.conftest import SCRIPTED

REFUSED = 5  # LicenseError
ON_RECORD = f"add --accept-license {NC_ND} once"


def record(pair: Pair) -> Path:
    return pair.folder / "state" / "licenses.json"


@pytest.fixture
def pulled(pair: Pair) -> Pair:
    """The pair on the disk and nothing accepted on this machine, as after a copy from another one."""
    assert pair.pull().returncode == 0
    record(pair).unlink()
    return pair


def commercial(pair: Pair) -> dict[str, str]:
    return {"RECIPECTL_USE": "commercial"}


class Live:
    """A gated server of the pair on a scripted engine."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        pair.env["RECIPECTL_ENGINE_PYTHON"] = str(SCRIPTED)

    def serve(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        return self.pair.run("serve", "pair", "--sm", "cpu", *argv, **env)

    def bench(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        small = ("--phases", "counting", "-c", "1", "--rounds", "1", "--max-tokens", "16")
        return self.pair.run("bench", "pair", *small, *argv, **env)


@pytest.fixture
def live(pulled: Pair) -> Iterator[Live]:
    made = Live(pulled)
    yield made
    pulled.run("stop", "--all", "--force")


def test_serve_refuses_what_is_not_accepted_and_says_how_and_what_is_owed(live: Live) -> None:
    done = live.serve()
    assert done.returncode == REFUSED, done.stderr
    assert "acme/Drafter is under CC-BY-NC-ND-4.0, and its acceptance is not on record" in done.stderr
    assert "non-commercial use only" in done.stderr and "no derivatives" in done.stderr and ON_RECORD in done.stderr
    assert not record(live.pair).exists()
    assert json.loads(live.pair.run("status", "--json").stdout)["deployments"] == []


def test_serve_records_an_acceptance_with_model_commit_date_and_how(live: Live) -> None:
    done = live.serve("--dry-run", "--accept-license", NC_ND.lower())
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads(record(live.pair).read_text())[NC_ND]
    assert (entry["model"], entry["sha"], entry["by"]) == ("acme/Drafter", live.pair.drafter.refs["main"], "flag")
    assert len(entry["accepted"]) == len("2026-11-29")
    assert live.serve("--dry-run").returncode == 0, "nothing is asked twice"


def test_an_acceptance_may_stand_in_the_settings(live: Live) -> None:
    file = Path(live.pair.env["RECIPECTL_SETTINGS"])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'accept_licenses = ["{NC_ND}"]\n')
    assert live.serve("--dry-run").returncode == 0
    assert json.loads(record(live.pair).read_text())[NC_ND][0]["by"] == "setting"


def test_a_license_that_the_recipe_changed_after_the_lock_is_not_passed_by(pair: Pair) -> None:
    """A model beside the recipe has no card: the lock held what the recipe said then, and the gate believed it."""
    weights = pair.recipe.parent / "target"
    weights.mkdir()
    for name, data in models.target().items():
        if "/" not in name:
            (weights / name).write_bytes(data)
    commit = pair.target.refs["main"]
    text = pair.recipe.read_text().replace(f"repo: acme/Target\n    revision: {commit}", "path: target")
    pair.recipe.write_text(text)
    assert pair.pull().returncode == 0
    pair.recipe.write_text(text.replace("license: MIT", "license: CC-BY-NC-4.0"))
    for verb in ("verify", "pull"):
        done = pair.run(verb, "pair", "--sm", "cpu")
        assert done.returncode == 4 and "model target: recipe says license CC-BY-NC-4.0, lock has MIT" in done.stderr
    assert pair.run("lock", "pair").returncode == 0
    done = pair.run("pull", "pair", "--sm", "cpu")
    assert done.returncode == 5 and "target is under CC-BY-NC-4.0" in done.stderr


@pytest.mark.parametrize("damage", ["[[[", "[]", '{"CC-BY-NC-ND-4.0": ["x", {"a": 1}]}', '{"CC-BY-NC-ND-4.0": 1}'])
def test_a_damaged_record_counts_as_none(pair: Pair, damage: str) -> None:
    assert pair.pull().returncode == 0
    (pair.folder / "state" / "licenses.json").write_text(damage)
    done = pair.run("pull", "pair", "--sm", "cpu")
    assert done.returncode == 5 and "its acceptance is not on record" in done.stderr
    assert pair.pull().returncode == 0
    assert pair.run("pull", "pair", "--sm", "cpu").returncode == 0


def test_accepting_another_license_accepts_nothing(live: Live) -> None:
    assert live.serve("--dry-run", "--accept-license", "CC-BY-NC-4.0").returncode == REFUSED


@pytest.mark.parametrize("verb", ["serve", "pull"])
def test_commercial_use_is_refused_whatever_was_accepted_and_the_free_recipe_is_named(pair: Pair, verb: str) -> None:
    assert pair.pull().returncode == 0
    done = pair.run(verb, "pair", "--sm", "cpu", "--accept-license", NC_ND, RECIPECTL_USE="commercial")
    assert done.returncode == REFUSED, done.stderr
    assert "acme/Drafter may not be used commercially" in done.stderr
    assert "use the recipe tiny-dflash" in done.stderr, "the recipe's alternative"


def test_the_flagship_names_the_recipe_with_the_apache_drafter(pair: Pair) -> None:
    shown = pair.run("notes", "glm53-flash-dflash2")
    assert "free of these restrictions: recipe glm53-flash-dflash2e" in shown.stdout
    free = json.loads(pair.run("notes", "glm53-flash-dflash2e", "--sm", "121", "--format", "json").stdout)
    default = [p for p in free["parts"] if p["kind"] == "drafter" and "sm121" in p["used_by"]]
    assert [p["license"] for p in default] == ["Apache-2.0"]


def test_bench_of_a_live_server_needs_the_acceptance_too(live: Live) -> None:
    assert live.serve("--accept-license", NC_ND).returncode == 0
    record(live.pair).unlink()
    done = live.bench()
    assert done.returncode == REFUSED, done.stderr
    assert ON_RECORD in done.stderr
    again = live.bench("--accept-license", NC_ND, "--json")
    assert again.returncode in (0, 9), again.stderr  # 9: the scripted engine's block may be void
    assert json.loads(record(live.pair).read_text())[NC_ND][0]["model"] == "acme/Drafter"
    assert live.bench(**commercial(live.pair)).returncode == REFUSED
    receipt = predicate(json.loads(again.stdout)["receipt"])
    assert [p["license"] for p in receipt["notes"]["parts"] if p["kind"] == "drafter"] == [NC_ND]
    assert "drafter acme/Drafter: CC-BY-NC-ND-4.0" in live.pair.run("report").stdout


def predicate(path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(path).read_text())["predicate"]
    return found


def test_the_receipt_of_serve_carries_licenses_and_obligations(live: Live) -> None:
    done = live.serve("--accept-license", NC_ND, "--json")
    assert done.returncode == 0, done.stderr
    (drafter,) = [p for p in predicate(json.loads(done.stdout)["receipt"])["notes"]["parts"] if p["kind"] == "drafter"]
    assert (drafter["version"], drafter["license_from"]) == (live.pair.drafter.refs["main"], "card, as locked")
    assert any(o.startswith("non-commercial use only") for o in drafter["obligations"])


def test_bench_by_address_says_that_it_cannot_know(live: Live) -> None:
    url = json.loads(live.serve("--accept-license", NC_ND, "--json").stdout)["url"]
    done = live.pair.run("bench", "--url", url, "--phases", "counting", "-c", "1", "--rounds", "1", "--json",
                         **commercial(live.pair))  # fmt: skip
    assert done.returncode in (0, 9), done.stderr
    assert "recipectl cannot know" in done.stderr
    receipt = predicate(json.loads(done.stdout)["receipt"])
    assert "cannot know" in receipt["notes"]["unknown"] and receipt["recipe"] is None


@pytest.fixture
def boxed(pair: Pair) -> Pair:
    """The pair on an overlay image of the tests' own, locked; no Docker anywhere."""
    write_overlay(pair.folder)
    text = pair.recipe.read_text()
    pair.recipe.write_text(text.replace("runtime: process", "runtime: docker, overlay: toy-overlay"))
    pair.env["DOCKER_HOST"] = f"unix://{pair.folder}/no-engine.sock"
    locked = pair.run("lock", "pair")
    assert locked.returncode == 0, locked.stderr
    return pair


def test_build_needs_the_acceptance_before_it_asks_any_engine(boxed: Pair) -> None:
    done = boxed.run("build", "pair", "--sm", "cpu")
    assert done.returncode == REFUSED, done.stderr
    assert "acme/Drafter is under CC-BY-NC-ND-4.0" in done.stderr and ON_RECORD in done.stderr
    accepted = boxed.run("build", "pair", "--sm", "cpu", "--accept-license", NC_ND)
    assert accepted.returncode not in (0, REFUSED), "past the gate, at the Docker engine that is not there"
    assert "no-engine.sock" in accepted.stderr
    assert boxed.run("build", "pair", "--sm", "cpu", **commercial(boxed)).returncode == REFUSED


def test_build_shows_a_plan_without_any_acceptance(boxed: Pair) -> None:
    done = boxed.run("build", "pair", "--sm", "cpu", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["labels"]
    assert told["io.recipectl.weights"] == "none"
    assert "image 127.0.0.1:1/base:1@sha256:" in told["io.recipectl.contents"]
    assert "NO LICENSE STATED" in told["io.recipectl.contents"], "the toy base states none"


@pytest.mark.parametrize("weights", ["model.safetensors", "mask_embedding.pt", "pytorch_model.bin", "drafter.gguf"])
def test_weights_never_enter_an_image(boxed: Pair, weights: str) -> None:
    write_overlay(
        boxed.folder, {weights: "not even weights"},
        files=[{"file": f"toy/{weights}", "source": weights, "why": "somebody thought it handy",
                "sha256": "8ad0d3a1c0f4f2c5e0c4f7f0f3b3b0a8d3f7b0c6a6f0e1d2c3b4a59687766554"}],
    )  # fmt: skip
    import hashlib

    file = boxed.folder / "overlays" / "toy-overlay" / "overlay.yaml"
    right = hashlib.sha256(b"not even weights").hexdigest()
    file.write_text(file.read_text().replace("8ad0d3a1c0f4f2c5e0c4f7f0f3b3b0a8d3f7b0c6a6f0e1d2c3b4a59687766554", right))
    done = boxed.run("build", "pair", "--sm", "cpu", "--dry-run", "--accept-license", NC_ND)
    assert done.returncode == 3, done.stderr
    assert "weights do not go into an image" in done.stderr and "forbid to repackage" in done.stderr


FOREIGN = {"repository": "https://example.org/theirs", "commit": "c" * 40, "path": "theirs.patch", "sha256": "d" * 64}


@pytest.mark.parametrize(("license_", "code", "said"), [
    (None, REFUSED, "foreign patches without a stated license are not used"),
    ("CC-BY-NC-4.0", REFUSED, "theirs.patch is under CC-BY-NC-4.0"),
])  # fmt: skip
def test_patches_of_others_are_shown_with_their_license_and_refused_without(
    boxed: Pair, license_: str | None, code: int, said: str
) -> None:
    patch = {"file": "toy/first.py", "why": "somebody else's work", "before": "a" * 64, "after": "b" * 64,
             "foreign": {**FOREIGN, "license": license_}}  # fmt: skip
    write_overlay(boxed.folder, patches=[patch])
    done = boxed.run("build", "pair", "--sm", "cpu", "--fetch-patches")
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert f"license: {license_ or 'NONE STATED'}" in done.stderr
    shown = boxed.run("notes", "pair").stdout
    assert f"license {license_ or 'NOT STATED'} (overlay.yaml)" in shown


@pytest.mark.parametrize(("stated", "code"), [("license: null", "R004"), ("license: unknown", "R005")])
def test_a_missing_or_unknown_license_is_a_finding_and_strict_makes_it_an_error(
    pair: Pair, stated: str, code: str
) -> None:
    pair.recipe.write_text(pair.recipe.read_text().replace(f"license: {NC_ND}", stated))
    loose, strict = pair.run("check", "pair"), pair.run("check", "pair", "--strict")
    assert code in loose.stdout + loose.stderr
    assert strict.returncode == 3, strict.stdout + strict.stderr


def test_an_evidence_that_none_is_stated_is_not_silence(pair: Pair) -> None:
    said = "license: null\n    license_evidence: [{source: acme/Drafter, status: unresolved, note: no card}]"
    pair.recipe.write_text(pair.recipe.read_text().replace(f"license: {NC_ND}", said))
    assert "R004" not in (done := pair.run("check", "pair")).stdout + done.stderr
    shown = pair.run("notes", "pair").stdout
    assert "license NOT STATED" in shown and "nothing permits more than looking at it" in shown
