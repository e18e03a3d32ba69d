"""From a recipe, its lock and its overlays to one list of parts, each with license, obligations and place. PURE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from recipectl.images.manifest import Patch
from recipectl.images.overlay import Overlay
from recipectl.licenses import canonical, obligations
from recipectl.lockfile import Lock, LockedImage
from recipectl.recipe import evidence
from recipectl.recipe.base import Credit, Evidence, Note, Source
from recipectl.recipe.lane import Lane
from recipectl.recipe.schema import Recipe

Kind = Literal["recipe", "target", "drafter", "image", "overlay", "patch", "file"]
NOT_STATED = ("no license is stated: nothing permits more than looking at it",)


@dataclass(frozen=True)
class Part:
    """One thing that a lane uses. `version` is a commit or digest (of the lock where it has one); `used_by` are lanes,
    a variant as `lane/variant`; `license` is an SPDX expression, None where none is stated."""

    kind: Kind
    name: str
    origin: str
    version: str | None
    license: str | None
    license_from: str
    used_by: tuple[str, ...]
    sha256: Mapping[str, str]
    remarks: tuple[str, ...] = ()

    @property
    def obligations(self) -> tuple[str, ...]:
        """What the license asks for, in plain words."""
        return tuple(obligations(self.license).lines()) if self.license else NOT_STATED


@dataclass(frozen=True)
class Notes:
    """Everything that `notes` tells of a recipe. `evidence` counts statuses, `open` are claims that do not stand."""

    recipe: str
    summary: str
    alternative: str | None
    parts: tuple[Part, ...]
    sources: tuple[Source, ...]
    credits: tuple[Credit, ...]
    caveats: tuple[Note, ...]
    amendments: tuple[Note, ...]
    related: tuple[Note, ...]
    evidence: Mapping[str, int]
    open: tuple[tuple[str, Evidence], ...]


def gather(
    recipe: Recipe,
    lock: Lock | None = None,
    lanes: Sequence[tuple[str, Lane]] | None = None,
    overlays: Mapping[str, Overlay] | None = None,
) -> Notes:
    """The notes of a recipe, or of some lanes of it, each with its place (see `lanes_of`).

    `overlays` are those that could be read, by name; any other is told without its patches.
    """
    lanes = lanes_of(recipe) if lanes is None else lanes
    rows = [row for _, lane in lanes for row in evidence.rows(recipe, lane)]
    unique = {(where, e.source, e.date, e.status, e.note): (where, e) for where, _, e in rows}
    about = recipe.provenance
    return Notes(
        recipe=recipe.name, summary=recipe.summary, alternative=recipe.alternative,
        parts=tuple(_parts(recipe, lock, lanes, overlays or {})), sources=tuple(about.sources),
        credits=tuple(about.credits), caveats=tuple(about.caveats), amendments=tuple(about.amendments),
        related=tuple(about.related), evidence=dict(Counter(e.status for _, e in unique.values()).most_common()),
        open=tuple((w, e) for w, e in unique.values() if e.status in ("disputed", "retracted", "unresolved")),
    )  # fmt: skip


def lanes_of(recipe: Recipe, name: str | None = None) -> list[tuple[str, Lane]]:
    """Every lane and variant, or those of one family, by place: `sm121`, `sm121/eager`."""
    found = [(str(n), lane) for n, lane in recipe.lanes.items() if name in (None, n)]
    for n, variants in recipe.variants.items():
        found += [(f"{n}/{v}", lane) for v, lane in variants.items() if name in (None, n)]
    return found


def _parts(
    recipe: Recipe, lock: Lock | None, lanes: Sequence[tuple[str, Lane]], overlays: Mapping[str, Overlay]
) -> Iterator[Part]:
    places = tuple(place for place, _ in lanes)
    yield Part("recipe", recipe.name, f"recipes/{recipe.name}", None, recipe.license, "recipe", places, {})
    for name in recipe.models:
        if used := tuple(place for place, lane in lanes if name in (lane.target, lane.drafter)):
            yield _model(recipe, name, lock, used)
    yield from _images(lock, lanes)
    yield from _overlays(lock, lanes, overlays)
    yield from _assets(lanes)


def _model(recipe: Recipe, name: str, lock: Lock | None, used: tuple[str, ...]) -> Part:
    model = recipe.models[name]
    locked = lock.models.get(name) if lock else None
    license_, source = model.license, "recipe"
    remarks = list(model.notes)
    if locked is not None and locked.repo is not None and locked.license is not None:  # what lies here has no card
        license_, source = locked.license, "card, as locked"
        if model.license is not None and canonical(model.license) != canonical(locked.license):
            remarks.insert(0, f"LICENSE DIFFERS: the recipe says {model.license}, the card says {locked.license}")
    if source == "recipe":
        remarks += [
            f"license {e.status}: {e.note or e.source}" for e in model.license_evidence if e.status != "published"
        ]
    if model.gated:
        remarks.append("gated: the hub gives it only to accounts that asked for access")
    hashes = {f.path: f.sha256 for f in locked.files} if locked else dict(model.files.sha256)
    version = (locked.commit or locked.tree) if locked else model.revision
    return Part(
        model.role, name, model.repo or str(PurePosixPath("recipes", recipe.name, model.path or "")), version,
        canonical(license_) if license_ else None, source, used, hashes, tuple(remarks),
    )  # fmt: skip


def _images(lock: Lock | None, lanes: Sequence[tuple[str, Lane]]) -> Iterator[Part]:
    refs = {lane.engine.image.ref: lane.engine.image for _, lane in lanes if lane.engine.image}
    for ref, image in refs.items():
        used = tuple(p for p, lane in lanes if lane.engine.image and lane.engine.image.ref == ref)
        locked = lock.images.get(ref) if lock else None
        digest = locked.digest if locked else image.digest
        remarks = tuple(f"{e.status}: {e.note}" for e in image.evidence if e.note)
        license_ = canonical(image.license) if image.license else None
        yield Part("image", ref, ref, digest, license_, "recipe", used, {}, remarks)


def _overlays(lock: Lock | None, lanes: Sequence[tuple[str, Lane]], overlays: Mapping[str, Overlay]) -> Iterator[Part]:
    for name in dict.fromkeys(lane.engine.overlay for _, lane in lanes if lane.engine.overlay):
        used = tuple(p for p, lane in lanes if lane.engine.overlay == name)
        locked = lock.overlays.get(name) if lock else None
        digest = locked.input_digest if locked else None
        if overlay := overlays.get(name):
            boxed = any(lane.engine.overlay == name and lane.engine.runtime == "docker" for _, lane in lanes)
            yield from of_overlay(overlay, digest, locked.base if locked else None, used, boxed=boxed)
        else:
            yield Part("overlay", name, f"overlays/{name}", digest, None, "overlay.yaml cannot be read", used, {})


def of_overlay(
    overlay: Overlay, digest: str | None, base: LockedImage | None, used: tuple[str, ...] = (), *, boxed: bool = True
) -> Iterator[Part]:
    """An overlay with what it is made of: the base image (for an image, `boxed`) and every patch of somebody else."""
    license_: str | None = canonical(overlay.manifest.license)
    yield Part("overlay", overlay.name, f"overlays/{overlay.name}", digest, license_, "overlay.yaml", used, {})
    if boxed and (image := overlay.manifest.base.image):
        pinned = base.digest if base else image.digest
        license_ = canonical(image.license) if image.license else None
        yield Part("image", image.ref, image.ref, pinned, license_, "overlay.yaml", used, {})
    yield from (_patch(s.patch, used) for s in overlay.steps if s.patch.foreign)


def _patch(patch: Patch, used: tuple[str, ...]) -> Part:
    """A patch of somebody else: named by repository, commit, path and sha256, and contained nowhere."""
    foreign = patch.foreign
    assert foreign is not None
    hashes = {foreign.path: foreign.sha256} if foreign.sha256 else {}
    license_ = canonical(foreign.license) if foreign.license else None
    return Part(
        "patch", foreign.path, foreign.repository, foreign.commit, license_, "overlay.yaml", used, hashes, (patch.why,)
    )


def _assets(lanes: Sequence[tuple[str, Lane]]) -> Iterator[Part]:
    for path, asset in {a.path: a for _, lane in lanes for a in lane.assets}.items():
        used = tuple(p for p, lane in lanes if any(a.path == path for a in lane.assets))
        license_ = canonical(asset.license) if asset.license else None
        hashes = {path: asset.sha256} if asset.sha256 else {}
        yield Part("file", path, path, None, license_, "recipe", used, hashes)
