"""Holds calibration results against the truth that the synthetic sampler was given. Usage: check_lab.py FOLDER..."""

from __future__ import annotations

import sys
from pathlib import Path

from recipectl.bench import resample
from recipectl.bench.acceptance import of_request
from recipectl.bench.files import read
from recipectl.bench.measure import pooled
from recipectl.bench.result import Block, Measured

RATES = (0.744, 0.545, 0.405, 0.306, 0.237, 0.185, 0.147)
TRUTH = 1 + sum(RATES)


def rows(block: Block) -> list[tuple[int, int]]:
    """Drafts and accepted tokens of each request, as the server itself counted them."""
    told = [of_request(r.spec) for r in block.requests if r.spec]
    return [(a.drafts, a.accepted) for a in told if a]


def check(measured: Measured) -> list[tuple[str, bool]]:
    """Every figure that must hold, as text and verdict."""
    blocks = [b for b in measured.blocks if b.valid]
    total = pooled(blocks)
    assert total is not None and total.length is not None
    covered = [i for b in blocks if (i := resample.pooled_length(rows(b))) and i.low <= TRUTH <= i.high]
    worst = max(abs(seen - true) for seen, true in zip(total.positions, RATES, strict=True))
    speeds = [
        (r.tok_s, 1e3 * (r.n - 1) / float(str(r.server["generation_time_ms"])))
        for b in blocks
        for r in b.requests
        if r.tok_s and r.n and "generation_time_ms" in r.server
    ]
    off = sorted(abs(ours / theirs - 1) for ours, theirs in speeds)
    out = [
        (f"{len(blocks)} of {len(measured.blocks)} blocks valid, {total.drafts} drafts", len(blocks) > 0),
        (f"pooled length {total.length:.4f}, true {TRUTH:.3f}: {100 * (total.length / TRUTH - 1):+.2f} %",
         abs(total.length / TRUTH - 1) < 0.02),
        (f"largest error of a position {100 * worst:.2f} points", worst < 0.03),
    ]  # fmt: skip
    if len(blocks) >= 10:
        least = min(b.acceptance.drafts for b in blocks if b.acceptance)
        out.append((f"95 % interval covers the truth in {len(covered)} of {len(blocks)} blocks of {least}+ drafts",
                    len(covered) >= 9 and least >= 7000))  # fmt: skip
    if off:
        out.append((f"tok/s against the server over {len(off)} streams: median error {100 * off[len(off) // 2]:.3f} %, "
                    f"worst {100 * off[-1]:.3f} %", off[len(off) // 2] < 0.01))  # fmt: skip
    return out


def main(folders: list[str]) -> int:
    """1 if a figure is not reached."""
    good = True
    for folder in folders:
        for measured in read(Path(folder)).measured:
            for text, holds in check(measured):
                print(f"{'PASS' if holds else 'FAIL'} {measured.protocol.name}: {text}")
                good = good and holds
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
