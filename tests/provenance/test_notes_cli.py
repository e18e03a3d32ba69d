"""`notes` as a user runs it."""

from __future__ import annotations

import json

from tests.conftest import Cli


def test_text_of_one_lane_names_license_obligation_and_credit(cli: Cli) -> None:
    done = cli("notes", "glm53-flash-dflash2", "--sm", "121")
    assert done.returncode == 0, done.stderr
    assert "drafter incoai/GLM-5.3-Flash-DFlash2@7d74cdd881ed7e32c31175984a67823127b66cfe" in done.stdout
    assert "- non-commercial use only" in done.stdout
    assert "free of these restrictions: recipe glm53-flash-dflash2e" in done.stdout


def test_json_and_cyclonedx_are_one_document_on_stdout(cli: Cli) -> None:
    told = json.loads(cli("notes", "glm53-flash-dflash2e", "--format", "json").stdout)
    assert told["recipe"] == "glm53-flash-dflash2e"
    assert told["open"] and told["sources"] and told["credits"]
    bom = json.loads(cli("notes", "glm53-flash-dflash2e", "--format", "cyclonedx").stdout)
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")


def test_markdown_and_notice_are_only_the_document(cli: Cli) -> None:
    assert cli("notes", "tiny-dflash", "--format", "markdown").stdout.startswith("# Notes of tiny-dflash\n")
    assert cli("notes", "tiny-dflash", "--format", "notice").stdout.startswith("tiny-dflash\n===========\n")


def test_a_recipe_that_is_not_there_is_named_with_the_nearest(cli: Cli) -> None:
    done = cli("notes", "glm53-flash-dflash")
    assert done.returncode == 2
    assert "glm53-flash-dflash2" in done.stderr
    assert done.stdout == ""
