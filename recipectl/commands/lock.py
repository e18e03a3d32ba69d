"""`lock`: what the recipe means becomes what it resolved to. The only writer of locks; `pull` calls it on first use."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from recipectl import lockfile
from recipectl.commands.context import choose_family, choose_name
from recipectl.commands.hub import connect
from recipectl.commands.images import with_images
from recipectl.console import Console
from recipectl.errors import PinError
from recipectl.fsio import HashCache, locked, write_atomic
from recipectl.hub.resolve import Wanted, resolve
from recipectl.lockfile import Lock
from recipectl.recipe import catalog
from recipectl.recipe.schema import Recipe
from recipectl.settings import Settings


def run(
    settings: Settings,
    console: Console,
    *,
    name: str | None,
    sm: str | None,
    update: str | None,
    dry_run: bool,
    accept_license: Sequence[str] = (),
) -> int:
    """Lock every lane of the recipe, or the one of --sm; print what changes."""
    name, reason = choose_name(settings, name)
    if reason:
        console.notice(f"recipe: {name} ({reason})")
    entry = catalog.find(settings, name)
    recipe = catalog.load(entry)
    lanes = [choose_family(recipe, sm).name] if sm else [str(lane) for lane in recipe.lanes]
    made = write_lock(settings, console, entry, recipe, lanes, update, dry_run=dry_run, accept=accept_license)
    console.document({"recipe": recipe.name, "lock": str(entry.lock_file), "changes": made.changes,
                      "warnings": made.warnings, "written": made.written})  # fmt: skip
    return 0


@dataclass(frozen=True)
class Made:
    """A lock as it was just made: what it changes, what to warn about, whether it was written."""

    lock: Lock
    changes: list[str]
    warnings: list[str]
    written: bool


def write_lock(
    settings: Settings,
    console: Console,
    entry: catalog.Entry,
    recipe: Recipe,
    lanes: Sequence[str],
    update: str | None = None,
    *,
    dry_run: bool = False,
    accept: Sequence[str] = (),
) -> Made:
    """Resolve the lanes, show the difference to the lock that is there, and write it (unless `dry_run`).

    One at a time: of two that lock different lanes, the last one would write what the other had not yet.
    """
    file = settings.state_dir / "locks" / f"{recipe.name}.recipe.lock"
    with locked(file, f"lock of {recipe.name}", notice=console.notice):
        return _write_lock(settings, console, entry, recipe, lanes, update, dry_run, accept)


def _write_lock(
    settings: Settings, console: Console, entry: catalog.Entry, recipe: Recipe, lanes: Sequence[str],
    update: str | None, dry_run: bool, accept: Sequence[str],
) -> Made:  # fmt: skip
    old = _old_lock(console, entry, recipe)
    cache = HashCache(settings.hashes)
    wanted = Wanted(settings, entry, recipe, tuple(lanes), update, tuple(accept))
    new, warnings = resolve(wanted, old, cache, console, functools.cache(lambda: connect(settings, console)))
    new, said = with_images(settings, recipe, lanes, old, new, update=update == "all")
    warnings += said
    cache.save()
    for warning in warnings:
        console.warn(warning)
    changes = lockfile.diff(old, new)
    for line in changes or ["nothing changes"]:
        console.print(line)
    written = not dry_run and lockfile.dump(new) != (lockfile.dump(old) if old else "")
    if written:
        write_atomic(entry.lock_file, lockfile.dump(new))
        console.print(f"wrote {entry.lock_file}")
    return Made(new, changes, warnings, written)


def _old_lock(console: Console, entry: catalog.Entry, recipe: Recipe) -> Lock | None:
    """The lock that is there. A damaged one is replaced, with a warning; one of another recipe or of a newer
    recipectl is left alone."""
    try:
        old = catalog.load_lock(entry)
    except lockfile.NewerLock:
        raise
    except PinError as err:
        console.warn(f"{err.what} ({entry.lock_file}): it is made anew")
        return None
    if old is not None and old.recipe != recipe.name:
        raise PinError(
            "the lock belongs to another recipe", on=str(entry.lock_file), seen=old.recipe, expected=recipe.name,
            next_step=f"if it is a leftover copy: rm {entry.lock_file}",
        )  # fmt: skip
    return old
