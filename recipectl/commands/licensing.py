"""The license gate of every verb that touches weights: what was accepted is on record, nothing is asked twice, and
nothing is ever asked on a terminal (a prompt that nobody answers has hung many an unattended host)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from recipectl.errors import LicenseError
from recipectl.fsio import locked, write_json
from recipectl.licenses import canonical, needs_acceptance, obligations, permits_commercial
from recipectl.recipe.schema import Recipe
from recipectl.settings import Settings

# What the gate judges: (name for messages, license, commit or tree digest of what is used).
Subject = tuple[str, str | None, str]


def gate(settings: Settings, recipe: Recipe, subjects: Iterable[Subject], accept: Sequence[str] = ()) -> None:
    """Go on only if every model's license permits the use set in the settings and is accepted where it must be.

    `accept` are the values of --accept-license. LicenseError says which license, of what, what it demands, and how to
    accept it; with `use: commercial` a non-commercial license is refused whatever was accepted.
    """
    granted = {canonical(a): "flag" for a in accept} | {canonical(a): "setting" for a in settings.accept_licenses}
    record = accepted(settings)
    for name, license_, sha in subjects:
        if settings.use == "commercial" and not permits_commercial(license_):
            raise _not_for_commerce(recipe, name, license_, settings.file)
        if license_ is None or not needs_acceptance(license_):
            continue
        entries = record.setdefault(license_, [])
        if not entries and license_ not in granted:
            raise _not_accepted(recipe, name, license_, settings.file)
        if not any(e["model"] == name and e["sha"] == sha for e in entries):
            by = granted.get(license_, "accepted before for another revision or model")
            entry = {"model": name, "sha": sha, "accepted": time.strftime("%Y-%m-%d", time.gmtime()), "by": by}
            entries.append(entry)
            _record(settings, license_, entry)


def _record(settings: Settings, license_: str, entry: dict[str, Any]) -> None:
    """Add an acceptance to what is on record now: another run may have added its own meanwhile."""
    with locked(settings.state_dir / "locks" / "licenses.lock", "record of a license"):
        record = accepted(settings)
        record.setdefault(license_, []).append(entry)
        write_json(_file(settings), record)


def accepted(settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """What is on record: license -> [{model, sha, accepted (UTC date), by}]. A damaged record counts as none."""
    try:
        data = json.loads(_file(settings).read_text())
    except (OSError, ValueError):
        return {}
    entries = data.items() if isinstance(data, dict) else ()
    return {k: [e for e in v if isinstance(e, dict) and {"model", "sha"} <= e.keys()] for k, v in entries
            if isinstance(v, list)}  # fmt: skip


def _file(settings: Settings) -> Path:
    return settings.state_dir / "licenses.json"


def _not_for_commerce(recipe: Recipe, name: str, license_: str | None, file: Path) -> LicenseError:
    free = f"use the recipe {recipe.alternative}" if recipe.alternative else "use another drafter"
    return LicenseError(
        f"{name} may not be used commercially" if license_ else f"{name} states no license: nothing permits this use",
        on=recipe.name,
        seen=license_ or "no license stated",
        expected=f"a license that permits `use: commercial` ({file})",
        details=obligations(license_).lines() if license_ else (),
        next_step=f"{free}, or ask the author for a license of its own",
    )


def _not_accepted(recipe: Recipe, name: str, license_: str, file: Path) -> LicenseError:
    return LicenseError(
        f"{name} is under {license_}, and its acceptance is not on record",
        on=recipe.name,
        details=obligations(license_).lines(),
        next_step=f'add --accept-license {license_} once, or accept_licenses = ["{license_}"] in {file}',
    )
