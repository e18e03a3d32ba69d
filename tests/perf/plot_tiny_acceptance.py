"""Acceptance by position of tiny-dflash beside the published curve of drafter E, as an SVG.

python tests/perf/bench_speculation.py --keep DIR && python tests/perf/plot_tiny_acceptance.py DIR OUT.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "recipectl"
from bench_speculation import pooled  # noqa: E402
from matplotlib import pyplot as plt  # noqa: E402

# The card of canada-quant/GLM-5.3-Flash-DFlash2-E: 500 held-out prompts, K 7, c16, H200.
PUBLISHED_E = [0.744, 0.545, 0.405, 0.306, 0.237, 0.185, 0.147]


def positions(folder: Path, phase: str) -> tuple[float, list[float]]:
    """Pooled acceptance length and rates by position of the K 7 arm."""
    files = sorted(folder.glob(f"*-{phase}-K7/run.json"))
    found = pooled([json.loads(f.read_text())["measured"][0]["cells"][0] for f in files])
    assert found is not None
    return found


def main() -> None:
    """Draw the three curves."""
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    figure, axes = plt.subplots(figsize=(7, 4))
    for phase, color in (("counting", "#1b7837"), ("prose", "#2166ac")):
        length, rates = positions(folder, phase)
        axes.plot(range(1, 8), rates, "o-", color=color, label=f"tiny-dflash, {phase}: length {length:.2f} of 8")
    label = f"drafter E as published, 500 prompts: length {1 + sum(PUBLISHED_E):.2f}"
    axes.plot(range(1, 8), PUBLISHED_E, "s--", color="#888888", label=label)
    axes.set(xlabel="position in the block", ylabel="accepted, share of all drafts", ylim=(0, 1.05))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="center right", bbox_to_anchor=(1.0, 0.62))
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    main()
