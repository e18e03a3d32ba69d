"""`verify`: the files on this machine against the lock, offline."""

from __future__ import annotations

import time

from recipectl.commands.context import choose, require_lock
from recipectl.commands.images import verify_images
from recipectl.commands.models import check_folders, folder_of, lane_models
from recipectl.console import Console
from recipectl.settings import Settings


def run(
    settings: Settings,
    console: Console,
    *,
    name: str | None,
    sm: str | None,
    variant: str | None = None,
    full: bool,
    jobs: int | None,
) -> int:
    """Verify every model of the lane. PinError (exit 4) names each file that is not as locked."""
    chosen = choose(settings, console, name, sm, variant=variant)
    lock = require_lock(chosen.recipe, chosen.lane_name, chosen.lock, chosen.entry)
    models = lane_models(chosen, lock)
    start = time.monotonic()
    check_folders(settings, console, chosen, models, full=full, jobs=jobs)
    images = verify_images(settings, console, chosen, lock, full=full)
    took = time.monotonic() - start
    for model_name, locked in models.items():
        folder = folder_of(settings, chosen, model_name, locked)
        console.print(f"{model_name}: {len(locked.files)} files, {locked.size} bytes, as locked ({folder})")
    console.print(f"verified in {took:.1f} s" + ("" if full else "; unchanged files by their remembered hash"))
    console.document({
        "recipe": chosen.recipe.name, "lane": chosen.lane_name, "full": full,
        "seconds": round(took, 3), "images": images,
        "models": {n: {"folder": str(folder_of(settings, chosen, n, m)), "files": len(m.files), "bytes": m.size,
                       "tree": m.tree} for n, m in models.items()},
    })  # fmt: skip
    return 0
