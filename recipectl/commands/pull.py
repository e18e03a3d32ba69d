"""`pull`: exactly the files that the lock names, every byte verified. Locks on first use, afterwards it only obeys."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from recipectl.commands.context import Chosen, choose, remember, require_lock, write_receipt
from recipectl.commands.copying import copy_to_hosts
from recipectl.commands.images import plan_images, pull_images
from recipectl.commands.licensing import gate
from recipectl.commands.lock import connect, write_lock
from recipectl.commands.models import check_folders, folder_of, lane_models, license_subjects
from recipectl.console import Console
from recipectl.errors import Interrupted
from recipectl.fsio import HashCache
from recipectl.hub.pull import Pulled, Puller
from recipectl.hub.verify import default_jobs
from recipectl.lockfile import Lock, LockedModel
from recipectl.receipts import Receipt, Subject
from recipectl.settings import Settings
from recipectl.transfers import size_text, time_text

# Files at once, by default. More connections do not make one disk faster.
FILES_AT_ONCE = 4


def run(
    settings: Settings,
    console: Console,
    *,
    name: str | None,
    sm: str | None,
    only: str | None,
    hosts: str | None,
    jobs: int | None,
    dry_run: bool,
    accept_license: Sequence[str] = (),
) -> int:
    """Pull the models of the lane, verify them, and with `hosts` copy them there and verify them there too."""
    chosen = choose(settings, console, name, sm, need_lock=False)
    lock = _lock(settings, console, chosen, dry_run, accept_license)
    models = {n: m for n, m in lane_models(chosen, lock).items() if only in (None, m.role)}
    gate(settings, chosen.recipe, license_subjects(chosen, models), accept_license)
    cache = HashCache(settings.state_dir / "hashes.json")
    jobs = jobs or min(FILES_AT_ONCE, 2 * default_jobs(chosen.family.unified_memory))
    puller = Puller(settings, console, cache, lambda: connect(settings, console), jobs)
    if dry_run:
        plan_images(console, chosen, lock)
        _show_plan(console, puller, models)
        return 0
    started = _now()
    try:
        pulled = {n: puller.pull(n, m) for n, m in models.items() if m.repo is not None}
    except KeyboardInterrupt:
        raise Interrupted(
            "pull stopped: finished files stay, unfinished ones are gone on with", on=chosen.title,
            next_step=f"recipectl pull {chosen.recipe.name} goes on",
        ) from None  # fmt: skip
    check_folders(settings, console, chosen, models, jobs=jobs)
    images = pull_images(settings, console, chosen, lock) if only is None else {}
    copies = copy_to_hosts(settings, console, chosen, models, hosts.split(",")) if hosts else {}
    _report(settings, console, chosen, models, pulled, copies, images, started)
    remember(settings, "last-pulled", chosen.recipe.name)
    return 0


def _lock(settings: Settings, console: Console, chosen: Chosen, dry_run: bool, accept: Sequence[str]) -> Lock:
    """The lock that is there, if it holds. A lane that was never locked is locked here."""
    lock, recipe, lane = chosen.lock, chosen.recipe, chosen.lane_name
    if lock is not None and (lane in lock.resolution or lock.recipe != recipe.name):
        return require_lock(recipe, lane, lock, chosen.entry)
    console.notice(f"{chosen.title} is not locked yet: this pull pins it")
    return write_lock(settings, console, chosen.entry, recipe, [lane], dry_run=dry_run, accept=accept).lock


def _show_plan(console: Console, puller: Puller, models: dict[str, LockedModel]) -> None:
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


def _report(
    settings: Settings, console: Console, chosen: Chosen, models: dict[str, LockedModel], pulled: dict[str, Pulled],
    copies: Mapping[str, list[dict[str, object]]], images: Mapping[str, object], started: str,
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
    notes = {"licenses": {n: model.license for n, model in models.items()}}
    receipt = Receipt(
        "pull", chosen.recipe.name, chosen.lane_name, started, _now(), notes=notes,
        seen={"models": seen, "images": dict(images)},
        subjects=tuple(Subject(n, model.tree) for n, model in models.items()),
    )  # fmt: skip
    path = write_receipt(settings, receipt)
    console.document({"recipe": chosen.recipe.name, "lane": chosen.lane_name, "models": seen, "images": dict(images),
                      "receipt": str(path)})  # fmt: skip


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
