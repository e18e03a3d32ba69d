"""From a recipe's model to its locked form: every file with its sha256, checked for safety and against what the recipe
and others have published about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from recipectl.errors import PinError
from recipectl.fsio import HashCache
from recipectl.hub.claims import check_expected, check_license, check_published
from recipectl.hub.inspect import facts, facts_of, parse_config
from recipectl.hub.port import Hub
from recipectl.hub.remote import PARALLEL, Repository, patiently, wanted
from recipectl.hub.safetensors import check_index, parse_index
from recipectl.hub.safety import INDEX, check_folder, check_names, check_pt, check_remote_code, pt_files, python_files
from recipectl.hub.store import safe_name, walk
from recipectl.licenses import canonical
from recipectl.lockfile import Facts, LockedFile, LockedModel, tree_digest
from recipectl.recipe.model import Model
from recipectl.workers import run_all


def lock_folder(
    name: str, model: Model, folder: Path, cache: HashCache, on_bytes: Callable[[int], None] | None = None, *,
    full: bool = True,
) -> LockedModel:  # fmt: skip
    """Lock a model that lies in a folder of this machine: every file in it, since the engine sees the whole folder.

    Without `full`, a file that has not changed since it was hashed is taken at its remembered hash.

    PinError if the folder is not there, holds what must not be loaded, or is not what the recipe expects.
    """
    if not folder.is_dir():
        raise PinError(f"the folder of model {name} is not there", on=str(folder), next_step="put the model there")
    check_folder(folder, model)
    files = []
    for path in walk(folder):
        sha = cache.sha256(folder / path, full=full, on_bytes=on_bytes)
        files.append(LockedFile(path=safe_name(path), size=(folder / path).stat().st_size, sha256=sha))
    found = facts_of(folder, model.expect.tensors)
    check_published(name, model, {f.path: f.sha256 for f in files})
    check_expected(name, model, found)
    return locked_model(
        model, files, found, path=model.path, license=canonical(model.license) if model.license else None
    )


def lock_repo(
    name: str,
    model: Model,
    hub: Hub,
    old: LockedModel | None,
    commit: str | None,
    accept: Iterable[str],
    retries: int,
) -> tuple[LockedModel, list[str]]:
    """Lock a model of a hub at `commit`, or at what its revision means now. Weights are not downloaded: their sha256
    is the hub's, their headers are read from their first bytes.

    LicenseError if the card's license is not the recipe's, or changed against the old lock; PinError as in
    `lock_folder`; HubError.
    """
    assert model.repo is not None
    repo, ref = model.repo, commit or model.revision or "main"
    source = Repository(hub, repo, patiently(lambda: hub.resolve(repo, ref), retries), retries)
    listing = source.files()
    chosen = wanted(listing, model)
    check_names([f.path for f in chosen], model)
    license_ = source.license(listing)
    check_license(name, model, license_, source.commit, old, accept)
    files = run_all(chosen, source.locked_file, PARALLEL)
    by_name = {f.path: f for f in files}
    if "config.json" not in by_name:
        raise PinError(f"model {name} has no config.json", on=f"{repo}@{source.commit}", next_step="is this a model?")
    config = parse_config(source.small("config.json"), f"{repo}@{source.commit}/config.json")
    check_remote_code({n: by_name[n].sha256 for n in python_files(by_name)}, config, model)
    for path in pt_files(by_name):
        check_pt(source.small(path), path, config)
    tokenizer = by_name.get("tokenizer.json")
    headers = source.headers(files)
    if INDEX in by_name:
        check_index(parse_index(source.small(INDEX), INDEX), headers, INDEX)
    found = facts(config, headers, model.expect.tensors, tokenizer.sha256 if tokenizer else None)
    check_published(name, model, {f.path: f.sha256 for f in files})
    check_expected(name, model, found)
    locked = locked_model(model, files, found, repo=repo, ref=model.revision, commit=source.commit,
                          license=license_, gated=source.resolved.gated)  # fmt: skip
    left = [n for n in python_files(f.path for f in listing) if n not in by_name]
    return locked, _warnings(name, model, locked, left)


def locked_model(model: Model, files: Iterable[LockedFile], found: Facts, **source: object) -> LockedModel:
    """A locked model from its files and facts; `source` are the fields that say where it comes from."""
    ordered = tuple(sorted(files, key=lambda f: f.path))
    return LockedModel.model_validate(
        {
            "role": model.role,
            "tree": tree_digest({f.path: f.sha256 for f in ordered}),
            "files": ordered,
            "remote_code": tuple(python_files(f.path for f in ordered)),
            "facts": found,
            **source,
        }
    )


def _warnings(name: str, model: Model, locked: LockedModel, code_left: list[str]) -> list[str]:
    out = []
    if model.revision != locked.commit:
        ref = model.revision or "main"
        kind = "is a short sha" if re.fullmatch(r"[0-9a-f]{4,39}", ref) else "moves"
        out.append(f"models.{name}: revision {ref} {kind}; pin it in the recipe: `revision: {locked.commit}  # {ref}`")
    if locked.license is None:
        stated = f"the recipe says {model.license}" if model.license else "nor does the recipe"
        out.append(f"models.{name}: the card states no license; {stated}")
    elif model.license is None:
        out.append(f"models.{name}: the card says `license: {locked.license}`; put it in the recipe")
    if code_left:
        out.append(f"models.{name}: the repository holds code, not fetched: {', '.join(code_left[:8])}")
    return out
