"""The training scripts are a folder of plain modules, run from where they lie: the tests import them the same way."""

from __future__ import annotations

import sys
from pathlib import Path

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "tiny-dflash"
sys.path.append(str(RECIPE / "training"))
