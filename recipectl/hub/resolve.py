"""From a recipe to its lock: which models have to be looked at, and what stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recipectl.console import Console
from recipectl.fsio import HashCache
from recipectl.hub.locking import lock_folder, lock_repo
from recipectl.hub.port import Hub
from recipectl.hub.store import Beside, path_dir
from recipectl.lockfile import Lock, LockedImage, LockedModel, resolution_digest
from recipectl.recipe.schema import Recipe
from recipectl.settings import Settings


@dataclass(frozen=True)
class Wanted:
    """What is to be locked: lanes of a recipe, what to resolve anew (`update`), licenses accepted."""

    settings: Settings
    entry: Beside
    recipe: Recipe
    lanes: tuple[str, ...]
    update: str | None = None
    accept: tuple[str, ...] = ()

    def stale(self, old: Lock | None, name: str, locked: LockedModel) -> bool:
        """Whether a locked hub model has to be looked at again."""
        model = self.recipe.models[name]
        if self.update in (model.role, "all") or (locked.repo, locked.ref) != (model.repo, model.revision):
            return True
        return old is None or any(old.resolution.get(n) != resolution_digest(self.recipe, n) for n in self.lanes)

    def model_names(self) -> list[str]:
        """Models of the lanes and of their variants."""
        variants = {str(k): v for k, v in self.recipe.variants.items()}
        lanes = [lane for n in self.lanes for lane in (self.recipe.lane(n), *variants.get(n, {}).values())]
        return sorted({name for lane in lanes for name in (lane.target, lane.drafter) if name})


def resolve(
    want: Wanted, old: Lock | None, cache: HashCache, console: Console, connect: Callable[[], Hub]
) -> tuple[Lock, list[str]]:
    """The new lock and the warnings about it. What the lanes do not touch stays as it was; the hub is asked only for
    models that are not locked yet, whose part of the recipe changed, or that `update` names."""
    recipe, warnings = want.recipe, list[str]()
    models = dict(old.models) if old else {}
    for name in want.model_names():
        model = recipe.models[name]
        if model.path is not None:
            folder = path_dir(want.entry, model)
            with console.progress(f"hashing {name}", unit="B") as bar:
                models[name] = lock_folder(name, model, folder, cache, bar.advance)
        elif not (settled := models.get(name)) or want.stale(old, name, settled):
            console.notice(f"resolving {name}: {model.repo}@{model.revision or 'main'}")
            keep = settled is not None and settled.ref == model.revision and want.update not in (model.role, "all")
            at = settled.commit if settled is not None and keep else None
            models[name], said = lock_repo(name, model, connect(), settled, at, want.accept, want.settings.hub_retries)
            warnings += said
    known = {n for n in models if n in recipe.models}
    resolution = dict(old.resolution) if old else {}
    resolution |= {lane: resolution_digest(recipe, lane) for lane in want.lanes}
    return Lock(
        recipe=recipe.name,
        resolution={lane: digest for lane, digest in resolution.items() if lane in {str(n) for n in recipe.lanes}},
        models={n: models[n] for n in sorted(known)},
        images=(dict(old.images) if old else {}) | _pinned_images(want),
        overlays=dict(old.overlays) if old else {},
    ), warnings


def _pinned_images(want: Wanted) -> dict[str, LockedImage]:
    """Images that the recipe itself pins by digest; resolving a tag is the work of `build`."""
    out = {}
    for _, lane in want.recipe.all_lanes():
        if (image := lane.engine.image) is not None and image.digest is not None:
            out[image.ref] = LockedImage(ref=image.ref, digest=image.digest, platform=image.platform)
    return out
