"""Images on an engine against the lock: by digest for what was pulled, by labels and layers for what was built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recipectl.errors import PinError
from recipectl.images.build import BuildPlan, faults
from recipectl.images.context import repository
from recipectl.images.known import Known
from recipectl.images.port import ImageInfo, ImageStore, Progress
from recipectl.lockfile import Lock, LockedImage
from recipectl.recipe.lane import Lane


@dataclass(frozen=True)
class Need:
    """An image that a lane runs on, or that its overlay is built on."""

    role: str
    locked: LockedImage

    @property
    def name(self) -> str:
        """`repository@sha256:...`, the only way an image is ever asked for."""
        return f"{repository(self.locked.ref)}@{self.locked.digest}"


def needs(lane: Lane, lock: Lock | None) -> list[Need]:
    """The images that a lane pulls. PinError where the lock does not name one: a tag is never trusted."""
    engine = lane.engine
    if engine.runtime != "docker":
        return []
    if engine.overlay:
        held = lock.overlays.get(engine.overlay) if lock else None
        if held is None or held.base is None:
            raise _not_locked(f"the base of overlay {engine.overlay}")
        return [Need(f"base of overlay {engine.overlay}", held.base)]
    if engine.image:
        locked = lock.images.get(engine.image.ref) if lock else None
        if locked is None:
            raise _not_locked(engine.image.ref)
        return [Need("image", locked)]
    return []


def _not_locked(what: str) -> PinError:
    return PinError(
        f"the lock does not name a digest for {what}", expected="sha256:...", next_step="recipectl lock (with Docker "
        "running and the registry in reach), or write the digest into the recipe",
    )  # fmt: skip


def pull(engine: ImageStore, need: Need, progress: Progress | None = None) -> tuple[ImageInfo, bool]:
    """The image, and whether it had to be fetched."""
    here = engine.image(need.name)
    if here is not None and _fits(here, need):
        return here, False
    return engine.pull(repository(need.locked.ref), need.locked.digest, need.locked.platform, progress), True


def check_pulled(engine: ImageStore, need: Need) -> ImageInfo:
    """The local image of a need. PinError if it is absent, or for another platform."""
    found = engine.image(need.name)
    if found is None:
        raise PinError(f"the {need.role} is not on this engine", on=need.name, next_step="recipectl pull")
    if not _fits(found, need):
        raise PinError(
            f"the {need.role} on this engine is for another platform", on=need.name, seen=found.platform,
            expected=need.locked.platform, next_step=f"docker image rm {need.name}; recipectl pull",
        )  # fmt: skip
    return found


def _fits(image: ImageInfo, need: Need) -> bool:
    return need.locked.platform in (None, image.platform)


def check_built(
    engine: ImageStore, todo: BuildPlan, say: Callable[[str], None], known: Known | None = None
) -> ImageInfo | None:
    """The overlay's image, if it was built here; None if not. PinError for labels, layers or files that are not its
    own."""
    found = engine.image(todo.tag)
    if found is None:
        return None
    if wrong := faults(engine, todo, found, known):
        raise PinError(
            "the image is not the one that the overlay makes", on=todo.tag, details=wrong,
            next_step="recipectl build makes it anew",
        )  # fmt: skip
    if engine.image(todo.base_name) is None:
        say(f"layers of {todo.tag} not checked: its base is not on this engine")
    return found
