"""`--drafter`: another drafter of the recipe, or a folder that no recipe names, under the same rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from recipectl.commands.context import Chosen
from recipectl.console import Console
from recipectl.errors import PinError, UsageError
from recipectl.fsio import HashCache
from recipectl.hub.card import card_license
from recipectl.hub.inspect import facts_of
from recipectl.hub.locking import lock_folder
from recipectl.lockfile import Lock
from recipectl.recipe.lane import Lane
from recipectl.recipe.model import Given, ModelFiles
from recipectl.settings import Settings

CARD = "README.md"
NOT_COVERED = "named on the command line: the recipe's evidence does not cover it"


def with_drafter(settings: Settings, console: Console, chosen: Chosen, asked: str | None) -> Chosen:
    """The choice with another drafter. UsageError for what is neither a drafter of the recipe nor a folder; PinError
    for a folder that holds no model, or what must not be loaded."""
    if asked is None:
        return chosen
    if chosen.lane.drafter is None:
        method = chosen.lane.speculative.method
        raise UsageError(f"{chosen.title} takes no drafter", seen=f"--drafter {asked}",
                         expected=f"a lane with a draft model; this one has method {method}")  # fmt: skip
    model = chosen.recipe.models.get(asked)
    if model is None and ("/" in asked or Path(asked).is_dir()):
        return _from_folder(settings, console, chosen, Path(asked))
    if model is None or model.role != "drafter":
        drafters = ", ".join(n for n, m in chosen.recipe.models.items() if m.role == "drafter") or "none"
        raise UsageError(f"{chosen.recipe.name} has no drafter {asked!r}", expected=f"one of: {drafters}; or a folder",
                         next_step="name one of them, or the folder that holds the drafter's config.json")  # fmt: skip
    if chosen.lock is not None and asked not in chosen.lock.models:
        raise PinError(f"drafter {asked} is not in the lock", on=str(chosen.entry.lock_file),
                       next_step="name it in a variant of the lane, then `recipectl lock`")  # fmt: skip
    return replace(chosen, lane=_swapped(chosen.lane, asked))


def given_drafter(chosen: Chosen) -> Given | None:
    """The drafter that the command line named by its folder, if it did."""
    model = chosen.recipe.models.get(chosen.lane.drafter) if chosen.lane.drafter else None
    return model if isinstance(model, Given) else None


def _from_folder(settings: Settings, console: Console, chosen: Chosen, path: Path) -> Chosen:
    """The folder as a model of the recipe and pinned in its lock, both in memory only: what the verbs ask of a locked
    drafter they then ask of this one. Hashes are remembered by file identity, so only the first look reads it all."""
    folder = path.resolve()
    if not folder.is_dir():
        raise UsageError(
            "there is no folder of that drafter", on=str(path), next_step="give the folder of its config.json"
        )
    facts = facts_of(folder)
    own = chosen.recipe.models[chosen.lane.drafter or ""]
    given = Given(role="drafter", path=str(folder), license=_license(folder), quantization=facts.quantization,
                  kernels=["b12x"] if "MXFP8" in (facts.quantization or "").upper() else [],
                  notes=[NOT_COVERED])  # fmt: skip
    name = str(folder)
    cache = HashCache(settings.hashes)
    with console.progress(f"hashing {name}", unit="B") as bar:
        pinned = lock_folder(name, given, folder, cache, bar.advance, full=False)
    cache.save()
    # The lane's log lines ask for its own drafter's files (K009); what else the recipe expects is of that one alone.
    given = given.model_copy(update={"files": ModelFiles(required=own.files.required)})
    lock = chosen.lock or Lock(recipe=chosen.recipe.name, resolution={})
    return replace(
        chosen, recipe=chosen.recipe.model_copy(update={"models": {**chosen.recipe.models, name: given}}),
        lane=_swapped(chosen.lane, name, facts.block_size),
        lock=lock.model_copy(update={"models": {**lock.models, name: pinned}}),
    )  # fmt: skip


def _license(folder: Path) -> str | None:
    card = folder / CARD
    return card_license(card.read_text(errors="replace"), str(card)) if card.is_file() else None


def _swapped(lane: Lane, drafter: str, block: int | None = None) -> Lane:
    """The lane with another drafter. Its acceptance ranges were seen with the lane's own, and so was its block."""
    if drafter == lane.drafter:
        return lane
    spec = lane.speculative if block is None else lane.speculative.model_copy(update={"block_size": block})
    gates = lane.gates.model_copy(update={"acceptance": {}})
    return lane.model_copy(update={"drafter": drafter, "speculative": spec, "gates": gates})
