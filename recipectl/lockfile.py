"""The lock: what a recipe resolved to. PURE codec, digest and diff; reading and writing is `fsio`'s work.

Sorted, line-diffable, no timestamps, no machine paths: the same inputs give the same bytes everywhere. The resolution
digest covers only what decides the resolution (sources, revisions, file patterns, images, overlays), so that editing a
note or a gate does not make a lock stale.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from recipectl.errors import PinError
from recipectl.licenses import canonical
from recipectl.recipe.base import SchemaOne
from recipectl.recipe.lane import Lane
from recipectl.recipe.model import Model
from recipectl.recipe.schema import Recipe

LOCK_SCHEMA = 1


class NewerLock(PinError):
    """A lock that a newer recipectl wrote: never replaced, since that would lose what this one cannot read."""


class _Locked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LockedFile(_Locked):
    """One file of a model: name relative to the model folder, size in bytes, sha256 in hex."""

    path: str
    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    blob_id: str | None = Field(default=None, description="git blob id that the hub gave (small files)")


class Facts(_Locked):
    """What the pure rules need from config.json and the safetensors headers. None: the file does not say."""

    model_type: str | None = None
    architecture: str | None = None
    dtype: str | None = None
    vocab_size: int | None = None
    hidden_size: int | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    max_positions: int | None = None
    block_size: int | None = None
    taps: tuple[int, ...] | None = None
    fc_inputs: int | None = Field(
        default=None, description="input width of the drafter's fc: taps x target hidden size"
    )
    mask_token_id: int | None = None
    sample_from_anchor: bool | None = None
    attention: Literal["full", "sliding"] | None = None
    sliding_window: int | None = None
    quantization: str | None = None
    tensors: dict[str, int] = {}
    tokenizer_sha256: str | None = None
    kv: dict[str, int] = Field(
        default={}, description="what KV geometry needs: geometry_model.kv_numbers of config.json"
    )


class LockedModel(_Locked):
    """One model as resolved: its source, every file, the license the card stated, the facts read from it."""

    role: Literal["target", "drafter"]
    repo: str | None = None
    path: str | None = None
    ref: str | None = Field(default=None, description="the revision as the recipe spelled it")
    commit: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")
    license: str | None = None
    gated: bool | None = None
    tree: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    files: tuple[LockedFile, ...]
    remote_code: tuple[str, ...] = Field(
        default=(), description="python files in the tree; their hashes are under files"
    )
    facts: Facts = Facts()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(f.size for f in self.files)


class LockedImage(_Locked):
    """An image as resolved: `digest` is what the tag meant (index or manifest), `platform` which part of it is used."""

    ref: str
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    platform: str | None = None
    manifest: str | None = Field(
        default=None, pattern=r"^sha256:[0-9a-f]{64}$", description="platform manifest, if an index"
    )


class LockedOverlay(_Locked):
    """An overlay by its input digest and its patch table (target file -> sha256 before, after)."""

    input_digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    base: LockedImage | None = None
    patches: dict[str, tuple[str, str]] = {}


class Lock(_Locked):
    """The whole lock of one recipe. `resolution` is kept per lane, so one lane can be locked alone."""

    schema_version: SchemaOne = Field(default=1, alias="schema")
    recipe: str
    resolution: dict[str, str]
    models: dict[str, LockedModel] = {}
    images: dict[str, LockedImage] = {}
    overlays: dict[str, LockedOverlay] = {}

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def tree_digest(files: Mapping[str, str]) -> str:
    """Digest of a model tree from its files (path -> sha256): sha256 over sorted `sha256  path` lines."""
    text = "".join(f"{sha}  {path}\n" for path, sha in sorted(files.items()))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def digest_of(value: object) -> str:
    """sha256 of a JSON value in canonical form (sorted keys, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _model_inputs(model: Model) -> dict[str, Any]:
    return {
        "repo": model.repo,
        "path": model.path,
        "revision": model.revision,
        "files": model.files.model_dump(mode="json"),
        "remote_code": model.remote_code.files if model.remote_code else {},
    }


def _with_variants(recipe: Recipe, lane_name: str) -> list[Lane]:
    return [recipe.lane(lane_name), *{str(k): v for k, v in recipe.variants.items()}.get(lane_name, {}).values()]


def _model_names(recipe: Recipe, lane_name: str) -> list[str]:
    return sorted({n for lane in _with_variants(recipe, lane_name) for n in (lane.target, lane.drafter) if n})


def resolution_digest(recipe: Recipe, lane_name: str) -> str:
    """Digest over what decides the resolution of one lane with all its variants."""
    lanes = _with_variants(recipe, lane_name)
    names = _model_names(recipe, lane_name)
    images = sorted({(i.ref, i.digest or "", i.platform or "") for lane in lanes if (i := lane.engine.image)})
    overlays = sorted({lane.engine.overlay for lane in lanes if lane.engine.overlay})
    return digest_of(
        {"models": {n: _model_inputs(recipe.models[n]) for n in names}, "images": images, "overlays": overlays}
    )


def dump(lock: Lock) -> str:
    """The lock as YAML text: sorted keys, one value a line, `null` and empty values left out."""
    data = lock.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=False)
    header = "# Written by `recipectl lock`. Do not edit: every verb checks it against the files.\n"
    return header + yaml.dump(data, Dumper=yaml.SafeDumper, sort_keys=True, allow_unicode=True, width=120)


def load(text: str, name: str) -> Lock:
    """Parse a lock. `name` is the path for messages.

    Raises PinError for text that is no lock, for a newer schema, and for an edited one (a tree digest that does not
    follow from its files).
    """
    remade = "make it anew with `recipectl lock`"
    try:
        data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError) as err:  # ValueError: a date with a 13th month
        raise PinError("the lock is not YAML", on=name, seen=str(err).replace("\n", " "), next_step=remade) from err
    if not isinstance(data, dict):
        seen = "an empty file" if data is None else f"a {type(data).__name__}"
        raise PinError("the lock does not have the form of a lock", on=name, seen=seen, expected="a mapping of keys",
                       next_step=remade)  # fmt: skip
    schema = data.get("schema")
    if isinstance(schema, int) and schema > LOCK_SCHEMA:
        raise NewerLock(
            "the lock was written by a newer recipectl",
            on=name,
            seen=f"schema {schema}",
            expected=f"schema {LOCK_SCHEMA}",
            next_step="upgrade recipectl",
        )
    try:
        lock = Lock.model_validate(data)
    except ValidationError as err:
        details = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in err.errors()[:8]]
        raise PinError("the lock does not have the form of a lock", on=name, details=details, next_step=remade) from err
    for model_name, model in lock.models.items():
        expected = tree_digest({f.path: f.sha256 for f in model.files})
        if model.tree != expected:
            raise PinError(
                f"the lock was edited: the files of {model_name} do not give its tree digest",
                on=name,
                seen=model.tree,
                expected=expected,
                next_step="restore it from git, or " + remade,
            )
    return lock


def drift(recipe: Recipe, lock: Lock, lane_name: str) -> list[str]:
    """Why the lock does not hold for this lane any more; empty if it does."""
    if lock.recipe != recipe.name:
        return [f"the lock is of recipe {lock.recipe}, this is {recipe.name}"]
    if lane_name not in lock.resolution:
        return [f"lane {lane_name} is not in the lock (it has {', '.join(sorted(lock.resolution)) or 'none'})"]
    same = lock.resolution[lane_name] == resolution_digest(recipe, lane_name)
    out: list[str] = []
    for name in _model_names(recipe, lane_name):
        wanted, got = recipe.models[name], lock.models.get(name)
        if got is None:
            out.append(f"model {name} is not in the lock")
        elif got.repo is None and got.license != (canonical(wanted.license) if wanted.license else None):
            # No card says it: what is locked is the recipe's word of then.
            out.append(f"model {name}: recipe says license {wanted.license or 'none'}, lock has {got.license}")
        elif not same and (wanted.repo, wanted.path, wanted.revision) != (got.repo, got.path, got.ref):
            out.append(
                f"model {name}: recipe says {wanted.repo or wanted.path}@{wanted.revision}, lock has "
                f"{got.repo or got.path}@{got.ref}"
            )
    return out or ([] if same else [f"what lane {lane_name} resolves from has changed (files, image or overlay)"])


def diff(old: Lock | None, new: Lock) -> list[str]:
    """The changes from one lock to the next, a line each: commits, files, licenses, images, overlays."""
    out: list[str] = []
    before = old.models if old else {}
    for name in sorted(set(before) | set(new.models)):
        a, b = before.get(name), new.models.get(name)
        if a == b:
            continue
        if b is None:
            out.append(f"- {name}: removed")
            continue
        if a is None:
            where = f"{b.repo}@{b.commit}" if b.repo else f"{b.path}/"
            out.append(f"+ {name}: {where}, {len(b.files)} files, {b.size} bytes, license {b.license or 'not stated'}")
            continue
        if a.commit != b.commit:
            out.append(f"~ {name}: commit {a.commit} -> {b.commit}")
        if a.license != b.license:
            out.append(f"~ {name}: LICENSE CHANGED {a.license} -> {b.license}")
        fa, fb = {f.path: f.sha256 for f in a.files}, {f.path: f.sha256 for f in b.files}
        for path in sorted(set(fa) | set(fb)):
            if fa.get(path) != fb.get(path):
                out.append(f"~ {name}/{path}: {fa.get(path, 'absent')[:12]} -> {fb.get(path, 'absent')[:12]}")
    for word, pins in (("image", "images"), ("overlay", "overlays")):
        xa, xb = (getattr(old, pins) if old else {}), getattr(new, pins)
        out += [line for k in sorted({*xa, *xb}) for line in _pin_diff(f"{word} {k}", xa.get(k), xb.get(k))]
    return out


def _pin_diff(what: str, a: LockedImage | LockedOverlay | None, b: LockedImage | LockedOverlay | None) -> list[str]:
    if a == b:
        return []
    if b is None:
        return [f"- {what}: removed"]
    if a is None:
        return [f"+ {what}: {b.digest}" if isinstance(b, LockedImage) else f"+ {what}: {b.input_digest}"]
    fields_a, fields_b = _flat(a.model_dump()), _flat(b.model_dump())
    keys = [k for k in {**fields_a, **fields_b} if fields_a.get(k) != fields_b.get(k)]
    return [f"~ {what}: {k} {_shown(fields_a.get(k))} -> {_shown(fields_b.get(k))}" for k in keys]


def _shown(value: object) -> str:
    return " to ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _flat(value: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    """Nested mappings as one, by dotted key."""
    out: dict[str, Any] = {}
    for key, inner in value.items():
        out |= _flat(inner, f"{at}{key}.") if isinstance(inner, Mapping) else {f"{at}{key}": inner}
    return out
