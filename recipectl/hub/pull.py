"""A locked model onto this disk: what is there and right stays, the rest is fetched, everything else is put aside."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recipectl.console import Console
from recipectl.errors import HubError, PinError
from recipectl.fsio import HashCache, locked
from recipectl.hub.fetch import Fetcher, Source, Store, disk_error, two_disks
from recipectl.hub.port import Hub
from recipectl.hub.store import hub_dir, shown_name
from recipectl.hub.verify import verify_model
from recipectl.lockfile import LockedFile, LockedModel
from recipectl.settings import Settings
from recipectl.transfers import size_text, transfers
from recipectl.workers import run_all

# Parts that nobody asked for in this time are leftovers of another revision.
PART_LIFE_S = 7 * 86400


@dataclass(frozen=True)
class Plan:
    """What a pull has to do: files to bring, of which `resumed` bytes lie in parts, and files to put aside."""

    fetch: tuple[LockedFile, ...]
    aside: tuple[str, ...]
    resumed: int

    @property
    def size(self) -> int:
        """Bytes to bring, parts included."""
        return sum(f.size for f in self.fetch)


@dataclass(frozen=True)
class Pulled:
    """What a pull did. `fetched` counts bytes of the files that were brought."""

    folder: Path
    files: int
    fetched: int
    seconds: float


class Puller:
    """Pulls models of one cache. `connect` is called only if something has to be fetched."""

    def __init__(
        self, settings: Settings, console: Console, cache: HashCache, connect: Callable[[], Hub], jobs: int
    ) -> None:
        self._settings, self._console, self._cache, self._connect, self._jobs = settings, console, cache, connect, jobs

    def store(self, model: LockedModel) -> Store:
        """The folders of one locked hub model."""
        assert model.repo is not None and model.commit is not None
        folder = hub_dir(self._settings, model.repo, model.commit)
        aside = self._settings.cache_dir / "quarantine" / folder.parent.name / model.commit
        return Store(folder, self._settings.cache_dir / "partial", aside)

    def plan(self, name: str, model: LockedModel) -> Plan:
        """What has to be done, from the lock and the disk alone. Files that are there are verified."""
        store = self.store(model)
        with self._console.progress(f"checking what is here of {name}", model.size, unit="B") as bar:
            problems = verify_model(store.folder, model, self._cache, jobs=self._jobs, on_bytes=bar.advance)
        by_name = {f.path: f for f in model.files}
        fetch = tuple(by_name[p.path] for p in problems if p.path in by_name)
        aside = tuple(p.path for p in problems if p.kind != "missing")
        resumed = sum(min(_size(store.parts / f"{f.sha256}.part"), f.size) for f in fetch)
        return Plan(fetch, aside, resumed)

    def pull(self, name: str, model: LockedModel) -> Pulled:
        """Leave exactly the locked files in the model's folder.

        HubError, PinError (wrong bytes twice, or something still wrong at the end), UsageError (cache not writable).
        """
        start, store = time.monotonic(), self.store(model)
        lock = self._settings.cache_dir / "locks" / f"{store.folder.parent.name}--{model.commit}.lock"
        try:
            with locked(lock, f"pull of {model.repo}", notice=self._console.notice):
                plan = self.plan(name, model)
                for path in plan.aside:
                    if os.path.lexists(store.folder / path):  # not gone along with the folder that it lay in
                        moved = store.put_aside(store.folder / path, path)
                        self._console.notice(f"{shown_name(path)} is not as locked: moved to {shown_name(str(moved))}")
                if plan.fetch:
                    plan = self._reuse(store, plan)
                    self._fetch(name, model, store, plan)
                self._sweep(store, model)
                self._prove(name, store, model)
        except OSError as err:
            raise disk_error(err, str(store.folder)) from err
        finally:
            self._cache.save()
        return Pulled(store.folder, len(plan.fetch), plan.size, time.monotonic() - start)

    def _reuse(self, store: Store, plan: Plan) -> Plan:
        """Link files that another commit of the same repository already has: a new card must not cost 169 GB."""
        left = []
        for file in plan.fetch:
            target = store.folder / file.path
            for other in store.folder.parent.glob("*/"):
                twin = other / file.path
                if other != store.folder and twin.is_file() and _size(twin) == file.size:
                    if self._cache.sha256(twin) != file.sha256 or not _link(twin, target):
                        continue
                    self._cache.remember(target, file.sha256)
                    self._console.notice(f"{file.path}: the same as at {other.name[:12]}, linked")
                    break
            else:
                left.append(file)
        return Plan(tuple(left), plan.aside, plan.resumed)

    def _fetch(self, name: str, model: LockedModel, store: Store, plan: Plan) -> None:
        if not plan.fetch:
            return
        self.check_space(plan)
        for folder in (store.folder, store.parts):
            folder.mkdir(parents=True, exist_ok=True)
        if store.folder.stat().st_dev != store.parts.stat().st_dev:  # said before hours of download, not after
            raise two_disks(str(store.folder))
        assert model.repo is not None and model.commit is not None
        source = Source(self._connect(), model.repo, model.commit, self._settings.hub_retries)
        stop = threading.Event()
        fetcher = Fetcher(source, store, self._cache, stop, self._console.notice)
        with transfers(self._console, f"pulling {name}", plan.size) as display:

            def one(file: LockedFile) -> None:
                with display.file(file.path, file.size) as shown:
                    fetcher.fetch(file, shown)

            run_all(sorted(plan.fetch, key=lambda f: -f.size), one, self._jobs, stop)

    def check_space(self, plan: Plan) -> None:
        """HubError if the disk of the cache cannot take what is to come."""
        self._settings.cache_dir.mkdir(parents=True, exist_ok=True)
        needed, free = plan.size - plan.resumed, shutil.disk_usage(self._settings.cache_dir).free
        if needed > free:
            raise HubError(
                "the disk has not enough room for the models", on=str(self._settings.cache_dir),
                seen=f"{size_text(free)} free", expected=f"{size_text(needed)} to come",
                next_step="make room, or set RECIPECTL_CACHE to another disk",
            )  # fmt: skip

    def _sweep(self, store: Store, model: LockedModel) -> None:
        """Remove our own leftovers: parts of files that are in place, and old ones that nobody came back for."""
        ours = {f.sha256 for f in model.files}
        for part in store.parts.glob("*.part"):
            with contextlib.suppress(FileNotFoundError), part.open("rb") as handle:
                idle = time.time() - part.stat().st_mtime
                if (part.stem in ours or idle > PART_LIFE_S) and _free(handle.fileno()):
                    part.unlink()

    def _prove(self, name: str, store: Store, model: LockedModel) -> None:
        """The lock decides whether a pull is complete, not that nothing went wrong on the way."""
        problems = verify_model(store.folder, model, self._cache, jobs=self._jobs)
        if problems:
            raise PinError(
                f"{name} is not what the lock names after the pull", on=str(store.folder),
                details=[p.line() for p in problems[:20]], next_step="run it again; what is right is kept",
            )  # fmt: skip


def _link(twin: Path, target: Path) -> bool:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(twin, target)
    except OSError:  # no hard links on this file system: it is fetched
        return False
    return True


def _free(fd: int) -> bool:
    """Whether no other process is writing to this part: another model may hold the same file."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
