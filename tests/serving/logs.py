"""The recorded logs of real vLLM servers, by name."""

from __future__ import annotations

import gzip
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "data" / "logs"


def read(name: str) -> list[str]:
    """The lines of tests/data/logs/NAME.log.gz."""
    return gzip.decompress((FOLDER / f"{name}.log.gz").read_bytes()).decode(errors="replace").splitlines()
