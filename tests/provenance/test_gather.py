"""What notes are gathered from: recipe, lock and overlays, each part once, with the license of the best source."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipectl.images import overlay_files
from recipectl.lockfile import Lock
from recipectl.provenance import Notes, Part, gather
from recipectl.recipe.schema import Recipe
from recipectl.settings import Settings
from tests.provenance.conftest import DRAFTER, TARGET, locked, only, recipe


def part(notes: Notes, kind: str) -> Part:
    found = [p for p in notes.parts if p.kind == kind]
    assert len(found) == 1, found
    return found[0]


def test_a_lane_tells_only_what_it_uses(flash: Recipe) -> None:
    notes = gather(flash, lanes=[only(flash, "eager")])
    assert [p.kind for p in notes.parts] == ["recipe", "target", "drafter", "image", *["file"] * len(files(notes))]
    assert part(notes, "drafter").used_by == ("sm121/eager",)


def files(notes: Notes) -> list[Part]:
    return [p for p in notes.parts if p.kind == "file"]


def test_without_speculation_no_drafter_is_used_and_nothing_restricts(flash: Recipe) -> None:
    notes = gather(flash, lanes=[only(flash, "mtp")])
    assert not [p for p in notes.parts if p.kind == "drafter"]
    assert not [x for p in notes.parts for x in p.obligations if "non-commercial" in x]


def test_the_drafter_of_the_flagship_forbids_commerce_and_derivatives(flash: Recipe) -> None:
    drafter = part(gather(flash, lanes=[only(flash, "eager")]), "drafter")
    assert (drafter.origin, drafter.license) == ("incoai/GLM-5.3-Flash-DFlash2", "CC-BY-NC-ND-4.0")
    assert [o.split(":")[0] for o in drafter.obligations[:2]] == ["non-commercial use only", "no derivatives"]


def test_the_lock_names_commit_and_files_and_the_card_beats_the_recipe(flash: Recipe, flash_lock: Lock) -> None:
    notes = gather(flash, flash_lock, [only(flash, "eager")])
    target, drafter, image = part(notes, "target"), part(notes, "drafter"), part(notes, "image")
    assert (target.version, target.license_from) == (TARGET, "recipe")
    assert (drafter.version, drafter.license, drafter.license_from) == (DRAFTER, "CC-BY-NC-ND-4.0", "card, as locked")
    assert drafter.sha256 == {"config.json": "1" * 64, "model.safetensors": "2" * 64}
    assert image.version == "sha256:" + "5" * 64


def test_a_card_that_says_otherwise_is_told_first(flash: Recipe, flash_lock: Lock) -> None:
    name = flash.lanes["sm121"].drafter
    assert name is not None
    changed = flash_lock.model_copy(
        update={"models": {**flash_lock.models, name: locked("drafter", "incoai/x", DRAFTER, "apache-2.0")}}
    )
    drafter = part(gather(flash, changed, [only(flash, "eager")]), "drafter")
    assert drafter.license == "Apache-2.0"
    assert drafter.remarks[0] == "LICENSE DIFFERS: the recipe says CC-BY-NC-ND-4.0, the card says apache-2.0"


def test_what_states_no_license_says_so_in_its_obligations(flash: Recipe) -> None:
    bare = [p for p in gather(flash).parts if p.license is None]
    assert bare, "the flagship's notes name an image and a target without a license"
    assert {p.obligations for p in bare} == {("no license is stated: nothing permits more than looking at it",)}


def test_evidence_is_counted_once_and_what_does_not_stand_is_listed(settings: Settings) -> None:
    notes = gather(recipe(settings, "glm53-flash-dflash2e"))
    assert notes.evidence["retracted"] >= 1
    assert [e.date.isoformat() for _, e in notes.open if e.status == "retracted" and e.date]
    assert {e.status for _, e in notes.open} <= {"disputed", "retracted", "unresolved"}
    assert sum(n for s, n in notes.evidence.items() if s in ("disputed", "retracted", "unresolved")) == len(notes.open)


FOREIGN = """\
schema: 1
name: borrowed
summary: An overlay that names a patch of somebody else
license: Apache-2.0
sources: [{title: vLLM, where: "https://example.org/vllm", license: Apache-2.0}]
base:
  image: {ref: "example.org/engine:v1", license: null}
  distribution: [vllm]
  version: 0.32.0
  site_packages: /usr/lib/python3/dist-packages
families: [sm121]
patches:
  - file: vllm/a.py
    why: carries the drafter's states
    foreign: {repository: "https://example.org/theirs", path: a.patch, license: null}
"""


@pytest.fixture
def borrowed(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings under whose working directory an overlay with a foreign patch and an unlicensed base lies."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "overlays" / "borrowed"
    folder.mkdir(parents=True)
    (folder / "overlay.yaml").write_text(FOREIGN)
    return settings


def test_patches_and_bases_without_a_license_are_shown_as_such(borrowed: Settings, flash: Recipe) -> None:
    overlay = overlay_files.load(borrowed, "borrowed")
    lane = flash.lanes["sm121"]
    engine = lane.engine.model_copy(update={"image": None, "overlay": "borrowed"})
    changed = flash.model_copy(update={"lanes": {"sm121": lane.model_copy(update={"engine": engine})}, "variants": {}})
    notes = gather(changed, overlays={"borrowed": overlay})
    patch, image = part(notes, "patch"), part(notes, "image")
    assert (patch.origin, patch.name, patch.license) == ("https://example.org/theirs", "a.patch", None)
    assert (image.origin, image.license) == ("example.org/engine:v1", None)
    assert part(notes, "overlay").license == "Apache-2.0"


def test_an_overlay_that_cannot_be_read_is_still_told(flash: Recipe) -> None:
    lane = flash.lanes["sm121"]
    engine = lane.engine.model_copy(update={"image": None, "overlay": "gone"})
    changed = flash.model_copy(update={"lanes": {"sm121": lane.model_copy(update={"engine": engine})}, "variants": {}})
    assert part(gather(changed), "overlay").license_from == "overlay.yaml cannot be read"
