"""An overlay applied: manifest and file contents -> patched files and input digest. PURE.

The identity of an overlay is its input digest, because image ids differ from build to build (creation times) and from
engine to engine. The digest covers what decides the result and what proves it, and nothing of the machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from recipectl.errors import PinError, RecipectlError, RecipeError
from recipectl.images import unidiff
from recipectl.images.manifest import AddedFile, Check, Manifest, Patch
from recipectl.lockfile import digest_of

Read = Callable[[str], bytes | None]
Status = Literal["patched", "replaced", "added", "already patched", "wrong version", "missing", "refused", "unresolved"]
CONTEXT_FORMAT = 1


@dataclass(frozen=True)
class Step:
    """One patch with its text; None for a foreign one that has not been fetched."""

    patch: Patch
    text: str | None
    overlay: str

    @property
    def name(self) -> str:
        """The diff's file, for messages."""
        source = self.patch.patch or (self.patch.foreign.path if self.patch.foreign else "?")
        return f"{self.overlay}/{source}"


@dataclass(frozen=True)
class Overlay:
    """A manifest with everything it includes, in order."""

    manifest: Manifest
    steps: tuple[Step, ...]
    added: tuple[tuple[AddedFile, bytes], ...]
    checks: tuple[tuple[Check, str | None], ...]
    env: Mapping[str, str]
    build_args: Mapping[str, str]

    @property
    def name(self) -> str:
        """The overlay's folder name."""
        return self.manifest.name

    def patch_table(self) -> dict[str, tuple[str, str]]:
        """Target file -> sha256 before the first and after the last patch; `?` where it is not resolved."""
        table: dict[str, tuple[str, str]] = {}
        for step in self.steps:
            first = table.get(step.patch.file, (step.patch.before or "?",))[0]
            table[step.patch.file] = (first, step.patch.after or "?")
        return table

    def outcome(self) -> dict[str, str]:
        """Every file that is changed or added -> the sha256 that it must have afterwards."""
        after = {file: pair[1] for file, pair in self.patch_table().items()}
        return after | {entry.file: entry.sha256 for entry, _ in self.added}


@dataclass(frozen=True)
class FileResult:
    """What became of one target file. `content` is set where it was changed; `error` where it was not."""

    file: str
    status: Status
    content: bytes | None = None
    error: RecipectlError | None = None
    hunks: int = 0


def sha256(data: bytes) -> str:
    """sha256 in hex."""
    return hashlib.sha256(data).hexdigest()


def unresolved(overlay: Overlay) -> list[str]:
    """What nobody has published and a build needs: a line each."""
    out = []
    for step in overlay.steps:
        p, f = step.patch, step.patch.foreign
        missing = [n for n, v in (("before", p.before), ("after", p.after)) if v is None]
        if f:
            missing += [n for n, v in (("foreign.commit", f.commit), ("foreign.sha256", f.sha256)) if v is None]
            if f.form == "script":
                missing.append("a diff (the publisher ships a script, which is never run)")
            if f.license is None:
                missing.append("a license (none is stated)")
        if missing:
            out.append(f"{p.file}: {', '.join(missing)}")
    return out


def require_resolved(overlay: Overlay) -> None:
    """RecipeError if a foreign patch lacks something that only its publisher or the base image can tell."""
    lines = unresolved(overlay)
    if lines:
        raise RecipeError(
            "foreign patches are not resolved, so nothing is built", on=f"overlay {overlay.name}", details=lines,
            next_step=f"overlays/{overlay.name}/README.md says how each value is found out",
        )  # fmt: skip
    missing = [s.name for s in overlay.steps if s.text is None]
    if missing:
        raise RecipeError(
            "foreign patches are named but not here", on=f"overlay {overlay.name}", details=missing,
            next_step="recipectl build --fetch-patches, or --patches DIR",
        )  # fmt: skip


def apply(overlay: Overlay, read: Read) -> list[FileResult]:
    """Apply every patch and file to a package tree that `read` opens (path below site-packages -> bytes, or None).

    Never raises for a file that does not fit: each file's result says what happened to it.
    """
    current: dict[str, FileResult] = {}
    for step in overlay.steps:
        before = current.get(step.patch.file)
        if before and before.error:
            continue
        content = before.content if before else read(step.patch.file)
        current[step.patch.file] = _one(overlay, step, content, before.hunks if before else 0)
    for entry, data in overlay.added:
        taken = read(entry.file)
        if taken == data:
            error: RecipectlError | None = _already(entry.file)
            current[entry.file] = FileResult(entry.file, "already patched", None, error)
        elif taken is not None:
            error = PinError("the package has a file of this name already", on=entry.file, seen=sha256(taken))
            current[entry.file] = FileResult(entry.file, "refused", None, error)
        else:
            current[entry.file] = FileResult(entry.file, "added", data)
    return list(current.values())


def _one(overlay: Overlay, step: Step, content: bytes | None, hunks: int) -> FileResult:
    patch, file = step.patch, step.patch.file
    if step.text is None or (patch.after is None):
        error: RecipectlError = RecipeError(
            "a foreign patch is not resolved", on=step.name, details=unresolved(overlay),
            next_step=f"recipectl build --fetch-patches, or --patches DIR; see overlays/{step.overlay}/README.md",
        )  # fmt: skip
        return FileResult(file, "unresolved", None, error)
    if content is not None and sha256(content) == patch.after:
        return FileResult(file, "already patched", None, _already(file))
    if wrong := _wrong_version(overlay, step, content):
        return FileResult(file, "missing" if content is None else "wrong version", None, wrong)
    try:
        new, count, status = _changed(step, content)
    except RecipeError as err:
        return FileResult(file, "refused", None, err)
    if sha256(new) != patch.after:
        error = PinError(
            "the patch applies but does not give the sha256 that the overlay names", on=f"{step.name}: {file}",
            seen=sha256(new), expected=patch.after, next_step="put the new value into overlay.yaml if it is right",
        )  # fmt: skip
        return FileResult(file, "refused", None, error)
    return FileResult(file, status, new, None, hunks + count)


def _already(file: str) -> PinError:
    return PinError(
        "this file is patched already", on=file, expected="the unpatched file",
        next_step="build on the unpatched base image, or use this tree without the overlay",
    )  # fmt: skip


def _wrong_version(overlay: Overlay, step: Step, content: bytes | None) -> PinError | None:
    before, file = step.patch.before, step.patch.file
    if content is None:
        if before is None and step.patch.foreign:
            return None
        return PinError(
            "the file that the overlay patches is not there", on=file, next_step=f"is it {_wanted(overlay)}?"
        )
    seen = sha256(content)
    if seen == before:
        return None
    known = overlay.manifest.known.get(seen)
    return PinError(
        "the file is not the one that the patch was made for", on=f"{step.overlay}: {file}",
        seen=f"{seen} ({'that of ' + known if known else 'no version that this overlay knows'})",
        expected=f"{before or 'a new file'} ({_wanted(overlay)})",
        next_step=f"use the overlay's own base, or recipectl check overlays/{step.overlay} --tree DIR --rebase",
    )  # fmt: skip


def _wanted(overlay: Overlay) -> str:
    base = overlay.manifest.base
    return f"{' or '.join(base.distribution)} {base.version}"


def _changed(step: Step, content: bytes | None) -> tuple[bytes, int, Status]:
    assert step.text is not None
    if step.patch.foreign and step.patch.foreign.form == "file":
        return step.text.encode("utf-8", "surrogateescape"), 1, "replaced"
    diffs = [d for d in unidiff.parse(step.text, step.name) if d.path == step.patch.file]
    if len(diffs) != 1:
        raise RecipeError(
            "the diff does not change this file exactly once", on=step.name, seen=f"{len(diffs)} parts",
            expected=step.patch.file,
        )  # fmt: skip
    text = (content or b"").decode("utf-8", "surrogateescape")
    new = unidiff.apply(text, diffs[0], step.name)
    return new.encode("utf-8", "surrogateescape"), len(diffs[0].hunks), "added" if diffs[0].creates else "patched"


def require(results: Iterable[FileResult]) -> dict[str, bytes]:
    """The changed files, or the first error with a line for every file that failed."""
    results = list(results)
    failed = [r for r in results if r.error]
    if failed:
        error = failed[0].error
        assert error is not None
        if len(failed) > 1:
            error.details = (*error.details, *(f"{r.file}: {r.status}" for r in failed))
        raise error
    return {r.file: r.content for r in results if r.content is not None}


def input_digest(overlay: Overlay, base_digest: str | None, platform: str | None) -> str:
    """The overlay's identity. Needs no Docker and no base files: patches are named by what they give."""
    m = overlay.manifest
    return digest_of(
        {
            "format": CONTEXT_FORMAT,
            "name": m.name,
            "base": base_digest,
            "platform": platform,
            "package": [m.base.distribution, m.base.version, m.base.site_packages, m.base.python],
            "families": sorted(m.families),
            "capabilities": sorted(m.capabilities),
            "patches": [[s.patch.file, s.patch.before, s.patch.after, _diff_sha(s)] for s in overlay.steps],
            "files": sorted([a.file, a.sha256] for a, _ in overlay.added),
            "env": dict(overlay.env),
            "build_args": dict(overlay.build_args),
            "labels": dict(m.labels),
            "checks": [[c.model_dump(mode="json"), _text_sha(text)] for c, text in overlay.checks],
            "license": m.license,
        }
    )


def _diff_sha(step: Step) -> str | None:
    """A foreign file counts by the sha256 that names it, so that fetching it changes nothing."""
    return step.patch.foreign.sha256 if step.patch.foreign else _text_sha(step.text)


def _text_sha(text: str | None) -> str | None:
    return None if text is None else sha256(text.encode("utf-8", "surrogateescape"))
