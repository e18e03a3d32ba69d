"""The models of a chosen lane: where they lie, whether they are what the lock names, whether they may be used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recipectl.commands.context import Chosen, require_lock
from recipectl.commands.licensing import gate
from recipectl.console import Console
from recipectl.errors import PinError
from recipectl.fsio import HashCache
from recipectl.hub.safety import check_folder
from recipectl.hub.store import model_dir
from recipectl.hub.verify import default_jobs, verify_model
from recipectl.licenses import canonical
from recipectl.lockfile import Lock, LockedModel
from recipectl.settings import Settings


def ensure_verified(
    settings: Settings, console: Console, chosen: Chosen, *, full: bool = False, accept: Sequence[str] = ()
) -> dict[str, Path]:
    """The lane's model folders by role, only once the lock holds, the licenses permit it and every file is as locked.

    What serve, gate, bench and demo call. PinError for a missing or stale lock and for files that differ, LicenseError
    for a license that forbids the use or is not accepted.
    """
    lock = require_lock(chosen.recipe, chosen.lane_name, chosen.lock, chosen.entry)
    models = lane_models(chosen, lock)
    gate(settings, chosen.recipe, license_subjects(chosen, models), accept)
    check_folders(settings, console, chosen, models, full=full)
    return {str(m.role): folder_of(settings, chosen, n, m) for n, m in models.items()}


def lane_models(chosen: Chosen, lock: Lock) -> dict[str, LockedModel]:
    """The locked models of the chosen lane by name, target first."""
    return {n: lock.models[n] for n in (chosen.lane.target, chosen.lane.drafter) if n is not None}


def folder_of(settings: Settings, chosen: Chosen, name: str, locked: LockedModel) -> Path:
    """Where the files of one of the lane's models lie."""
    return model_dir(settings, chosen.entry, chosen.recipe.models[name], locked)


def license_subjects(chosen: Chosen, models: dict[str, LockedModel]) -> list[tuple[str, str | None, str]]:
    """What the license gate judges: the card's license, or the recipe's where the card states none."""
    stated = {n: m.license or chosen.recipe.models[n].license for n, m in models.items()}
    return [
        (m.repo or n, canonical(text) if (text := stated[n]) else None, m.commit or m.tree) for n, m in models.items()
    ]


def check_folders(
    settings: Settings,
    console: Console,
    chosen: Chosen,
    models: dict[str, LockedModel],
    *,
    full: bool = False,
    jobs: int | None = None,
) -> None:
    """Verify model folders and remember their hashes; then what is in them may be loaded at all (formats, headers,
    code). PinError lists every file that differs, with its model."""
    cache = HashCache(settings.hashes)
    jobs = jobs or default_jobs(chosen.family.unified_memory)
    bad: list[str] = []
    try:
        for name, locked in models.items():
            folder = folder_of(settings, chosen, name, locked)
            with console.progress(f"verifying {name}", locked.size, unit="B") as bar:
                problems = verify_model(folder, locked, cache, full, jobs, bar.advance)
            bad += [f"{name}: {p.line()}" for p in problems]
    finally:
        cache.save()
    if bad:
        raise PinError(
            f"the models of {chosen.title} are not what the lock names", details=bad[:40],
            seen=f"{len(bad)} files differ", expected="every file as in the lock, and no other",
            next_step=_mend(chosen, [n for n in models if any(line.startswith(f"{n}: ") for line in bad)]),
        )  # fmt: skip
    for name, locked in models.items():
        check_folder(folder_of(settings, chosen, name, locked), chosen.recipe.models[name])


def _mend(chosen: Chosen, names: Sequence[str]) -> str:
    """Hub models are fetched again; what lies beside the recipe has no other source than its author's."""
    beside = [str(path) for n in names if (path := chosen.recipe.models[n].path) is not None]
    sm, steps = chosen.lane_name.removeprefix("sm"), list[str]()
    if len(beside) < len(names):
        variant = f" --variant {chosen.variant}" if chosen.variant else ""
        steps.append(
            f"`recipectl pull {chosen.recipe.name} --sm {sm}{variant}` fetches what is missing or wrong; "
            "remove what is extra"
        )
    if beside:
        steps.append(
            f"restore {', '.join(beside)} as locked, or pin the files that are there: "
            f"`recipectl lock {chosen.recipe.name} --sm {sm}`"
        )
    return "; ".join(steps)
