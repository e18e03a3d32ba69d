"""Licenses as data: ids, obligations, and what an expression comes to."""

from __future__ import annotations

import pytest

from recipectl.errors import LicenseError
from recipectl.licenses import canonical, needs_acceptance, obligations, permits_commercial


@pytest.mark.parametrize(
    ("given", "spdx"),
    [
        ("mit", "MIT"),
        ("apache-2.0", "Apache-2.0"),
        ("cc-by-nc-nd-4.0", "CC-BY-NC-ND-4.0"),  # the hub's spelling of the drafter's license
        ("bsl-1.0", "BSL-1.0"),
        ("llama3.1", "LicenseRef-llama3.1"),
        ("gemma", "LicenseRef-gemma"),
        ("mit and cc-by-4.0", "MIT AND CC-BY-4.0"),
        ("Some House License v2", "LicenseRef-Some-House-License-v2"),
    ],
)
def test_canonical(given: str, spdx: str) -> None:
    assert canonical(given) == spdx


def test_other_needs_a_name() -> None:
    assert canonical("other", "GLM Community License") == "LicenseRef-GLM-Community-License"
    with pytest.raises(LicenseError, match="needs a name"):
        canonical("other")


@pytest.mark.parametrize("text", ["MIT AND", "(MIT", "MIT OR OR Apache-2.0", "!!"])
def test_no_expression(text: str) -> None:
    with pytest.raises(LicenseError):
        canonical(text)


# Columns: commercial use, derivatives, share-alike, attribution, as the license texts put them.
@pytest.mark.parametrize(
    ("expression", "commercial", "derivatives", "share", "attribution"),
    [
        ("MIT", "allowed", "allowed", False, True),
        ("CC0-1.0", "allowed", "allowed", False, False),
        ("CC-BY-4.0", "allowed", "allowed", False, True),
        ("CC-BY-SA-4.0", "allowed", "allowed", True, True),
        ("CC-BY-NC-4.0", "forbidden", "allowed", False, True),
        ("CC-BY-ND-4.0", "allowed", "forbidden", False, True),
        ("CC-BY-NC-ND-4.0", "forbidden", "forbidden", False, True),
        ("AGPL-3.0-only", "allowed", "allowed", True, True),
        ("LicenseRef-x", "unclear", "unclear", False, True),
        ("MIT AND CC-BY-NC-4.0", "forbidden", "allowed", False, True),
        ("MIT OR CC-BY-NC-4.0", "allowed", "allowed", False, True),
        ("(MIT OR GPL-3.0-only) AND CC-BY-ND-4.0", "allowed", "forbidden", False, True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", "allowed", "allowed", True, True),
    ],
)
def test_obligations(expression: str, commercial: str, derivatives: str, share: bool, attribution: bool) -> None:
    o = obligations(expression)
    assert (o.commercial, o.derivatives, o.share_alike, o.attribution) == (commercial, derivatives, share, attribution)


def test_who_must_accept_what() -> None:
    assert not needs_acceptance("MIT") and not needs_acceptance("AGPL-3.0-only")
    assert needs_acceptance("CC-BY-NC-ND-4.0") and needs_acceptance("CC-BY-ND-4.0") and needs_acceptance("LicenseRef-x")


def test_commerce() -> None:
    assert permits_commercial("MIT") and permits_commercial("LicenseRef-x")
    assert not permits_commercial("CC-BY-NC-ND-4.0") and not permits_commercial(None)


def test_obligations_in_words_name_the_restrictions_first() -> None:
    lines = obligations("CC-BY-NC-ND-4.0").lines()
    assert lines[0].startswith("non-commercial") and lines[1].startswith("no derivatives")
