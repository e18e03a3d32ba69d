"""`pull`: exactly the files that the lock names, every byte verified. Locks on first use, afterwards it only obeys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recipectl.commands.context import Chosen, choose, remember, require_lock, utc_now
from recipectl.commands.copying import copy_to_hosts
from recipectl.commands.hub import connect
from recipectl.commands.images import plan_images, pull_images
from recipectl.commands.licensing import gate
from recipectl.commands.lock import write_lock
from recipectl.commands.models import check_folders, lane_models, license_subjects
from recipectl.commands.pull_report import report, show_plan
from recipectl.console import Console
from recipectl.errors import Interrupted
from recipectl.fsio import HashCache
from recipectl.hub.hosts import parse_hosts
from recipectl.hub.pull import Puller
from recipectl.hub.verify import default_jobs
from recipectl.lockfile import Lock
from recipectl.settings import Settings

# Files at once, by default. More connections do not make one disk faster.
FILES_AT_ONCE = 4


def run(
    settings: Settings,
    console: Console,
    *,
    name: str | None,
    sm: str | None,
    variant: str | None = None,
    only: str | None,
    hosts: str | None,
    jobs: int | None,
    dry_run: bool,
    accept_license: Sequence[str] = (),
) -> int:
    """Pull the models of the lane, verify them, and with `hosts` copy them there and verify them there too."""
    targets = parse_hosts(hosts) if hosts else []  # a typing error is told before a long download, not after it
    chosen = choose(settings, console, name, sm, variant=variant, need_lock=False)
    lock = _lock(settings, console, chosen, dry_run, accept_license)
    chosen = replace(chosen, lock=lock)
    models = {n: m for n, m in lane_models(chosen, lock).items() if only in (None, m.role)}
    gate(settings, chosen.recipe, license_subjects(chosen, models), accept_license)
    cache = HashCache(settings.hashes)
    jobs = jobs or min(FILES_AT_ONCE, 2 * default_jobs(chosen.family.unified_memory))
    licenses = {m.repo: m.license for m in models.values() if m.repo}
    puller = Puller(settings, console, cache, lambda: connect(settings, console, licenses), jobs)
    if dry_run:
        plan_images(console, chosen, lock)
        show_plan(console, puller, models)
        return 0
    started = utc_now()
    try:
        pulled = {n: puller.pull(n, m) for n, m in models.items() if m.repo is not None}
    except KeyboardInterrupt:
        raise Interrupted(
            "pull stopped: finished files stay, unfinished ones are gone on with", on=chosen.title,
            next_step=f"recipectl pull {chosen.recipe.name} goes on",
        ) from None  # fmt: skip
    check_folders(settings, console, chosen, models, jobs=jobs)
    images = pull_images(settings, console, chosen, lock) if only is None else {}
    copies = copy_to_hosts(settings, console, chosen, models, targets) if targets else {}
    report(settings, console, chosen, models, pulled, copies, images, started, utc_now())
    remember(settings, "last-pulled", chosen.recipe.name)
    return 0


def _lock(settings: Settings, console: Console, chosen: Chosen, dry_run: bool, accept: Sequence[str]) -> Lock:
    """The lock that is there, if it holds. A lane that was never locked is locked here."""
    lock, recipe, lane = chosen.lock, chosen.recipe, chosen.lane_name
    if lock is not None and (lane in lock.resolution or lock.recipe != recipe.name):
        return require_lock(recipe, lane, lock, chosen.entry)
    console.notice(f"{chosen.title} is not locked yet: this pull pins it")
    return write_lock(settings, console, chosen.entry, recipe, [lane], dry_run=dry_run, accept=accept).lock
