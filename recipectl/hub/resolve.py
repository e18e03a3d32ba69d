"""From a recipe's model to its locked form: what it resolves to now, checked for safety and against what the recipe
and others have published about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from recipectl.console import Console
from recipectl.errors import PinError
from recipectl.fsio import HashCache
from recipectl.hub.inspect import facts_of
from recipectl.hub.safety import check_folder, python_files
from recipectl.hub.store import Beside, local_dir, safe_name, walk
from recipectl.licenses import canonical
from recipectl.lockfile import Facts, Lock, LockedFile, LockedImage, LockedModel, resolution_digest, tree_digest
from recipectl.recipe.model import Model
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

    def model_names(self) -> list[str]:
        """Models of the lanes and of their variants."""
        variants = {str(k): v for k, v in self.recipe.variants.items()}
        lanes = [lane for n in self.lanes for lane in (self.recipe.lane(n), *variants.get(n, {}).values())]
        return sorted({name for lane in lanes for name in (lane.target, lane.drafter) if name})


def resolve(wanted: Wanted, old: Lock | None, cache: HashCache, console: Console) -> tuple[Lock, list[str]]:
    """The new lock and the warnings about it. What the lanes do not touch stays as it was."""
    recipe, warnings = wanted.recipe, list[str]()
    models = dict(old.models) if old else {}
    for name in wanted.model_names():
        model = recipe.models[name]
        if model.path is not None:
            folder = local_dir(wanted.entry, model.path)
            with console.progress(f"hashing {name}", unit="B") as bar:
                models[name] = lock_folder(name, model, folder, cache, bar.advance)
    known = {n for n in models if n in recipe.models}
    resolution = dict(old.resolution) if old else {}
    resolution |= {lane: resolution_digest(recipe, lane) for lane in wanted.lanes}
    return Lock(
        recipe=recipe.name,
        resolution={lane: digest for lane, digest in resolution.items() if lane in {str(n) for n in recipe.lanes}},
        models={n: models[n] for n in sorted(known)},
        images=(dict(old.images) if old else {}) | _pinned_images(wanted),
        overlays=dict(old.overlays) if old else {},
    ), warnings


def _pinned_images(wanted: Wanted) -> dict[str, LockedImage]:
    """Images that the recipe itself pins by digest; resolving a tag is the work of `build`."""
    out = {}
    for _, lane in wanted.recipe.all_lanes():
        if (image := lane.engine.image) is not None and image.digest is not None:
            out[image.ref] = LockedImage(ref=image.ref, digest=image.digest, platform=image.platform)
    return out


def lock_folder(
    name: str, model: Model, folder: Path, cache: HashCache, on_bytes: Callable[[int], None] | None = None
) -> LockedModel:
    """Lock a model that lies in a folder beside the recipe: every file in it, since the engine sees the whole folder.

    PinError if the folder is not there, holds what must not be loaded, or is not what the recipe expects.
    """
    if not folder.is_dir():
        raise PinError(f"the folder of model {name} is not there", on=str(folder), next_step="put the model there")
    check_folder(folder, model)
    files = []
    for path in walk(folder):
        sha = cache.sha256(folder / path, full=True, on_bytes=on_bytes)
        files.append(LockedFile(path=safe_name(path), size=(folder / path).stat().st_size, sha256=sha))
    facts = facts_of(folder, model.expect.tensors)
    check_published(name, model, {f.path: f.sha256 for f in files})
    check_expected(name, model, facts)
    return locked_model(
        model, files, facts, path=model.path, license=canonical(model.license) if model.license else None
    )


def locked_model(model: Model, files: Iterable[LockedFile], facts: Facts, **source: object) -> LockedModel:
    """A locked model from its files and facts; `source` are the fields that say where it comes from."""
    ordered = tuple(sorted(files, key=lambda f: f.path))
    return LockedModel.model_validate(
        {
            "role": model.role,
            "tree": tree_digest({f.path: f.sha256 for f in ordered}),
            "files": ordered,
            "remote_code": tuple(python_files(f.path for f in ordered)),
            "facts": facts,
            **source,
        }
    )


def check_published(name: str, model: Model, found: Mapping[str, str]) -> None:
    """Required files are there, and published sha256 (or prefixes of one) agree. PinError lists every difference."""
    wrong = [f"{path}: required, not there" for path in model.files.required if path not in found]
    for path, published in model.files.sha256.items():
        if path not in found:
            wrong.append(f"{path}: published as {published}, not there")
        elif not found[path].startswith(published):
            wrong.append(f"{path}: published as {published}, found {found[path]}")
    if wrong:
        raise PinError(
            f"model {name} is not what was published", on=model.repo or model.path, details=wrong,
            next_step="find out which of the two is right; do not serve it until you know",
        )  # fmt: skip


def check_expected(name: str, model: Model, facts: Facts) -> None:
    """What the recipe expects holds in the model's own config and headers. PinError lists every difference."""
    wrong = []
    for key, expected in model.expect.model_dump(exclude_none=True, exclude={"tensors"}).items():
        seen = getattr(facts, key)
        if (list(seen) if isinstance(seen, tuple) else seen) != expected:
            wrong.append(f"{key}: the recipe expects {expected}, the model says {seen}")
    for part, expected in model.expect.tensors.items():
        if facts.tensors.get(part) != expected:
            wrong.append(
                f"tensors named *{part}*: the recipe expects {expected}, found {facts.tensors.get(part, 'none')}"
            )
    if wrong:
        raise PinError(
            f"model {name} is not what the recipe expects", on=model.repo or model.path, details=wrong,
            next_step="mend `expect` in the recipe if the model is right",
        )  # fmt: skip
