"""`lock`: what the recipe means becomes what it resolved to. The only writer of locks; `pull` calls it on first use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recipectl import lockfile
from recipectl.commands.context import Chosen, choose_family, choose_name, require_lock
from recipectl.commands.licensing import gate
from recipectl.console import Console
from recipectl.errors import PinError
from recipectl.fsio import HashCache, write_atomic
from recipectl.hub.resolve import Wanted, resolve
from recipectl.hub.store import model_dir
from recipectl.hub.verify import default_jobs, verify_model
from recipectl.lockfile import Lock, LockedModel
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
    write_lock(settings, console, entry, recipe, lanes, update, dry_run=dry_run, accept=accept_license)
    return 0


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
) -> Lock:
    """Resolve the lanes, show the difference to the lock that is there, and write it (unless `dry_run`)."""
    old = _old_lock(console, entry, recipe)
    cache = HashCache(settings.state_dir / "hashes.json")
    wanted = Wanted(settings, entry, recipe, tuple(lanes), update, tuple(accept))
    new, warnings = resolve(wanted, old, cache, console)
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
    console.document({"recipe": recipe.name, "lock": str(entry.lock_file), "changes": changes, "warnings": warnings,
                      "written": written})  # fmt: skip
    return new


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


def ensure_verified(
    settings: Settings, console: Console, chosen: Chosen, *, full: bool = False, accept: Sequence[str] = ()
) -> dict[str, Path]:
    """The lane's model folders by role, only once the lock holds, the licenses permit it and every file is as locked.

    What serve, gate, bench and demo call. PinError for a missing or stale lock and for files that differ, LicenseError
    for a license that forbids the use or is not accepted.
    """
    lock = require_lock(chosen.recipe, chosen.lane_name, chosen.lock, chosen.entry)
    models = lane_models(chosen, lock)
    gate(settings, chosen.recipe, license_subjects(models), accept)
    folders = {m.role: model_dir(settings, chosen.entry, chosen.recipe.models[n], m) for n, m in models.items()}
    check_folders(settings, console, chosen, {n: (folders[m.role], m) for n, m in models.items()}, full=full)
    return {str(role): folder for role, folder in folders.items()}


def lane_models(chosen: Chosen, lock: Lock) -> dict[str, LockedModel]:
    """The locked models of the chosen lane by name, target first."""
    return {n: lock.models[n] for n in (chosen.lane.target, chosen.lane.drafter) if n is not None}


def license_subjects(models: dict[str, LockedModel]) -> list[tuple[str, str | None, str]]:
    """What the license gate judges."""
    return [(m.repo or name, m.license, m.commit or m.tree) for name, m in models.items()]


def check_folders(
    settings: Settings,
    console: Console,
    chosen: Chosen,
    models: dict[str, tuple[Path, LockedModel]],
    *,
    full: bool = False,
    jobs: int | None = None,
) -> None:
    """Verify model folders and remember their hashes. PinError lists every file that differs, with its model."""
    cache = HashCache(settings.state_dir / "hashes.json")
    jobs = jobs or default_jobs(chosen.family.unified_memory)
    bad: list[str] = []
    try:
        for name, (folder, locked) in models.items():
            with console.progress(f"verifying {name}", locked.size, unit="B") as bar:
                problems = verify_model(folder, locked, cache, full, jobs, bar.advance)
            bad += [f"{name}: {p.line()}" for p in problems]
    finally:
        cache.save()
    if bad:
        raise PinError(
            f"the models of {chosen.title} are not what the lock names", details=bad[:40],
            seen=f"{len(bad)} files differ", expected="every file as in the lock, and no other",
            next_step=f"recipectl pull {chosen.recipe.name} --sm {chosen.lane_name.removeprefix('sm')} fetches what is "
            "missing or wrong; remove what is extra",
        )  # fmt: skip
