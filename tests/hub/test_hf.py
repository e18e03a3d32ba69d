"""The adapter of the Hugging Face hub and the settings around it, against the test hub."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recipectl.commands.lock import run as lock
from recipectl.console import Console
from recipectl.errors import HubError, RecipectlError, UsageError
from recipectl.hub import fetch
from recipectl.hub.hf import HuggingFace
from recipectl.hub.port import Retry
from recipectl.recipe import catalog
from recipectl.settings import Settings, load
from tests.conftest import Captured
from tests.hub.pair import Pair
from tests.hub.testhub import TestHub


def test_a_token_of_the_library_is_not_used_behind_our_back(hub: TestHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_reader_token_1234")
    commit = hub.repo("a/b").commit({"config.json": b"{}"})
    HuggingFace(hub.endpoint, None).resolve("a/b", "main")
    HuggingFace(hub.endpoint, None).files("a/b", commit)
    assert not any("Authorization" in s.headers for s in hub.seen)


def test_no_request_but_the_ones_that_were_asked_for(hub: TestHub) -> None:
    """Without our settings the library calls home on its first request."""
    hub.repo("a/b").commit({"config.json": b"{}"})
    code = (
        "import sys; from recipectl.hub.hf import HuggingFace\n"
        "h = HuggingFace(sys.argv[1], None); h.files('a/b', h.resolve('a/b', 'main').commit)"
    )
    env = {"HF_ENDPOINT": hub.endpoint, "PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", code, hub.endpoint], env=env, check=True)
    assert [s.path.split("?")[0].split("/")[2] for s in hub.seen] == ["models", "models"]


def test_pages_are_followed(hub: TestHub) -> None:
    hub.page = 3
    commit = hub.repo("a/b").commit({f"f{i}.json": b"{}" for i in range(10)} | {"sub/x.safetensors": b"x"})
    files = HuggingFace(hub.endpoint, None).files("a/b", commit)
    assert len(files) == 11
    weights = next(f for f in files if f.path == "sub/x.safetensors")
    assert weights.sha256 == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"  # printf x | sha256sum


def test_bad_names_and_dead_endpoints(hub: TestHub) -> None:
    with pytest.raises(HubError, match="no repository name"):
        HuggingFace(hub.endpoint, None).resolve("a b", "main")
    with pytest.raises(Retry):
        HuggingFace("http://127.0.0.1:9", None).resolve("a/b", "main")


def test_a_range_that_is_longer_than_one_answer_may_be(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content delivery networks end an answer at 50 GB: longer files come in pieces."""
    from recipectl.commands.pull import run as pull

    monkeypatch.setattr(fetch, "PIECE", 10_000)
    monkeypatch.chdir(pair.folder)
    settings = load({**pair.env, "RECIPECTL_SETTINGS": str(pair.folder / "none.toml")})
    code = pull(settings, Console(quiet=True), name="pair", sm="cpu", only="target", hosts=None, jobs=1, dry_run=False)
    assert code == 0 and pair.files(pair.target) == pair.wanted(pair.target)
    shard = "model-00001-of-00002.safetensors"
    ranges = [s.headers.get("Range") for s in pair.hub.seen if s.origin == "cdn" and s.path.endswith(shard)]
    # the first is the header that lock reads; 32872 bytes in pieces of 10000
    assert ranges[1:] == ["bytes=0-9999", "bytes=10000-19999", "bytes=20000-29999", "bytes=30000-"]


@pytest.mark.parametrize("value", ["0", "-1", "soon"])
def test_settings_of_patience(value: str, tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "RECIPECTL_HUB_RETRIES": value}
    with pytest.raises(UsageError, match="hub_retries"):
        load(env)
    assert load({"HOME": str(tmp_path), "RECIPECTL_HUB_TIMEOUT_S": "7.5"}).hub_timeout_s == 7.5


def test_offline_by_the_hubs_own_variable(pair: Pair) -> None:
    done = pair.pull(HF_HUB_OFFLINE="1")
    assert done.returncode == 6 and "HF_HUB_OFFLINE is set" in done.stderr
    assert pair.hub.seen == []


def _hub_recipes() -> list[str]:
    settings = load({"HOME": "/nonexistent"})
    found = [(e.name, catalog.load(e)) for e in catalog.entries(settings)]
    return [name for name, recipe in found if any(m.repo for m in recipe.models.values())]


@pytest.mark.parametrize("name", _hub_recipes())
def test_our_own_recipes_go_as_far_as_the_network(name: str, settings: Settings, captured: Captured) -> None:
    """Every recipe on hub models is parsed, its lanes resolved and its first model asked for; then nobody answers."""
    dead = settings.with_flags(hub_endpoint="http://127.0.0.1:9", hub_retries=1)
    with pytest.raises(RecipectlError) as refused:
        lock(dead, captured.console, name=name, sm=None, update=None, dry_run=True)
    assert isinstance(refused.value, HubError) and "cannot be reached" in refused.value.what
    assert "resolving" in captured.err.getvalue()
