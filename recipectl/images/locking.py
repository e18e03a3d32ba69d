"""Images and overlays in the lock: tags become digests here, without pulling; later verbs only obey."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recipectl.errors import EngineError, HubError, PinError
from recipectl.images.overlay import Overlay, input_digest
from recipectl.images.overlay_files import load
from recipectl.images.port import ImageStore
from recipectl.lockfile import Lock, LockedImage, LockedOverlay
from recipectl.recipe.families import FAMILIES, Family
from recipectl.recipe.lane import Image, Lane
from recipectl.recipe.schema import Recipe
from recipectl.settings import Settings

Connect = Callable[[], ImageStore]


@dataclass
class ImageLocks:
    """What was resolved, and what could not be (a line each)."""

    images: dict[str, LockedImage] = field(default_factory=dict)
    overlays: dict[str, LockedOverlay] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def lock_images(
    settings: Settings, lanes: Iterable[tuple[str, Lane]], old: Lock | None, connect: Connect, *, update: bool = False
) -> ImageLocks:
    """Lock the images and overlays of lanes (family name, lane). A tag that is locked already is kept unless `update`.

    A tag that cannot be resolved here (no engine, no registry) is a warning: models can be locked on a host without
    Docker, and `build` and `serve` refuse what the lock does not name.
    """
    out = ImageLocks()
    for family_name, lane in lanes:
        family = FAMILIES[family_name]
        if image := lane.engine.image:
            known = None if update or old is None else old.images.get(image.ref)
            if found := _locked(image, family, known, connect, out.warnings):
                out.images[image.ref] = found
        if name := lane.engine.overlay:
            overlay = load(settings, name)
            base, base_image = None, overlay.manifest.base.image
            if base_image and lane.engine.runtime == "docker":
                held = None if update or old is None else old.overlays.get(name)
                base = _locked(base_image, family, held.base if held else None, connect, out.warnings)
                if base is None:
                    continue
            out.overlays[name] = locked_overlay(overlay, base)
    return out


def relock(
    settings: Settings,
    recipe: Recipe,
    lanes: Sequence[str],
    old: Lock | None,
    new: Lock,
    connect: Connect,
    *,
    update: bool = False,
) -> tuple[Lock, list[str]]:
    """`new` with the images and overlays of `lanes` and their variants; what other lanes locked before is kept."""
    variants = {str(k): v for k, v in recipe.variants.items()}
    wanted = [(name, lane) for name in lanes for lane in (recipe.lane(name), *variants.get(name, {}).values())]
    found = lock_images(settings, wanted, old, connect, update=update)
    engines = [lane.engine for _, lane in recipe.all_lanes()]
    refs, names = {e.image.ref for e in engines if e.image}, {e.overlay for e in engines if e.overlay}
    images = {k: v for k, v in (old.images if old else {}).items() if k in refs} | found.images
    overlays = {k: v for k, v in (old.overlays if old else {}).items() if k in names} | found.overlays
    return new.model_copy(update={"images": images, "overlays": overlays}), found.warnings


def locked_overlay(overlay: Overlay, base: LockedImage | None) -> LockedOverlay:
    """The lock's entry of an overlay on a base (None: the process runtime, where the package itself is the base)."""
    digest = input_digest(overlay, base.digest if base else None, base.platform if base else None)
    table = {file: pair for file, pair in overlay.patch_table().items() if "?" not in pair}
    return LockedOverlay(input_digest=digest, base=base, patches=table)


def _locked(
    image: Image, family: Family, known: LockedImage | None, connect: Connect, warnings: list[str]
) -> LockedImage | None:
    platform = image.platform or family.platform
    if image.digest is not None:
        return LockedImage(ref=image.ref, digest=image.digest, platform=platform)
    if known is not None and known.ref == image.ref:
        return known
    try:
        found = connect().resolve(image.ref)
    except (EngineError, HubError) as err:
        warnings.append(f"image {image.ref} is not locked: {err.what} ({err.seen or err.on})")
        return None
    if platform and found.platforms and platform not in found.platforms:
        raise PinError(
            "the image does not exist for the lane's platform", on=image.ref, seen=", ".join(found.platforms),
            expected=platform, next_step="name an image of this platform in the lane",
        )  # fmt: skip
    only = found.platforms[0] if len(found.platforms) == 1 else None
    return LockedImage(ref=image.ref, digest=found.digest, platform=platform or only)


def base_of(overlay: Overlay, lock: Lock | None) -> LockedImage:
    """The base image to build on: pinned in the overlay itself, or by the lock. PinError without a digest."""
    image = overlay.manifest.base.image
    held = lock.overlays.get(overlay.name) if lock else None
    locked = held.base if held else None
    if image is None:
        raise PinError(
            f"overlay {overlay.name} names no base image: it is for the process runtime",
            next_step="recipectl serve applies it to the engine's own environment",
        )  # fmt: skip
    if image.digest is None and (locked is None or locked.ref != image.ref):
        raise PinError(
            "the base image has a tag but no digest, and tags move", on=f"overlay {overlay.name}", seen=image.ref,
            expected=f"{image.ref}@sha256:...", next_step="recipectl lock, or write the digest into overlay.yaml",
        )  # fmt: skip
    if image.digest is None:
        assert locked is not None
        return locked
    if locked is not None and locked.digest != image.digest:
        raise PinError(
            "overlay and lock name different bases", on=f"overlay {overlay.name}", seen=image.digest,
            expected=locked.digest, next_step="recipectl lock",
        )  # fmt: skip
    return locked or LockedImage(ref=image.ref, digest=image.digest, platform=image.platform)


def require_overlay(overlay: Overlay, lock: Lock | None, recipe: str, lock_file: Path) -> None:
    """PinError with the drift if the lock does not hold for this overlay."""
    if drifted := overlay_drift(overlay, lock):
        raise PinError(
            f"the lock of {recipe} does not hold for overlay {overlay.name}", on=str(lock_file), details=drifted,
            next_step=f"recipectl lock {recipe}",
        )  # fmt: skip


def overlay_drift(overlay: Overlay, lock: Lock | None) -> list[str]:
    """Why the lock does not hold for this overlay any more; empty if it does."""
    held = lock.overlays.get(overlay.name) if lock else None
    if held is None:
        return [f"overlay {overlay.name} is not in the lock"]
    now = locked_overlay(overlay, held.base)
    if now.input_digest == held.input_digest:
        return []
    absent = ("", "not patched")
    out = [
        f"{file}: {held.patches.get(file, absent)[1][:12]} -> {now.patches.get(file, absent)[1][:12]}"
        for file in sorted({*held.patches, *now.patches})
        if held.patches.get(file) != now.patches.get(file)
    ]
    return [f"overlay {overlay.name} changed since it was locked", *out]
