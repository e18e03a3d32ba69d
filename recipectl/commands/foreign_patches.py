"""Patches of other people's repositories, for a build: licenses first, then their text by sha256."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recipectl.commands.context import Chosen
from recipectl.commands.licensing import gate
from recipectl.console import Console
from recipectl.errors import LicenseError
from recipectl.images import foreign
from recipectl.images.overlay import Overlay
from recipectl.images.overlay_files import load
from recipectl.settings import Settings


def with_foreign(
    settings: Settings, console: Console, chosen: Chosen, overlay: Overlay, folder: Path | None, accept: Sequence[str]
) -> Overlay:
    """The overlay with its foreign patches, their licenses shown first and refused where none is stated."""
    named = [s.patch for s in overlay.steps if s.patch.foreign]
    for line in foreign.license_lines(named):
        console.notice(f"foreign patch: {line}")
    subjects = [(p.foreign.path, p.foreign.license, p.foreign.commit or "?") for p in named if p.foreign]
    if bare := [path for path, license_, _ in subjects if license_ is None]:
        raise LicenseError(
            "foreign patches without a stated license are not used", on=f"overlay {overlay.name}", details=bare,
            next_step="ask their author for a license",
        )  # fmt: skip
    gate(settings, chosen.recipe, subjects, accept)
    texts = foreign.from_folder(named, folder) if folder else foreign.download(named)
    return load(settings, overlay.name, texts)
