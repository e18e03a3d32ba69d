"""What a model card says at one commit: the license in its YAML front matter."""

from __future__ import annotations

from typing import Any

import yaml

from recipectl.errors import LicenseError
from recipectl.licenses import canonical


def card_license(card: str, on: str) -> str | None:
    """The SPDX expression of a card's `license` (with `license_name` where it says `other`); None if it states none.

    LicenseError if the front matter is no YAML mapping, or the license cannot be read.
    """
    data = _front_matter(card, on)
    license_ = data.get("license")
    if license_ is None:
        return None
    if isinstance(license_, list):
        license_ = " AND ".join(map(str, license_))
    try:
        name = data.get("license_name")
        return canonical(str(license_), None if name is None else str(name))
    except LicenseError as err:
        raise LicenseError(
            f"the card's license cannot be read: {err.what}", on=on, seen=err.seen, expected=err.expected,
            next_step="read the card, and tell its author",
        ) from err  # fmt: skip


def _front_matter(card: str, on: str) -> dict[str, Any]:
    lines = card.lstrip("\ufeff").splitlines()
    if not lines or lines[0].strip() != "---":
        return {}
    end = next((i for i, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    try:
        data = yaml.safe_load("\n".join(lines[1:end])) if end else None
    except (yaml.YAMLError, ValueError, RecursionError) as err:  # ValueError: a date with a 13th month
        raise LicenseError("the card's front matter is not YAML", on=on, seen=str(err).replace("\n", " ")) from err
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise LicenseError("the card's front matter is no mapping", on=on, seen=type(data).__name__)
    return data
