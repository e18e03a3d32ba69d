"""A recipe served by the mock engine, for whole command lines over bench, compare, report and experiment."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Cli
from tests.serving.conftest import random_pair, random_weights, recipe_folder  # noqa: F401 - fixtures

VARIANTS = """
    variants:
      slow:
        summary: The same with slower steps
        env: {MOCK_STEP_S: "0.06"}
      broken:
        summary: Does not boot until it is amended
        env: {MOCK_DIES: "1"}
      no-spec:
        summary: Without speculation
        drafter: null
        speculative: {method: none, k: null, block_size: null, rules: null}
        gates: {required_log: [], acceptance: null}
        bench: []
"""


class Shop:
    """Command lines on one locked recipe."""

    def __init__(self, cli: Cli, folder: Path) -> None:
        self._cli, self.folder = cli, folder

    def __call__(self, *argv: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return self._cli("--recipes", str(self.folder.parent), *argv, timeout=timeout)

    def document(self, *argv: str, code: int = 0) -> dict[str, Any]:
        """The answer of a command line that ends with `code`."""
        done = self(*argv, "--json")
        assert done.returncode == code, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture
def shop(cli: Cli, recipe_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def] # noqa: F811
    """tiny-dflash with the mock server as its engine; whatever a test leaves running is stopped."""
    engine = tmp_path / "engine"
    engine.write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
                      "from tests.engine.mock_engine import main\nmain()\n")  # fmt: skip
    engine.chmod(0o755)
    monkeypatch.setenv("RECIPECTL_ENGINE_PYTHON", str(engine))
    random_weights(recipe_folder)
    file = recipe_folder / "recipe.yaml"
    text = file.read_text().replace("    env:\n", '    env:\n      MOCK_STEP_S: "0.01"\n', 1)
    file.write_text(text.split("\n    experiment:")[0].rstrip() + "\n" + VARIANTS)
    made = Shop(cli, recipe_folder)
    assert made("lock", "tiny-dflash", "--sm", "cpu").returncode == 0
    yield made
    made("stop", "--all", "--force")
    shutil.rmtree(recipe_folder, ignore_errors=True)
