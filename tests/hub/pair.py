"""A recipe of two small models on a test hub, with a command line that uses them as a user would."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.hub import models
from tests.hub.testhub import Repo, TestHub

NC_ND = "CC-BY-NC-ND-4.0"


@dataclass
class Pair:
    """A recipe of a target and a drafter on the hub, in a folder of its own, and a command line that uses them."""

    hub: TestHub
    folder: Path
    target: Repo
    drafter: Repo
    env: dict[str, str]

    @property
    def recipe(self) -> Path:
        return self.folder / "recipes" / "pair" / "recipe.yaml"

    @property
    def lock(self) -> Path:
        return self.recipe.with_name("recipe.lock.yaml")

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def model(self, repo: Repo, ref: str = "main") -> Path:
        return self.cache / "models" / repo.name.replace("/", "--") / repo.refs[ref]

    def write(self, *, target_ref: str | None = None, drafter_ref: str | None = None, **kwargs: str) -> None:
        """The recipe, at full commits where no ref is given."""
        at = (f"{self.target.name}@{target_ref or self.target.refs['main']}",
              f"{self.drafter.name}@{drafter_ref or self.drafter.refs['main']}")  # fmt: skip
        self.recipe.parent.mkdir(parents=True, exist_ok=True)
        self.recipe.write_text(models.recipe("pair", *at, **kwargs))

    def start(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "recipectl", *argv], cwd=self.folder, env={**self.env, **env}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        """As a user without a terminal runs it."""
        process = self.start(*argv, **env)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def pull(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        return self.run("pull", "pair", "--sm", "cpu", "--accept-license", NC_ND, *argv, **env)

    def files(self, repo: Repo) -> dict[str, bytes]:
        """What lies in the model's folder."""
        folder = self.model(repo)
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    def wanted(self, repo: Repo) -> dict[str, bytes]:
        """What the lock should have brought: all but what no pattern asks for."""
        return {n: b for n, b in repo.commits[repo.refs["main"]].items() if not n.endswith(".bin")}


def make_pair(hub: TestHub, folder: Path, environ: dict[str, str]) -> Pair:
    """Both repositories, and the recipe at their commits."""
    target, drafter = hub.repo("acme/Target", card={"license": "mit"}), hub.repo("acme/Drafter")
    drafter.card = {"license": NC_ND.lower()}
    target.commit(models.target())
    drafter.commit(models.drafter())
    env = {
        **environ, "HF_ENDPOINT": hub.endpoint, "PYTHONPATH": str(Path(__file__).parents[2]),
        "HOME": str(folder), "HF_HUB_DISABLE_XET": "1",
        "RECIPECTL_CACHE": str(folder / "cache"), "RECIPECTL_STATE": str(folder / "state"),
        "RECIPECTL_HUB_TIMEOUT_S": "2", "RECIPECTL_HUB_RETRIES": "2",
    }  # fmt: skip
    made = Pair(hub, folder, target, drafter, env)
    made.write()
    return made
