"""tiny-dflash with K 7, 5, 3 and without speculation, all served at once and benched in turns: prints figures.

    python tests/perf/bench_speculation.py [--rounds N] [--keep DIR]

Every arm is a real server of its own; each round benches every arm once, so that a drift of the machine hits all
alike. Acceptance is pooled over the rounds, tok/s is the median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ARMS = {"K 7": [], "K 5": ["--k", "5"], "K 3": ["--k", "3"], "none": ["--variant", "no-spec"]}
PHASES = ("counting", "prose")
PROMPTS = Path(__file__).resolve().parents[2] / "recipes" / "tiny-dflash" / "prompts-prose.txt"


def recipectl(state: Path, *argv: str) -> str:
    """One command with a state folder of its own, so that several servers of one recipe may live."""
    env = {**os.environ, "RECIPECTL_STATE": str(state)}
    done = subprocess.run(
        [sys.executable, "-m", "recipectl", "--quiet", *argv], env=env, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"recipectl {' '.join(argv)} ended with {done.returncode}: {done.stdout}")
    return done.stdout


def bench(state: Path, url: str, phase: str, out: Path) -> dict[str, Any]:
    """The one cell of one phase at c=1."""
    argv = ["bench", "--url", url, "--model", "tiny-dflash", "--phases", phase, "-c", "1", "--rounds", "1"]
    recipectl(state, *argv, *(["--prompts", str(PROMPTS)] if phase == "prose" else []), "--out", str(out))
    return dict(json.loads((out / "run.json").read_text())["measured"][0]["cells"][0])


def pooled(cells: list[dict[str, Any]]) -> tuple[float, list[float]] | None:
    """Acceptance length and per-position rates over all rounds; None without speculation."""
    if any(c["acceptance"] is None for c in cells):
        return None
    drafts = sum(c["acceptance"]["drafts"] for c in cells)
    columns = zip(*(c["acceptance"]["per_position"] for c in cells), strict=True)
    positions = [sum(column) / drafts for column in columns]
    return 1 + sum(positions), positions


def tok_s(cells: list[dict[str, Any]]) -> float | None:
    """Median tok/s of the rounds that have one: a stalled reader leaves none."""
    known = [c["rates"]["tok_s"] for c in cells if c["rates"]["tok_s"] is not None]
    return statistics.median(known) if known else None


def told(value: float | None, places: int) -> str:
    """A figure in seven columns, or a dash."""
    return f"{'-' if value is None else f'{value:.{places}f}':>7}"


def main() -> None:
    """Serve every arm, bench in turns, print one row a cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="keep the result files here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        out = options.keep or root / "out"
        urls: dict[str, str] = {}
        cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
        try:
            for arm, flags in ARMS.items():
                answer = recipectl(root / arm, "serve", "tiny-dflash", "--sm", "cpu", *flags, "--json")
                urls[arm] = json.loads(answer)["url"]
            for round_ in range(options.rounds):
                for phase in PHASES:
                    for arm, url in urls.items():
                        place = out / f"{round_}-{phase}-{arm.replace(' ', '')}"
                        cells.setdefault((phase, arm), []).append(bench(root / arm, url, phase, place))
        finally:
            for arm in urls:
                recipectl(root / arm, "stop", "--all")
    print(f"{'phase':<9} {'arm':<5} {'tok/s':>7} {'x none':>7} {'length':>7}  by position")
    for (phase, arm), rows in cells.items():
        speed, base = tok_s(rows), tok_s(cells[phase, "none"])
        ratio = speed / base if speed and base else None
        found = pooled(rows)
        length, positions = (f"{found[0]:.3f}", " ".join(f"{p:.3f}" for p in found[1])) if found else ("-", "")
        print(f"{phase:<9} {arm:<5} {told(speed, 1)} {told(ratio, 2)} {length:>7}  {positions}")


if __name__ == "__main__":
    main()
