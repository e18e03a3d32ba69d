"""`pull` against a hub that works: what it fetches, keeps, resumes, shares and never gives away."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import need
from tests.hub import models
from tests.hub.pair import Pair
from tests.hub.testhub import Fault

SHARD = "model-00001-of-00002.safetensors"
SECRET = "hf_reader_token_1234"


def big(pair: Pair, kilobytes: int = 4096) -> None:
    """A target large enough to be caught on its way."""
    pair.target.commit(models.target(kilobytes))
    pair.write()


def wait_for(condition: object, seconds: float = 20) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def paused_pull(pair: Pair, at: int) -> tuple[subprocess.Popen[str], Fault]:
    """A pull that hangs after `at` bytes of the first shard."""
    assert pair.run("lock", "pair").returncode == 0
    fault = pair.hub.fault("pause", rf"^/acme/Target/[0-9a-f]+/{SHARD}", at=at, times=1)
    process = pair.start(
        "pull", "pair", "--sm", "cpu", "--accept-license", "CC-BY-NC-ND-4.0", RECIPECTL_HUB_TIMEOUT_S="60"
    )
    wait_for(lambda: _part(pair).exists() and _part(pair).stat().st_size == at >> 20 << 20)
    return process, fault


def _part(pair: Pair) -> Path:
    """The part of the first shard: it lies under the sha256 it is to have."""
    body = pair.target.commits[pair.target.refs["main"]][SHARD]
    return pair.cache / "partial" / f"{hashlib.sha256(body).hexdigest()}.part"


def test_first_pull_pins_and_fetches_what_the_recipe_asks_for(pair: Pair) -> None:
    done = pair.pull("--json")
    assert done.returncode == 0, done.stderr
    assert pair.files(pair.target) == pair.wanted(pair.target)
    assert pair.files(pair.drafter) == pair.wanted(pair.drafter)
    assert "this pull pins it" in done.stderr
    answer = json.loads(done.stdout)
    assert answer["models"]["target"]["commit"] == pair.target.refs["main"]
    receipt = json.loads(Path(answer["receipt"]).read_text())
    assert receipt["predicate"]["notes"]["licenses"] == {"target": "MIT", "drafter": "CC-BY-NC-ND-4.0"}
    accepted = json.loads((pair.folder / "state" / "licenses.json").read_text())["CC-BY-NC-ND-4.0"]
    assert accepted[0]["sha"] == pair.drafter.refs["main"] and accepted[0]["model"] == "acme/Drafter"


def test_second_pull_asks_the_hub_nothing_and_needs_no_second_acceptance(pair: Pair) -> None:
    assert pair.pull().returncode == 0
    before = len(pair.hub.seen)
    again = pair.run("pull", "pair", "--sm", "cpu", HF_ENDPOINT="http://127.0.0.1:9")
    assert again.returncode == 0, again.stderr
    assert len(pair.hub.seen) == before


def test_what_serve_mounts_is_real_files_without_the_token(pair: Pair) -> None:
    token = pair.folder / ".cache" / "huggingface" / "token"
    token.parent.mkdir(parents=True)
    token.write_text(SECRET)
    assert pair.pull().returncode == 0
    for repo in (pair.target, pair.drafter):
        entries = list(pair.model(repo).rglob("*"))
        assert entries and not any(p.is_symlink() for p in entries)
        assert not any(p.name in ("token", "stored_tokens") for p in entries)
        assert not token.is_relative_to(pair.model(repo))


def test_dry_run_shows_the_plan_and_fetches_no_weights(pair: Pair) -> None:
    plan = pair.pull("--dry-run")
    assert plan.returncode == 0, plan.stderr
    assert f"fetch {SHARD}" in plan.stdout and "6 of 6 files" in plan.stdout
    assert not pair.lock.exists() and not (pair.cache / "models").exists()
    assert not [s for s in pair.hub.requests(SHARD) if "Range" not in s.headers]


def test_only_the_drafter(pair: Pair) -> None:
    assert pair.pull("--only", "drafter").returncode == 0
    assert pair.files(pair.drafter) == pair.wanted(pair.drafter)
    assert not pair.model(pair.target).exists()
    verify = pair.run("verify", "pair", "--sm", "cpu")
    assert verify.returncode == 4 and "target: missing config.json" in verify.stderr


def test_ctrl_c_returns_within_two_seconds_and_keeps_the_part(pair: Pair) -> None:
    big(pair)
    process, fault = paused_pull(pair, at=1_500_000)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert time.monotonic() - start < 2
    assert process.returncode == 130
    assert "unfinished ones are gone on with" in err and "Traceback" not in err
    assert _part(pair).stat().st_size > 0
    fault.gate.set()


@pytest.mark.parametrize("seed", range(4))
def test_kill_9_then_a_second_run_goes_on_and_trusts_nothing(pair: Pair, seed: int) -> None:
    big(pair)
    at = random.Random(seed).randrange(1 << 20, 2 << 20)
    process, fault = paused_pull(pair, at)
    wait_for((pair.model(pair.target) / "model-00002-of-00002.safetensors").exists)
    finished = {p.name for p in pair.model(pair.target).iterdir()}
    part = _part(pair)
    process.kill()
    process.communicate()
    fault.gate.set()
    have, asked = part.stat().st_size, len(pair.hub.seen)
    again = pair.pull()
    assert again.returncode == 0, again.stderr
    assert pair.files(pair.target) == pair.wanted(pair.target)
    after = pair.hub.seen[asked:]
    assert [s.headers["Range"] for s in after if s.origin == "cdn" and s.path.endswith(SHARD)] == [f"bytes={have}-"]
    again_ = [s.path for s in after if "Target" in s.path and s.path.rsplit("/", 1)[-1] in finished]
    assert again_ == [], "finished files are not fetched again"
    assert list((pair.cache / "partial").iterdir()) == []


def test_a_rotten_part_is_found_quarantined_and_fetched_whole(pair: Pair) -> None:
    big(pair)
    process, fault = paused_pull(pair, at=1_500_000)
    process.kill()
    process.communicate()
    fault.gate.set()
    part = _part(pair)
    with part.open("r+b") as handle:
        handle.write(b"rotten")
    again = pair.pull()
    assert again.returncode == 0, again.stderr
    assert "kept as" in again.stderr
    assert pair.files(pair.target) == pair.wanted(pair.target)
    assert next((pair.cache / "quarantine").rglob(SHARD)).read_bytes().startswith(b"rotten")


@pytest.mark.slow
def test_kill_9_at_any_moment_of_a_first_pull(pair: Pair) -> None:
    """Lock, licence record, headers, bodies: whatever is under way, nothing wrong is in place and nothing is lost."""
    big(pair)
    pair.hub.fault("slow", r"safetensors", at=4_000_000)
    argv = ("pull", "pair", "--sm", "cpu", "--accept-license", "CC-BY-NC-ND-4.0")
    moments = random.Random(9)
    killed = 0
    for _ in range(20):
        process = pair.start(*argv)
        time.sleep(moments.uniform(0.1, 3.0))
        process.kill()
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        for repo in (pair.target, pair.drafter):
            there = pair.files(repo) if pair.model(repo).is_dir() else {}
            assert there.items() <= pair.wanted(repo).items()
    assert killed > 3, "too fast to be caught"
    done = pair.pull()
    assert done.returncode == 0, done.stderr
    assert pair.files(pair.target) == pair.wanted(pair.target)
    assert pair.run("verify", "pair", "--sm", "cpu", "--full").returncode == 0
    assert list((pair.cache / "partial").iterdir()) == []


def test_two_pulls_at_once_do_the_work_once(pair: Pair) -> None:
    big(pair)
    assert pair.run("lock", "pair").returncode == 0
    asked = len(pair.hub.seen)
    pair.hub.fault("slow", rf"/{SHARD}", at=4_000_000)
    argv = ("pull", "pair", "--sm", "cpu", "--accept-license", "CC-BY-NC-ND-4.0")
    both = [pair.start(*argv), pair.start(*argv)]
    texts = [p.communicate(timeout=60) for p in both]
    assert [p.returncode for p in both] == [0, 0], texts
    bodies = [s.path for s in pair.hub.seen[asked:] if s.origin == "cdn"]
    assert len(bodies) == len(set(bodies)) == 3
    assert any("waiting for pid" in err for _, err in texts)


def test_a_new_card_does_not_cost_the_weights_again(pair: Pair) -> None:
    assert pair.pull().returncode == 0
    files = {**pair.target.commits[pair.target.refs["main"]], "README.md": models.card("mit") + b"more words\n"}
    pair.target.commit(files)
    pair.write()
    assert pair.run("lock", "pair").returncode == 0
    asked = len(pair.hub.seen)
    again = pair.pull()
    assert again.returncode == 0 and "linked" in again.stderr
    assert [s.path.rsplit("/", 1)[-1] for s in pair.hub.seen[asked:]] == ["README.md"]
    assert pair.files(pair.target) == pair.wanted(pair.target)
    assert pair.run("verify", "pair", "--sm", "cpu", "--full").returncode == 0


def test_wrong_and_unknown_files_are_put_aside_not_lost(pair: Pair) -> None:
    assert pair.pull().returncode == 0
    folder = pair.model(pair.drafter)
    (folder / "config.json").write_bytes(b"{}")
    (folder / "mine.txt").write_bytes(b"notes")
    again = pair.pull()
    assert again.returncode == 0, again.stderr
    assert pair.files(pair.drafter) == pair.wanted(pair.drafter)
    aside = pair.cache / "quarantine" / "acme--Drafter" / pair.drafter.refs["main"]
    assert (aside / "mine.txt").read_bytes() == b"notes" and (aside / "config.json").read_bytes() == b"{}"


def test_folders_and_links_where_files_belong_are_put_aside_whole(pair: Pair) -> None:
    pair.target.commit({**models.target(), "extra/more.json": b"{}"})
    pair.write()
    assert pair.pull().returncode == 0
    folder, outside = pair.model(pair.target), pair.folder / "outside"
    outside.mkdir()
    (outside / "more.json").write_bytes(b"{}")
    for text in ("first", "second"):  # twice: what was put aside before is not lost
        (folder / "config.json").unlink()
        (folder / "config.json").mkdir()
        (folder / "config.json" / "x").write_text(text)
        (folder / "mine.txt").write_text(text)
        (folder / "extra" / "more.json").unlink()
        (folder / "extra").rmdir()
        (folder / "extra").symlink_to(outside)
        again = pair.pull()
        assert again.returncode == 0, again.stderr
        assert pair.files(pair.target) == pair.wanted(pair.target)
    quarantine = pair.cache / "quarantine" / "acme--Target"
    assert sorted(p.read_text() for p in quarantine.glob("*/config.json/x")) == ["first", "second"]
    assert sorted(p.read_text() for p in quarantine.glob("*/mine.txt")) == ["first", "second"]
    assert (outside / "more.json").read_bytes() == b"{}"
    (folder / "mine.txt").mkdir()
    (folder / "mine.txt" / "y").write_text("a folder where a file was put aside")
    assert pair.pull().returncode == 0
    assert [p.read_text() for p in quarantine.glob("*/mine.txt/y")] == ["a folder where a file was put aside"]


def test_names_with_spaces_and_other_alphabets(pair: Pair) -> None:
    names = ["chat templates/ü ñ.jinja", "a b.json", "100%#?.json", "日本/語.json"]
    pair.target.commit({**models.target(), **{n: n.encode() for n in names}})
    pair.write()
    done = pair.pull()
    assert done.returncode == 0, done.stderr
    assert pair.files(pair.target) == pair.wanted(pair.target)
    assert set(names) <= set(pair.files(pair.target))
    assert pair.run("verify", "pair", "--sm", "cpu", "--full").returncode == 0


def test_offline_with_an_incomplete_tree(pair: Pair) -> None:
    assert pair.pull().returncode == 0
    (pair.model(pair.target) / SHARD).unlink()
    offline = pair.pull(HF_ENDPOINT="http://127.0.0.1:9")
    assert offline.returncode == 6 and "cannot be reached" in offline.stderr
    verify = pair.run("verify", "pair", "--sm", "cpu", HF_ENDPOINT="http://127.0.0.1:9")
    assert verify.returncode == 4 and f"target: missing {SHARD}" in verify.stderr


def test_a_token_in_the_environment_appears_nowhere(pair: Pair) -> None:
    pair.hub.fault("status", "/resolve/.*tokenizer", status=500, times=1)
    big(pair, 512)
    process = pair.start("pull", "pair", "--sm", "cpu", "--accept-license", "CC-BY-NC-ND-4.0", HF_TOKEN=SECRET)
    command = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    failed = pair.pull("--json", HF_TOKEN=SECRET, HF_ENDPOINT=f"{pair.hub.endpoint}/nowhere", RECIPECTL_DEBUG="1")
    assert SECRET.encode() not in command
    assert SECRET not in out + err + failed.stdout + failed.stderr
    files = [p for p in pair.folder.rglob("*") if p.is_file()]
    assert files and not [p for p in files if SECRET.encode() in p.read_bytes()]
    assert all("Authorization" not in s.headers for s in pair.hub.seen if s.origin == "cdn")
    assert any(s.headers.get("Authorization") == f"Bearer {SECRET}" for s in pair.hub.seen if s.origin == "hub")


def test_a_gated_model_with_access(pair: Pair) -> None:
    pair.drafter.gated = True
    assert pair.pull(HF_TOKEN=SECRET).returncode == 0
    assert pair.files(pair.drafter) == pair.wanted(pair.drafter)


@pytest.fixture
def small_disk(pair: Pair) -> Iterator[Path]:
    """A tmpfs of 1 MB as the cache."""
    if os.geteuid() != 0:
        need("root", "a small file system has to be mounted")
    pair.cache.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(pair.cache)], check=True)
    try:
        yield pair.cache
    finally:
        subprocess.run(["umount", str(pair.cache)], check=True)


def test_too_little_room_is_said_before_anything_is_fetched(pair: Pair, small_disk: Path) -> None:
    big(pair)
    done = pair.pull()
    assert done.returncode == 6
    assert "not enough room" in done.stderr and "4.2 MB to come" in done.stderr
    assert not [s for s in pair.hub.seen if s.origin == "cdn" and "Range" not in s.headers]


def test_a_disk_that_fills_up_on_the_way(pair: Pair, small_disk: Path) -> None:
    big(pair, 512)
    fault = pair.hub.fault("pause", rf"^/acme/Target/[0-9a-f]+/{SHARD}", at=100_000, times=1)
    process = pair.start(
        "pull", "pair", "--sm", "cpu", "--accept-license", "CC-BY-NC-ND-4.0", RECIPECTL_HUB_TIMEOUT_S="60"
    )
    wait_for(lambda: any(s.sent >= 100_000 for s in pair.hub.seen))
    ballast = small_disk / "ballast"
    subprocess.run(["dd", "if=/dev/zero", f"of={ballast}", "bs=4096"], check=False, capture_output=True)
    fault.gate.set()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 6 and "the disk is full" in err and "Traceback" not in err
    ballast.unlink()
    again = pair.pull()
    assert again.returncode == 0, again.stderr
    assert pair.files(pair.target) == pair.wanted(pair.target)


def test_models_on_another_disk_than_the_parts_is_told_before_the_download(pair: Pair, small_disk: Path) -> None:
    """A finished file could not be moved there; RECIPECTL_CACHE is the way to a larger disk."""
    elsewhere = pair.folder / "elsewhere"
    elsewhere.mkdir()
    (small_disk / "models").symlink_to(elsewhere)
    done = pair.pull()
    assert done.returncode == 2, done.stderr
    assert "lie on different disks" in done.stderr and "set RECIPECTL_CACHE" in done.stderr
    assert not [s for s in pair.hub.seen if s.origin == "cdn" and "Range" not in s.headers]


def test_a_cache_that_cannot_be_written(pair: Pair, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    done = pair.pull()
    assert done.returncode == 2
    assert "cannot be written" in done.stderr and "RECIPECTL_CACHE" in done.stderr and "Traceback" not in done.stderr


def test_a_read_only_cache_that_is_complete_still_verifies(pair: Pair, small_disk: Path) -> None:
    assert pair.pull().returncode == 0
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert pair.run("verify", "pair", "--sm", "cpu", "--full").returncode == 0
