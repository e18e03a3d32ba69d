"""Which recipe, which lane: the choice that every verb makes the same way, and says aloud."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from recipectl.console import Console
from recipectl.errors import PinError, UsageError
from recipectl.fsio import write_atomic
from recipectl.lockfile import Lock, drift
from recipectl.receipts import Receipt
from recipectl.receipts import dump as dump_receipt
from recipectl.recipe import catalog
from recipectl.recipe.base import Json
from recipectl.recipe.families import FAMILIES, Family, family_of_flag
from recipectl.recipe.lane import Lane
from recipectl.recipe.schema import Recipe
from recipectl.settings import Settings

FALLBACK = "glm53-flash-dflash2"


@dataclass(frozen=True)
class Chosen:
    """A recipe and one complete lane of it, after variant, --k and --set."""

    entry: catalog.Entry
    recipe: Recipe
    lane_name: str
    lane: Lane
    family: Family
    variant: str | None
    lock: Lock | None
    sets: tuple[tuple[str, Json], ...] = ()

    @property
    def title(self) -> str:
        """`name lane[/variant]`, as messages show it."""
        return f"{self.recipe.name} {self.lane_name}" + (f"/{self.variant}" if self.variant else "")


def choose(
    settings: Settings,
    console: Console,
    name: str | None,
    sm: str | None,
    *,
    variant: str | None = None,
    k: int | None = None,
    sets: Sequence[tuple[str, Json]] = (),
    live: bool = False,
    need_lock: bool = True,
) -> Chosen:
    """The recipe and lane that a verb works on.

    `live` lets the one live deployment decide where NAME is left out (bench, gate, status, logs, stop). With
    `need_lock`, a missing or stale lock is a PinError that lists the drift.
    """
    from recipectl.recipe.rules import refuse_changed
    from recipectl.speculative import with_overrides

    name, reason = choose_name(settings, name, live=live)
    if reason:
        console.notice(f"recipe: {name} ({reason})")
    entry = catalog.find(settings, name)
    recipe = catalog.load(entry)
    family = choose_family(recipe, sm)
    lane = _lane(recipe, family.name, variant)
    if k is not None or sets:
        lane = with_overrides(lane, sets, k)
        refuse_changed(recipe, family.name, lane)
    lock = catalog.load_lock(entry)
    if need_lock:
        require_lock(recipe, family.name, lock, entry)
    return Chosen(entry, recipe, family.name, lane, family, variant, lock, tuple(sets))


def choose_name(settings: Settings, name: str | None, *, live: bool = False) -> tuple[str, str | None]:
    """The recipe's name, and why it was chosen when it was left out."""
    if name:
        return name, None
    if settings.default_recipe:
        return settings.default_recipe, "from the settings"
    if used := _remembered(settings, "default-recipe"):
        return used, "set by `recipectl use`"
    if live:
        from recipectl.serving.running import live as live_deployments

        running = sorted({d.recipe for d in live_deployments(settings)})
        if len(running) == 1:
            return running[0], "the one live deployment"
        if len(running) > 1:
            raise UsageError("several deployments are live", seen=", ".join(running), next_step="name one of them")
    if pulled := _remembered(settings, "last-pulled"):
        return pulled, "last pulled"
    return FALLBACK, "the default"


def remember(settings: Settings, what: str, name: str) -> None:
    """Keep a choice in the state directory (`default-recipe`, `last-pulled`)."""
    write_atomic(settings.state_dir / what, name + "\n")


def _remembered(settings: Settings, what: str) -> str | None:
    try:
        return (settings.state_dir / what).read_text().strip() or None
    except (OSError, ValueError):
        return None


def choose_family(recipe: Recipe, sm: str | None) -> Family:
    """The SM family: `--sm`, else this machine's GPU, else the CPU where the recipe has such a lane."""
    offered = ", ".join(recipe.lanes)
    if sm is not None:
        family = family_of_flag(sm)
        if family is None:
            raise UsageError("no such SM family", seen=f"--sm {sm}", expected="100, 103, 121, 90 or cpu")
        if family.name not in recipe.lanes:
            raise UsageError(
                f"{recipe.name} has no lane {family.name}",
                seen=f"--sm {sm}",
                expected=f"one of {offered}",
                next_step=f"recipectl show {recipe.name}",
            )
        return family
    from recipectl.gpu import gpus

    found = gpus()
    families = {g.family.name for g in found if g.family and g.family.name in recipe.lanes}
    if len(families) == 1:
        return FAMILIES[families.pop()]
    if not found and "cpu" in recipe.lanes:
        return FAMILIES["cpu"]
    seen = ", ".join(f"{g.name} ({g.capability[0]}.{g.capability[1]})" for g in found) or "no NVIDIA GPU"
    first = next(iter(recipe.lanes)).removeprefix("sm")
    raise UsageError(
        f"which lane of {recipe.name} is meant?",
        seen=seen,
        expected=f"--sm for one of {offered}",
        next_step=f"add --sm {first}",
    )


def _lane(recipe: Recipe, lane_name: str, variant: str | None) -> Lane:
    try:
        return recipe.lane(lane_name, variant)
    except KeyError:
        known = ", ".join({str(k): v for k, v in recipe.variants.items()}.get(lane_name, {})) or "none"
        raise UsageError(
            f"{recipe.name} {lane_name} has no variant {variant!r}",
            expected=f"one of: {known}",
            next_step=f"recipectl show {recipe.name} --sm {lane_name.removeprefix('sm')}",
        ) from None


def require_lock(recipe: Recipe, lane_name: str, lock: Lock | None, entry: catalog.Entry) -> Lock:
    """The lock if it holds for this lane, else a PinError with the drift and the command that mends it."""
    command = f"recipectl lock {recipe.name} --sm {lane_name.removeprefix('sm')}"
    if lock is None or not lock.resolution:
        raise PinError(f"{recipe.name} is not locked", on=str(entry.lock_file), next_step=command)
    reasons = drift(recipe, lock, lane_name)
    if reasons:
        raise PinError(
            f"the lock of {recipe.name} is stale for lane {lane_name}",
            on=str(entry.lock_file),
            details=reasons,
            next_step=command,
        )
    return lock


def utc_now() -> str:
    """Now, as receipts write it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def receipts_dir(settings: Settings) -> Path:
    """Where receipts are kept, oldest first by name."""
    return settings.state_dir / "receipts"


def newest(receipts: Iterable[Path]) -> Path | None:
    """The receipt that was written last: by the second in its name, and within one second by the file's own time."""
    return max(receipts, key=lambda p: (p.name.partition("-")[0], p.stat().st_mtime_ns), default=None)


def write_receipt(settings: Settings, receipt: Receipt) -> Path:
    """Keep a receipt under `<utc>-<kind>-<recipe>.json`. Receipts are never rewritten: a taken name gets a number."""
    stamp = receipt.ended.replace("-", "").replace(":", "")
    stem = "-".join(p for p in (stamp, receipt.kind, receipt.recipe) if p)
    path = receipts_dir(settings) / f"{stem}.json"
    number = 2
    while path.exists():
        path = receipts_dir(settings) / f"{stem}-{number}.json"
        number += 1
    write_atomic(path, dump_receipt(receipt), mode=0o600)
    return path
