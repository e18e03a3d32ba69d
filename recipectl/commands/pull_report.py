"""What a pull will do and what it did: for people, as JSON, and as a receipt."""

from __future__ import annotations

from collections.abc import Mapping

from recipectl.commands import notes as about
from recipectl.commands.context import Chosen, write_receipt
from recipectl.commands.models import folder_of
from recipectl.console import Console
from recipectl.hub.pull import Pulled, Puller
from recipectl.lockfile import LockedModel
from recipectl.receipts import Receipt, Subject
from recipectl.settings import Settings
from recipectl.transfers import size_text, time_text


def show_plan(console: Console, puller: Puller, models: dict[str, LockedModel]) -> None:
    """What a pull would do, from the lock and the disk alone."""
    shown = {}
    for name, model in models.items():
        if model.repo is None:
            console.print(f"{name}: in {model.path}/ beside the recipe, nothing to fetch")
            continue
        plan, folder = puller.plan(name, model), puller.store(model).folder
        console.print(f"{name}: {model.repo}@{model.commit}, {size_text(model.size)} -> {folder}")
        for file in plan.fetch:
            console.print(f"  fetch {file.path}  {size_text(file.size)}")
        for path in plan.aside:
            console.print(f"  put aside {path}")
        console.print(f"  {len(plan.fetch)} of {len(model.files)} files, {size_text(plan.size - plan.resumed)} to come")
        puller.check_space(plan)
        shown[name] = {"repo": model.repo, "commit": model.commit, "folder": str(folder), "aside": plan.aside,
                       "fetch": [f.path for f in plan.fetch], "bytes": plan.size - plan.resumed}  # fmt: skip
    console.document({"dry_run": True, "models": shown})


def report(
    settings: Settings, console: Console, chosen: Chosen, models: dict[str, LockedModel], pulled: dict[str, Pulled],
    copies: Mapping[str, list[dict[str, object]]], images: Mapping[str, object], started: str, ended: str,
) -> None:  # fmt: skip
    """Print, answer and keep what was pulled."""
    seen: dict[str, dict[str, object]] = {}
    for name, model in models.items():
        folder, done = folder_of(settings, chosen, name, model), pulled.get(name)
        fetched, seconds = (done.fetched, done.seconds) if done else (0, 0.0)
        how = f"fetched {size_text(fetched)} in {time_text(seconds)}" if fetched else "nothing to fetch"
        console.print(f"{name}: {len(model.files)} files, {size_text(model.size)}, as locked ({how}) in {folder}")
        seen[name] = {"folder": str(folder), "repo": model.repo, "commit": model.commit, "tree": model.tree,
                      "bytes": model.size, "fetched_bytes": fetched, "seconds": round(seconds, 3),
                      "hosts": copies.get(name, [])}  # fmt: skip
    notes = {"licenses": {n: m.license for n, m in models.items()}, **about.told(settings, chosen)}
    receipt = Receipt(
        "pull", chosen.recipe.name, chosen.lane_name, started, ended, notes=notes,
        seen={"models": seen, "images": dict(images)},
        subjects=tuple(Subject(n, model.tree) for n, model in models.items()),
    )  # fmt: skip
    path = write_receipt(settings, receipt)
    console.document({"recipe": chosen.recipe.name, "lane": chosen.lane_name, "models": seen, "images": dict(images),
                      "receipt": str(path)})  # fmt: skip
