"""Images and overlays in the lock: tags become digests without a pull, and drift is listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recipectl.errors import EngineError, HubError, PinError
from recipectl.images.locking import base_of, lock_images, locked_overlay, overlay_drift
from recipectl.images.overlay_files import load
from recipectl.images.port import Resolved
from recipectl.images.verify import needs
from recipectl.lockfile import Lock, LockedImage, dump
from recipectl.lockfile import load as load_lock
from recipectl.recipe.lane import Lane
from recipectl.settings import Settings

from .conftest import Bench, sha, write_overlay

ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64


class Registry:
    """A registry whose tags can move, as the base tag of the GB300 lane did."""

    def __init__(self, digest: str = ONE, platforms: tuple[str, ...] = ("linux/arm64", "linux/amd64")) -> None:
        self.digest, self.platforms, self.asked = digest, platforms, 0

    def __call__(self) -> Registry:
        return self

    def resolve(self, ref: str) -> Resolved:
        self.asked += 1
        return Resolved(self.digest, self.platforms)


def lane(**engine: Any) -> Lane:
    data = {"summary": "a lane", "target": "t", "speculative": {"method": "ngram", "k": 3},
            "engine": {"name": "vllm", **engine}}  # fmt: skip
    return Lane.model_validate(data)


def lock(**parts: Any) -> Lock:
    return Lock(recipe="r", resolution={}, **parts)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_tag_is_resolved_for_the_lanes_platform(settings: Settings) -> None:
    found = lock_images(settings, [("sm121", lane(image={"ref": "a/b:1"}))], None, Registry())  # type: ignore[arg-type]
    assert found.images == {"a/b:1": LockedImage(ref="a/b:1", digest=ONE, platform="linux/arm64")}


def test_a_tag_that_moved_stays_as_locked_until_an_update(settings: Settings) -> None:
    lanes = [("sm121", lane(image={"ref": "a/b:1"}))]
    registry = Registry()
    first = lock(images=lock_images(settings, lanes, None, registry).images)  # type: ignore[arg-type]
    registry.digest = TWO
    again = lock_images(settings, lanes, first, registry)  # type: ignore[arg-type]
    assert (again.images["a/b:1"].digest, registry.asked) == (ONE, 1)
    assert lock_images(settings, lanes, first, registry, update=True).images["a/b:1"].digest == TWO  # type: ignore[arg-type]


def test_a_digest_in_the_recipe_needs_no_registry(settings: Settings) -> None:
    registry = Registry()
    found = lock_images(settings, [("sm100", lane(image={"ref": "a/b:1", "digest": TWO}))], None, registry)  # type: ignore[arg-type]
    assert (found.images["a/b:1"].digest, registry.asked) == (TWO, 0)


def test_an_image_of_another_platform_is_refused(settings: Settings) -> None:
    with pytest.raises(PinError, match="does not exist for the lane's platform"):
        lock_images(settings, [("sm121", lane(image={"ref": "a/b:1"}))], None, Registry(platforms=("linux/amd64",)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error", [EngineError("the Docker engine does not answer"), HubError("its registry cannot be reached")]
)
def test_what_cannot_be_resolved_is_a_warning(settings: Settings, error: Exception) -> None:
    class Away(Registry):
        def resolve(self, ref: str) -> Resolved:
            raise error

    found = lock_images(settings, [("sm121", lane(image={"ref": "a/b:1"}))], None, Away())  # type: ignore[arg-type]
    assert found.images == {}
    assert "image a/b:1 is not locked" in found.warnings[0]
    with pytest.raises(PinError, match="does not name a digest for a/b:1"):
        needs(lane(image={"ref": "a/b:1"}), lock())


def test_an_overlay_is_locked_with_its_base_and_its_table(settings: Settings, work: Path) -> None:
    base = {"distribution": ["toy"], "version": "1.0", "site_packages": "/opt/site", "image": {"ref": "a/b:1"}}
    write_overlay(work, families=["sm121"], base=base)
    found = lock_images(settings, [("sm121", lane(overlay="toy-overlay"))], None, Registry())  # type: ignore[arg-type]
    held = found.overlays["toy-overlay"]
    assert held.base == LockedImage(ref="a/b:1", digest=ONE, platform="linux/arm64")
    toy = load(settings, "toy-overlay")
    table = toy.manifest.patches[0]
    assert held.patches == {"toy/first.py": (table.before, table.after)}
    made = lock(overlays=found.overlays)
    assert load_lock(dump(made), "x").overlays == made.overlays
    assert base_of(toy, made) == held.base
    assert overlay_drift(toy, made) == []
    assert [n.name for n in needs(lane(overlay="toy-overlay"), made)] == [f"a/b@{ONE}"]


def test_a_changed_overlay_is_listed(settings: Settings, work: Path) -> None:
    write_overlay(work)
    made = lock(
        overlays={"toy-overlay": locked_overlay(load(settings, "toy-overlay"), LockedImage(ref="a", digest=ONE))}
    )
    other = "# other\n"
    write_overlay(work, {"added.py": other}, files=[{"file": "toy/added.py", "source": "added.py", "sha256": sha(other),
                                                     "why": "another file now"}])  # fmt: skip
    assert overlay_drift(load(settings, "toy-overlay"), made) == ["overlay toy-overlay changed since it was locked"]
    patches = [{**load(settings, "toy-overlay").manifest.patches[0].model_dump(mode="json"), "after": "9" * 64}]
    write_overlay(work, patches=patches)
    assert overlay_drift(load(settings, "toy-overlay"), made)[1].endswith("-> 999999999999")
    assert overlay_drift(load(settings, "toy-overlay"), None) == ["overlay toy-overlay is not in the lock"]


def test_a_base_with_a_tag_and_no_digest_is_refused(settings: Settings, work: Path) -> None:
    write_overlay(
        work, base={"distribution": ["toy"], "version": "1.0", "site_packages": "/x", "image": {"ref": "a/b:1"}}
    )
    with pytest.raises(PinError, match="has a tag but no digest") as caught:
        base_of(load(settings, "toy-overlay"), None)
    assert (caught.value.exit_code, caught.value.expected) == (4, "a/b:1@sha256:...")


def test_overlay_and_lock_that_disagree(settings: Settings, work: Path) -> None:
    write_overlay(work)
    toy = load(settings, "toy-overlay")
    ref = "127.0.0.1:1/base:1"
    made = lock(overlays={"toy-overlay": locked_overlay(toy, LockedImage(ref=ref, digest=ONE))})
    with pytest.raises(PinError, match="different bases"):
        base_of(toy, made)


def test_an_overlay_for_the_process_runtime_has_no_base(settings: Settings) -> None:
    found = lock_images(
        settings, [("cpu", lane(name="vllm-cpu", overlay="vllm-cpu-temperature", runtime="process"))], None, Registry()  # type: ignore[arg-type]
    )  # fmt: skip
    assert found.overlays["vllm-cpu-temperature"].base is None
    with pytest.raises(PinError, match="names no base image"):
        base_of(load(settings, "vllm-cpu-temperature"), None)


@pytest.mark.docker
def test_a_real_registry(settings: Settings, bench: Bench) -> None:
    host = bench.docker.platform()
    found = lock_images(settings, [("cpu", lane(image={"ref": bench.ref}))], None, lambda: bench.docker)
    assert found.images[bench.ref] == LockedImage(ref=bench.ref, digest=bench.digest, platform=host)
