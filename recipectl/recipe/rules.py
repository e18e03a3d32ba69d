"""Cross-field rules that need no lock: what each model alone cannot see. PURE, apart from looking for asset files."""

from __future__ import annotations

from pathlib import Path

from recipectl.recipe.parse import Document


def check(document: Document, folder: Path | None = None) -> None:
    """Add the findings of all rules to the document. `folder` holds the recipe's own files; None: not on disk."""
