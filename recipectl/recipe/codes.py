"""The stable codes of findings about a recipe file. docs/rules.md holds the same table; a test keeps them equal.

P: the file itself. R: parts that must agree with each other. K and G rules live in `recipectl.speculative`.
"""

from __future__ import annotations

from recipectl.recipe.findings import Level

CODES: dict[str, tuple[str, Level]] = {
    "P001": ("the file is YAML", "error"),
    "P002": ("no key stands twice in one mapping", "error"),
    "P003": ("every key is known", "error"),
    "P004": ("every value has the right type; nothing is coerced", "error"),
    "P005": ("every required key is there", "error"),
    "P006": ("the parts of the file fit together", "error"),
    "P007": ("every value is within its range, pattern or list of choices", "error"),
    "P008": ("no plain value that YAML readers disagree about (yes, 0755, 1_000)", "error"),
    "P009": ("no anchors, aliases, merge keys, tags or second documents", "error"),
    "P010": ("the schema is one that this recipectl reads", "error"),
    "P011": ("no placeholders: a recipe is complete as it stands", "error"),
    "P012": ("no secrets", "error"),
    "P013": ("no shell: values are data, one flag or variable each", "error"),
    "P014": ("no engine flag that recipectl composes itself", "error"),
}


def level_of(code: str) -> Level:
    """The level of a code."""
    return CODES[code][1]
