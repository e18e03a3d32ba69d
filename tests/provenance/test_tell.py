"""The forms of notes: nothing that matters is in one form and missing in another."""

from __future__ import annotations

import json

import pytest

from recipectl.images.overlay_files import load
from recipectl.lockfile import LockedImage
from recipectl.provenance import UNKNOWN, block, gather, labels, lines, markdown, notice, summary
from recipectl.recipe import catalog
from recipectl.recipe.schema import Recipe
from recipectl.settings import Settings
from tests.conftest import ROOT
from tests.provenance.conftest import only, recipe

SHIPPED = sorted(p.parent.name for p in (ROOT / "recipes").glob(f"*/{catalog.RECIPE_FILE}"))


@pytest.mark.parametrize("name", SHIPPED)
def test_every_form_names_every_part_license_and_credit(settings: Settings, name: str) -> None:
    notes = gather(recipe(settings, name))
    forms = {
        "text": "\n".join(lines(notes)), "markdown": markdown(notes), "notice": notice(notes),
        "block": json.dumps(block(notes), ensure_ascii=False),
    }  # fmt: skip
    for form, text in forms.items():
        assert [p.origin for p in notes.parts if p.origin not in text] == [], form
        assert [c.who for c in notes.credits if c.who not in text] == [], form
        stated = {p.license or ("null" if form == "block" else "not stated") for p in notes.parts}
        assert [x for x in stated if x.lower() not in text.lower()] == [], form
    told = json.loads(forms["block"])
    assert [p["license"] for p in told["parts"]] == [p.license for p in notes.parts]


def test_caveats_and_amendments_reach_receipts(settings: Settings) -> None:
    notes = gather(recipe(settings, "glm53-flash-dflash2e"))
    told = block(notes)
    assert [c["text"] for c in told["caveats"]] == [c.text for c in notes.caveats]
    assert [a["text"] for a in told["amendments"]] == [a.text for a in notes.amendments]


def test_the_summary_says_what_is_forbidden_and_whom_to_thank(flash: Recipe) -> None:
    told = summary(block(gather(flash, lanes=[only(flash, "eager")])))
    assert "drafter incoai/GLM-5.3-Flash-DFlash2: CC-BY-NC-ND-4.0" in told
    assert any(x.startswith("non-commercial use only") for x in told)
    assert any(x.startswith("no derivatives") for x in told)
    assert any(x.startswith("credits: ") and "incoai" in x and "sfxnz" in x for x in told)


def test_the_summary_of_a_bare_address_says_that_nothing_is_known() -> None:
    assert summary(UNKNOWN) == [UNKNOWN["unknown"]]
    assert "cannot know" in UNKNOWN["unknown"]


def test_labels_tell_what_is_inside_and_nothing_of_weights(settings: Settings) -> None:
    overlay = load(settings, "dflash-guard")
    told = labels(overlay, LockedImage(ref="vllm/vllm-openai:v0.32.0", digest="sha256:" + "6" * 64))
    assert told["io.recipectl.weights"] == "none"
    assert "overlay dflash-guard (Apache-2.0)" in told["io.recipectl.contents"]
    assert f"image vllm/vllm-openai:v0.32.0@sha256:{'6' * 64} (Apache-2.0)" in told["io.recipectl.contents"]
    assert told["io.recipectl.sources"] == "https://github.com/vllm-project/vllm"
    assert all("\n" not in v for v in told.values())
