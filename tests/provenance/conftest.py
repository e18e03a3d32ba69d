"""A lock of the flagship recipe's GB10 lane, as `lock` would write it, with made-up hashes."""

from __future__ import annotations

import pytest

from recipectl.lockfile import Lock, LockedFile, LockedImage, LockedModel
from recipectl.recipe import catalog
from recipectl.recipe.lane import Lane
from recipectl.recipe.schema import Recipe
from recipectl.settings import Settings

TARGET, DRAFTER = "a" * 40, "b" * 40


def recipe(settings: Settings, name: str) -> Recipe:
    """One of the recipes of this repository."""
    return catalog.load(catalog.find(settings, name))


def only(of: Recipe, variant: str) -> tuple[str, Lane]:
    """One variant of the GB10 lane, with its place."""
    return f"sm121/{variant}", of.lane("sm121", variant)


def locked(role: str, repo: str, commit: str, license_: str | None) -> LockedModel:
    """A model of two files."""
    files = tuple(
        LockedFile(path=p, size=9, sha256=c * 64) for p, c in (("config.json", "1"), ("model.safetensors", "2"))
    )
    return LockedModel.model_validate(
        {
            "role": role,
            "repo": repo,
            "commit": commit,
            "license": license_,
            "tree": "sha256:" + "3" * 64,
            "files": files,
        }
    )


@pytest.fixture
def flash(settings: Settings) -> Recipe:
    """glm53-flash-dflash2."""
    return recipe(settings, "glm53-flash-dflash2")


@pytest.fixture
def flash_lock(flash: Recipe) -> Lock:
    """Its lane sm121; the card of the drafter states its license, the target's card none."""
    lane = flash.lanes["sm121"]
    assert lane.drafter and lane.engine.image
    target, drafter = flash.models[lane.target], flash.models[lane.drafter]
    return Lock(
        recipe=flash.name, resolution={"sm121": "sha256:" + "4" * 64},
        models={
            lane.target: locked("target", str(target.repo), TARGET, None),
            lane.drafter: locked("drafter", str(drafter.repo), DRAFTER, "cc-by-nc-nd-4.0"),
        },
        images={lane.engine.image.ref: LockedImage(ref=lane.engine.image.ref, digest="sha256:" + "5" * 64)},
    )  # fmt: skip
