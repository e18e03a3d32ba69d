"""Build an overlay image and prove it. The engine is a port; nothing is tagged before everything is proven."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from recipectl import provenance
from recipectl.errors import PinError
from recipectl.images import context, overlay, proof
from recipectl.images.overlay import Overlay
from recipectl.images.port import ImageInfo, ImageStore, Progress
from recipectl.lockfile import LockedImage

Say = Callable[[str], None]


@dataclass(frozen=True)
class BuildPlan:
    """Everything about a build that is known before it starts."""

    overlay: Overlay
    base: LockedImage
    digest: str
    tag: str
    labels: Mapping[str, str]
    dockerfile: str

    @property
    def base_name(self) -> str:
        """`repository@sha256:...`"""
        return f"{context.repository(self.base.ref)}@{self.base.digest}"


@dataclass(frozen=True)
class Built:
    """A proven image. `reused` means it was there already; `seconds` are by phase, `own` being recipectl's."""

    image: ImageInfo
    reused: bool
    proven: Sequence[proof.Proven] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


def plan(what: Overlay, base: LockedImage, family: str) -> BuildPlan:
    """PURE: names, labels and Dockerfile. RecipeError for weights, secrets and unresolved foreign patches."""
    for entry, data in what.added:
        context.refuse_content(entry.source, data)
    for step in what.steps:
        context.refuse_content(step.patch.file, (step.text or "").encode("utf-8", "surrogateescape"))
    overlay.require_resolved(what)
    digest = overlay.input_digest(what, base.digest, base.platform)
    labels = {**context.labels(what, base.ref, base.digest, digest), **provenance.labels(what, base)}
    text = context.dockerfile(what, base.ref, base.digest, labels)
    return BuildPlan(what, base, digest, context.tag(what, family, digest), labels, text)


def existing(engine: ImageStore, todo: BuildPlan) -> ImageInfo | None:
    """The image of an earlier build with the same inputs; None if its labels are not all as they were written."""
    found = engine.image(todo.tag)
    if found is None or any(found.labels.get(k) != v for k, v in todo.labels.items()):
        return None
    return found


def build(engine: ImageStore, todo: BuildPlan, say: Say, progress: Progress | None = None) -> Built:
    """Reuse or build, then prove, then tag.

    Raises PinError, RecipeError or EngineError with nothing tagged: an image whose proof fails loses its name, too.
    """
    clock = _Clock()
    with clock("look"):
        found = existing(engine, todo)
    if found:
        return Built(found, reused=True, seconds=clock.seconds)
    base = _base(engine, todo, clock, say, progress)
    with clock("read base"):
        targets = [_inside(todo, path) for path in _paths(todo.overlay)]
        inside = engine.read_files(base.id, targets) if targets else {}
    results = overlay.apply(todo.overlay, lambda path: inside.get(_inside(todo, path)))
    files = overlay.require(results)
    for result in results:
        say(f"{result.status} {result.file}" + (f" ({result.hunks} hunks)" if result.hunks else ""))
    tar = context.context(todo.overlay, files, todo.dockerfile)
    with clock("build"):
        image_id = engine.build(tar, todo.overlay.build_args, todo.base.platform, progress)
    proven = False
    try:
        say("proving: every file hashed and compiled, the overlay's checks run, without network")
        with clock("prove"):
            done = engine.run_check(
                image_id, proof.argv(todo.overlay, files), todo.overlay.manifest.check_timeout_s, todo.overlay.env
            )
        answers = proof.judge(todo.overlay, files, done)
        if error := proof.refuse(todo.overlay, answers):
            raise error
        with clock("tag"):
            engine.tag(image_id, todo.tag)
        proven = True
    finally:
        if not proven:
            engine.untag(todo.tag)
            engine.remove_image(image_id)
    image = engine.image(todo.tag)
    assert image is not None
    return Built(image, False, answers, clock.finish())


def _base(engine: ImageStore, todo: BuildPlan, clock: _Clock, say: Say, progress: Progress | None) -> ImageInfo:
    with clock("look"):
        base = engine.image(todo.base_name)
    if base is None:
        say(f"pulling the base {todo.base_name}")
        with clock("pull"):
            base = engine.pull(context.repository(todo.base.ref), todo.base.digest, todo.base.platform, progress)
    if todo.base.platform and base.platform != todo.base.platform:
        raise PinError(
            "the base image is for another platform", on=todo.base_name, seen=base.platform,
            expected=todo.base.platform, next_step="docker image rm it, then recipectl pull",
        )  # fmt: skip
    return base


def _paths(what: Overlay) -> list[str]:
    return sorted({s.patch.file for s in what.steps} | {entry.file for entry, _ in what.added})


def _inside(todo: BuildPlan, path: str) -> str:
    return f"{todo.overlay.manifest.base.site_packages}/{path}"


class _Clock:
    """Seconds by phase. What no phase claims is recipectl's own time."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.monotonic() - start

    def finish(self) -> dict[str, float]:
        """All phases, `own` and `total`."""
        total = time.monotonic() - self._start
        return {**self.seconds, "own": total - sum(self.seconds.values()), "total": total}
