"""`pull --hosts`: what was downloaded once, on the other machines too."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from recipectl.commands.context import Chosen
from recipectl.commands.models import folder_of
from recipectl.console import Console
from recipectl.hub.hosts import Copied, Copier, Folders, Host
from recipectl.lockfile import LockedModel
from recipectl.settings import Settings
from recipectl.transfers import size_text, transfers
from recipectl.workers import run_all


def copy_to_hosts(
    settings: Settings, console: Console, chosen: Chosen, models: Mapping[str, LockedModel], targets: Sequence[Host]
) -> dict[str, list[dict[str, object]]]:
    """Copy every model to every host, all hosts at once, and verify it there. Returns what was done, by model.

    The folders have the same absolute paths there as here: a deployment over several hosts mounts one path.
    """
    done: dict[str, list[dict[str, object]]] = {}
    for name, locked in models.items():
        folders = Folders(folder_of(settings, chosen, name, locked), settings.cache_dir)
        stop = threading.Event()
        with transfers(console, f"copying {name}", locked.size * len(targets)) as display:

            def one(host: Host, locked: LockedModel = locked, folders: Folders = folders) -> Copied:
                return Copier(host, folders, locked, stop).copy(display)  # noqa: B023 - run before the loop goes on

            copied = run_all(targets, one, len(targets), stop)
        for c in copied:
            console.print(f"{name} on {c.host}: {c.files} files as locked ({size_text(c.sent)} sent)")
        done[name] = [{"host": c.host, "sent_bytes": c.sent, "files": c.files, "bytes": c.bytes} for c in copied]
    return done
