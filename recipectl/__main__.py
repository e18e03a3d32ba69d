"""`recipectl` and `python -m recipectl`."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    # Building the recipe models allocates much that lives on; the default threshold collects it in vain, 25 ms of 300.
    gc.set_threshold(50_000)
    # Started with a stream closed (`>&-`, some daemons), Python has None there, and the first line would be a crash.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115 - open until the end
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    from recipectl.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
