"""The stable codes of findings about a recipe file. docs/rules.md holds the same table; a test keeps them equal.

P: the file itself. R: parts that must agree with each other. L: the lock. K and G: `recipectl.speculative`.
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
    "R001": ("tensor x pipeline x data ranks fit the nodes", "error"),
    "R002": ("decode_context divides tensor", "error"),
    "R003": ("a hub model names the full commit", "warning"),
    "R004": ("a model without a license says who looked for one", "warning"),
    "R005": ("a license is an SPDX expression", "error"),
    "R006": ("no default rests on retracted evidence alone", "warning"),
    "R007": ("files and model folders that the recipe names lie beside it", "error"),
    "R008": ("published numbers agree with each other and with K", "warning"),
    "R009": ("engine, runtime, image and SM family fit together", "error"),
    "R010": ("log patterns are regular expressions that do not match every line", "error"),
    "R011": ("gates can pass: ranges within 1 to K + 1, streams within max_num_seqs, known names", "error"),
    "R012": ("structured arguments are mappings and lists, not JSON in text", "warning"),
    "R013": ("remote code is trusted only where it is listed by sha256", "warning"),
    "R014": ("the recipe has the name of its folder", "error"),
    "R015": ("the scope of a K rule or guard can match", "warning"),
    "R016": ("engine arguments that rules compute with have their type", "error"),
    "R017": ("capture sizes and their maximum agree", "error"),
    "L001": ("the lock can be read", "error"),
    "L002": ("the lock holds for the recipe as it stands", "warning"),
}


def level_of(code: str) -> Level:
    """The level of a code."""
    return CODES[code][1]
