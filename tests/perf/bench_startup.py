"""Start-up time of the command line beside an empty Python: prints figures, asserts nothing.

Run with `make perf`. Each command is a whole process, run several times; minimum, median and maximum in seconds.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "recipectl --help": [sys.executable, "-m", "recipectl", "--help"],
    "recipectl check": [sys.executable, "-m", "recipectl", "check"],
    "recipectl list": [sys.executable, "-m", "recipectl", "list"],
    "recipectl show tiny-dflash": [sys.executable, "-m", "recipectl", "show", "tiny-dflash", "--sm", "cpu"],
}
RUNS = 9


def seconds(argv: list[str]) -> float:
    """Wall time of one run."""
    start = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main() -> None:
    """Print one row a command."""
    print(f"{'command':<28} {'min':>7} {'median':>7} {'max':>7}   (s, {RUNS} runs)")
    for name, argv in COMMANDS.items():
        seconds(argv)
        runs = [seconds(argv) for _ in range(RUNS)]
        print(f"{name:<28} {min(runs):7.3f} {statistics.median(runs):7.3f} {max(runs):7.3f}")


if __name__ == "__main__":
    main()
