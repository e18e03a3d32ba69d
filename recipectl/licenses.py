"""Licenses as data. PURE: SPDX expressions, the hub's own ids, what each license demands, and who may use what.

Not legal advice: a table of what the license texts say in the points that decide whether recipectl goes on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from recipectl.errors import LicenseError

Permission = Literal["allowed", "forbidden", "unclear"]

# The hub's ids that are no SPDX ids (huggingface.co/docs/hub/repositories-licenses). Ids that differ only in case are
# handled by `packaging`; families such as `bsd` or `gpl` name no license and stay LicenseRef.
HUB_IDS: Mapping[str, str] = {
    "bsl-1.0": "BSL-1.0",
    "gfdl": "LicenseRef-gfdl",
    "apple-amlr": "LicenseRef-apple-amlr",
    "llama2": "LicenseRef-llama2",
    "llama3": "LicenseRef-llama3",
    "llama3.1": "LicenseRef-llama3.1",
    "llama3.2": "LicenseRef-llama3.2",
    "llama3.3": "LicenseRef-llama3.3",
    "llama4": "LicenseRef-llama4",
    "gemma": "LicenseRef-gemma",
    "deepfloyd-if-license": "LicenseRef-deepfloyd-if-license",
    "openrail": "LicenseRef-openrail",
    "openrail++": "LicenseRef-openrail-plus-plus",
    "bigscience-openrail-m": "LicenseRef-bigscience-openrail-m",
    "creativeml-openrail-m": "LicenseRef-creativeml-openrail-m",
    "bigcode-openrail-m": "LicenseRef-bigcode-openrail-m",
    "bigscience-bloom-rail-1.0": "LicenseRef-bigscience-bloom-rail-1.0",
    "cc": "LicenseRef-cc",
    "bsd": "LicenseRef-bsd",
    "gpl": "LicenseRef-gpl",
    "agpl": "LicenseRef-agpl",
    "lgpl": "LicenseRef-lgpl",
    "fair-noncommercial-research-license": "LicenseRef-fair-noncommercial-research-license",
}


@dataclass(frozen=True)
class Obligations:
    """What a license asks of whoever runs, changes or passes on the work.

    `unclear` means that this table does not know the text: a person has to read it.
    """

    commercial: Permission
    derivatives: Permission
    attribution: bool
    share_alike: bool = False

    def lines(self) -> list[str]:
        """In words, the restrictions first."""
        out = []
        if self.commercial == "forbidden":
            out.append("non-commercial use only: serving it for money needs a license of its own from the author")
        if self.derivatives == "forbidden":
            out.append("no derivatives: modified or quantized weights may not be passed on")
        if "unclear" in (self.commercial, self.derivatives):
            out.append("recipectl does not know these terms: read them before you accept")
        if self.share_alike:
            out.append("what is derived from it must be passed on under the same license")
        if self.attribution:
            out.append("keep the copyright notice and name the author")
        return out


_FREE = Obligations("allowed", "allowed", attribution=True)
_PUBLIC_DOMAIN = Obligations("allowed", "allowed", attribution=False)
_COPYLEFT = Obligations("allowed", "allowed", attribution=True, share_alike=True)
_UNKNOWN = Obligations("unclear", "unclear", attribution=True)

# Creative Commons ids are taken apart by rule: NC, ND and SA are words of the id.
_TABLE: Mapping[str, Obligations] = {
    **dict.fromkeys(
        (
            "Apache-2.0",
            "MIT",
            "BSD-2-Clause",
            "BSD-3-Clause",
            "BSD-3-Clause-Clear",
            "ISC",
            "Zlib",
            "BSL-1.0",
            "AFL-3.0",
            "ECL-2.0",
            "NCSA",
            "PostgreSQL",
            "CDLA-Permissive-1.0",
            "CDLA-Permissive-2.0",
            "ODC-By-1.0",
        ),
        _FREE,
    ),
    **dict.fromkeys(("CC0-1.0", "Unlicense", "PDDL-1.0", "WTFPL", "0BSD", "MIT-0"), _PUBLIC_DOMAIN),
    **dict.fromkeys(
        (
            "GPL-2.0-only",
            "GPL-2.0-or-later",
            "GPL-3.0-only",
            "GPL-3.0-or-later",
            "AGPL-3.0-only",
            "AGPL-3.0-or-later",
            "LGPL-2.1-only",
            "LGPL-2.1-or-later",
            "LGPL-3.0-only",
            "LGPL-3.0-or-later",
            "MPL-2.0",
            "EUPL-1.2",
            "EPL-2.0",
            "OSL-3.0",
            "CDLA-Sharing-1.0",
            "ODbL-1.0",
            "GPL-2.0",
            "GPL-3.0",
            "AGPL-3.0",
            "LGPL-2.1",
            "LGPL-3.0",
        ),
        _COPYLEFT,
    ),
}
_STRICT: Mapping[Permission, int] = {"allowed": 0, "unclear": 1, "forbidden": 2}


def canonical(text: str, name: str | None = None) -> str:
    """An SPDX expression in canonical form from a recipe's or a model card's license.

    `name` is the card's `license_name`, which stands in for `other`. What is no SPDX id becomes LicenseRef-<slug>.
    LicenseError for `other` without a name and for text that cannot be read as an expression.
    """
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    given = text.strip()
    if given.lower() in ("other", "unknown", ""):
        if not name:
            raise LicenseError(
                "a license of `other` needs a name", seen=repr(text), expected="license_name in the card"
            )
        given = name.strip()
    if known := HUB_IDS.get(given.lower()):
        return known
    try:
        return str(canonicalize_license_expression(given))
    except InvalidLicenseExpression as err:
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", given).strip("-")
        if not slug or re.search(r"\b(AND|OR|WITH)\b|[()]", given):
            raise LicenseError("this is no license expression", seen=repr(text), expected="an SPDX expression") from err
        return f"LicenseRef-{slug}"


def obligations(expression: str) -> Obligations:
    """What an SPDX expression demands: AND takes the stricter of both, OR leaves the choice of the freer one."""
    tokens = re.findall(r"[()]|[^\s()]+", expression)
    result, rest = _either(tokens)
    if rest:
        raise LicenseError("this is no license expression", seen=expression, expected="an SPDX expression")
    return result


def needs_acceptance(expression: str) -> bool:
    """Whether a person must have accepted it: use or change is restricted, or the terms are not known."""
    o = obligations(expression)
    return o.commercial != "allowed" or o.derivatives != "allowed"


def permits_commercial(expression: str | None) -> bool:
    """Whether commercial use is not ruled out. Where no license is stated, nothing permits any use but looking."""
    return expression is not None and obligations(expression).commercial != "forbidden"


def _either(tokens: list[str]) -> tuple[Obligations, list[str]]:
    left, rest = _both(tokens)
    while rest and rest[0].upper() == "OR":
        right, rest = _both(rest[1:])
        left = min(left, right, key=_strictness)
    return left, rest


def _both(tokens: list[str]) -> tuple[Obligations, list[str]]:
    left, rest = _one(tokens)
    while rest and rest[0].upper() == "AND":
        right, rest = _one(rest[1:])
        left = _stricter(left, right)
    return left, rest


def _one(tokens: list[str]) -> tuple[Obligations, list[str]]:
    if not tokens:
        raise LicenseError("a license expression ends too early", expected="a license id")
    if tokens[0] == "(":
        inner, rest = _either(tokens[1:])
        if rest[:1] != [")"]:
            raise LicenseError("a license expression has an open bracket", seen=" ".join(tokens))
        return inner, rest[1:]
    rest = tokens[1:]
    if rest[:1] and rest[0].upper() == "WITH":  # an exception only ever adds permission
        rest = rest[2:]
    return _of_id(tokens[0]), rest


def _of_id(license_id: str) -> Obligations:
    if re.match(r"CC-BY(-|$)", license_id):
        words = license_id.split("-")
        return Obligations(
            "forbidden" if "NC" in words else "allowed",
            "forbidden" if "ND" in words else "allowed",
            attribution=True,
            share_alike="SA" in words,
        )
    return _TABLE.get(license_id, _UNKNOWN)


def _strictness(o: Obligations) -> tuple[int, int, bool, bool]:
    return (_STRICT[o.commercial], _STRICT[o.derivatives], o.share_alike, o.attribution)


def _stricter(a: Obligations, b: Obligations) -> Obligations:
    return Obligations(
        max(a.commercial, b.commercial, key=_STRICT.__getitem__),
        max(a.derivatives, b.derivatives, key=_STRICT.__getitem__),
        a.attribution or b.attribution,
        a.share_alike or b.share_alike,
    )
