"""Build an overlay image and prove it. The engine is a port; nothing is tagged before everything is proven."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from recipectl import provenance
from recipectl.errors import PinError
from recipectl.images import context, overlay, proof
from recipectl.images.known import Known
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
    labels = {key: " ".join(text.split()) for key, text in labels.items()}  # a folded text of YAML ends with a newline
    text = context.dockerfile(what, base.ref, base.digest, labels)
    return BuildPlan(what, base, digest, context.tag(what, family, digest), labels, text)


def faults(engine: ImageStore, todo: BuildPlan, image: ImageInfo, known: Known | None = None) -> list[str]:
    """Why an image is not what this build makes, a line each; empty if it is. Labels alone prove nothing: they can be
    copied onto any image. So the layers count, where the base is here, and the bytes of every changed file, which are
    read unless `known` has them."""
    out = [f"{k}: {image.labels.get(k)!r}, not {v!r}" for k, v in todo.labels.items() if image.labels.get(k) != v]
    wanted = todo.overlay.outcome()
    if base := engine.image(todo.base_name):
        own, expected = len(image.layers) - len(base.layers), 1 if wanted else 0
        if image.layers[: len(base.layers)] != base.layers or own != expected:
            out.append(f"layers: {len(image.layers)}, not the base's {len(base.layers)} and {expected} more")
    if out or (known and known.holds(image.id, todo.digest)):
        return out
    inside = engine.read_files(image.id, [_inside(todo, path) for path in wanted]) if wanted else {}
    for path, after in sorted(wanted.items()):
        data = inside.get(_inside(todo, path))
        seen = "not there" if data is None else f"sha256 {overlay.sha256(data)}"
        if seen != f"sha256 {after}":
            out.append(f"{path}: {seen}, not {after}")
    if known and not out:
        known.add(image.id, todo.digest)
    return out


def build(
    engine: ImageStore, todo: BuildPlan, say: Say, progress: Progress | None = None, known: Known | None = None
) -> Built:
    """Reuse or build, then prove, then tag.

    Raises PinError, RecipeError or EngineError with nothing tagged: what bears the name and is not this overlay's image
    loses it before the build starts.
    """
    clock = _Clock()
    with clock("look"):
        found = engine.image(todo.tag)
        wrong = faults(engine, todo, found, known) if found else []
    if found and not wrong:
        return Built(found, reused=True, seconds=clock.seconds)
    if found:
        say(f"{todo.tag} is not what this overlay makes, and is built anew: {wrong[0]}")
        engine.untag(todo.tag)
    base = _base(engine, todo, clock, say, progress)
    with clock("read base"):
        targets = [_inside(todo, path) for path in sorted(todo.overlay.outcome())]
        inside = engine.read_files(base.id, targets) if targets else {}
    results = overlay.apply(todo.overlay, lambda path: inside.get(_inside(todo, path)))
    files = overlay.require(results)
    for result in results:
        say(f"{result.status} {result.file}" + (f" ({result.hunks} hunks)" if result.hunks else ""))
    tar = context.context(todo.overlay, files, todo.dockerfile)
    with clock("build"):
        image_id = engine.build(tar, todo.overlay.build_args, todo.base.platform, progress)
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
    except BaseException:
        engine.remove_image(image_id)
        raise
    image = engine.image(todo.tag)
    assert image is not None
    if known:
        known.add(image.id, todo.digest)
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
