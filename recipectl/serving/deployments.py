"""The deployments of this machine, as folders under the state directory: plan, handles, log, last known state.

A folder is written before anything is started, so that a server is found also when the CLI dies in the next line.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from recipectl.fsio import write_json
from recipectl.serving.plan import Plan
from recipectl.serving.runtime import Handle
from recipectl.settings import Settings

State = Literal["starting", "ready", "failed", "stopped"]
KEPT = 8  # finished deployments kept per name, for their logs


@dataclass(frozen=True)
class Deployment:
    """One deployment. `state` is what was last written; whether it still runs is the runtime's to say."""

    folder: Path
    plan: Plan
    state: State
    started: str
    handles: tuple[Handle, ...] = ()
    reason: str | None = None
    phases: dict[str, float] | None = None

    @property
    def id(self) -> str:
        """Its unique id, which every process and container of it carries."""
        return self.plan.id

    @property
    def recipe(self) -> str:
        """The recipe's name."""
        return self.plan.recipe

    def means(self, name: str | None) -> bool:
        """Whether NAME (recipe, deployment name or id) means this one; no NAME means any."""
        return name is None or name in (self.recipe, self.plan.name, self.id)

    @property
    def url(self) -> str:
        """Where its API is."""
        return self.plan.url

    @property
    def model(self) -> str:
        """The served model name."""
        return self.plan.served_name

    @property
    def k(self) -> int | None:
        """Speculative tokens a step."""
        return self.plan.k

    @property
    def pid(self) -> int | None:
        """The head's process id, with the runtime `process`."""
        return self.handles[0].pid if self.handles else None

    @property
    def log(self) -> Path:
        """The head's log file."""
        return Path(self.handles[0].log) if self.handles and self.handles[0].log else self.folder / "engine.log"

    def having(self, **changes: Any) -> Deployment:
        """A changed copy, written to its folder."""
        changed = replace(self, **changes)
        save(changed)
        return changed


def root(settings: Settings) -> Path:
    """Where the folders are."""
    return settings.state_dir / "deployments"


def create(settings: Settings, plan: Plan, started: str) -> Deployment:
    """A new folder in state `starting`, and the oldest finished ones of that name removed."""
    deployment = Deployment(root(settings) / plan.id, plan, "starting", started)
    save(deployment)
    finished = [d for d in known(settings) if d.plan.name == plan.name and d.state in ("failed", "stopped")]
    for old in finished[: max(0, len(finished) - KEPT)]:
        shutil.rmtree(old.folder, ignore_errors=True)
    return deployment


def save(deployment: Deployment) -> None:
    """Write deployment.json, whole or not at all."""
    write_json(
        deployment.folder / "deployment.json",
        {
            "schema": 1, "plan": deployment.plan.to_json(), "state": deployment.state, "started": deployment.started,
            "handles": [asdict(h) for h in deployment.handles], "reason": deployment.reason,
            "phases": deployment.phases,
        },
        mode=0o600,
    )  # fmt: skip


def known(settings: Settings) -> list[Deployment]:
    """Every deployment on record, oldest first. A damaged record is passed over: it can be of an older recipectl."""
    found = []
    for file in sorted(root(settings).glob("*/deployment.json")):
        try:
            data = json.loads(file.read_text())
            found.append(
                Deployment(
                    file.parent, Plan.from_json(data["plan"]), data["state"], data["started"],
                    tuple(Handle(**h) for h in data["handles"]), data["reason"], data["phases"],
                )
            )  # fmt: skip
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
    return sorted(found, key=lambda d: d.started)
