"""The image part of `lock`, `pull` and `verify`. A host without Docker still locks, pulls and verifies models."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from recipectl.commands.context import Chosen
from recipectl.console import Console
from recipectl.errors import EngineError, PinError
from recipectl.images import verify as images
from recipectl.images.build import plan
from recipectl.images.known import Known
from recipectl.images.locking import base_of, relock
from recipectl.images.overlay_files import load
from recipectl.images.port import ContainerEngine
from recipectl.lockfile import Lock
from recipectl.recipe.schema import Recipe
from recipectl.settings import Settings
from recipectl.transfers import size_text


def connect(settings: Settings) -> ContainerEngine:
    """The engine of the settings. EngineError says what is wrong with it."""
    from recipectl.images.docker import DockerEngine  # 0.2 s

    return DockerEngine(settings.docker_host)


def with_images(
    settings: Settings, recipe: Recipe, lanes: Sequence[str], old: Lock | None, new: Lock, *, update: bool
) -> tuple[Lock, list[str]]:
    """The new lock with the images and overlays of these lanes, and warnings. Nothing is pulled."""
    return relock(settings, recipe, lanes, old, new, functools.cache(lambda: connect(settings)), update=update)


def plan_images(console: Console, chosen: Chosen, lock: Lock) -> None:
    """Say which images a pull would ask for."""
    for need in _needs(console, chosen, lock):
        console.print(f"{need.role}: {need.name} ({need.locked.platform or 'any platform'})")


def pull_images(settings: Settings, console: Console, chosen: Chosen, lock: Lock) -> dict[str, object]:
    """Fetch the lane's images by digest. Without an engine this is a warning: weights can be pulled anywhere."""
    wanted = _needs(console, chosen, lock)
    engine = _engine(settings, console) if wanted else None
    out: dict[str, object] = {}
    for need in wanted if engine else ():
        assert engine is not None
        with console.progress(f"pulling {need.name}", unit="B") as bar:
            last = 0

            def moved(done: int, _total: int, line: str) -> None:
                nonlocal last
                bar.advance(max(0, done - last))
                last = max(last, done)
                bar.describe(line)

            image, fetched = images.pull(engine, need, moved)
        console.print(f"{need.role}: {need.name}, {size_text(image.size)}, {'fetched' if fetched else 'here already'}")
        out[need.name] = {"id": image.id, "bytes": image.size, "fetched": fetched, "platform": image.platform}
    return out


def verify_images(
    settings: Settings, console: Console, chosen: Chosen, lock: Lock, *, full: bool = False
) -> dict[str, object]:
    """Check the lane's images on this engine against the lock; `full` reads the files of a built one again. PinError
    names what is not as locked."""
    wanted = _needs(console, chosen, lock)
    engine = _engine(settings, console) if wanted else None
    if engine is None:
        return {}
    out: dict[str, object] = {}
    for need in wanted:
        out[need.name] = {"layers": images.check_pulled(engine, need).layers}
        console.print(f"{need.role}: {need.name}, as locked")
    if name := chosen.lane.engine.overlay:
        overlay = load(settings, name)
        todo = plan(overlay, base_of(overlay, lock), chosen.lane_name)
        known = None if full else Known(settings.state_dir)
        built = images.check_built(engine, todo, console.notice, known)
        console.print(f"overlay {name}: " + (f"{todo.tag}, as built" if built else "not built here: recipectl build"))
        out[todo.tag] = {"layers": built.layers if built else None}
    return out


def _needs(console: Console, chosen: Chosen, lock: Lock) -> list[images.Need]:
    try:
        return images.needs(chosen.lane, lock)
    except PinError as err:  # build and serve refuse; models can be had without it
        console.warn(f"{err.what}; {err.next_step}")
        return []


def _engine(settings: Settings, console: Console) -> ContainerEngine | None:
    try:
        return connect(settings)
    except EngineError as err:
        console.warn(f"images left out: {err.what} ({err.on}); {err.next_step}")
        return None
