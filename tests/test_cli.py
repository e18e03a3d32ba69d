"""The command line as a user meets it: help, exit codes, the documented table of codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from recipectl import errors

from .conftest import ROOT, Cli

VERBS = """
    list show check lock pull verify build serve gate status logs stop
    bench compare report experiment notes doctor use new demo
""".split()  # noqa: SIM905 - reads as the line in the design does


def test_help_lists_every_verb_in_full(cli: Cli) -> None:
    done = cli("--help")
    assert done.returncode == 0
    commands = done.stdout.split("Commands:")[1]
    assert re.findall(r"^  ([a-z]+)  +\S", commands, re.M) == VERBS
    assert "..." not in commands, "a summary is cut off in the list of commands"


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help(cli: Cli, verb: str) -> None:
    done = cli(verb, "-h")
    assert done.returncode == 0 and done.stdout.startswith(f"Usage: recipectl {verb}")


@pytest.mark.parametrize("argv", [["frob"], ["show", "--k", "seven"], ["--frob"], ["use"]])
def test_a_wrong_command_line_is_exit_code_2(cli: Cli, argv: list[str]) -> None:
    done = cli(*argv)
    assert done.returncode == 2 and done.stdout == "" and "Error" in done.stderr


def test_the_table_of_exit_codes_is_the_error_tree() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \|", (ROOT / "docs/exit-codes.md").read_text(), re.M)
    tree = {(str(c.exit_code), c.kind) for c in (errors.RecipectlError, *errors.RecipectlError.__subclasses__())}
    assert set(rows) == tree


def test_an_unknown_recipe_is_named_and_the_nearest_offered(cli: Cli) -> None:
    done = cli("show", "tiny-dflahs", "--sm", "cpu")
    assert done.returncode == 2
    assert "tiny-dflash" in done.stderr


def test_json_errors_are_one_document(cli: Cli) -> None:
    done = cli("show", "no-such-recipe", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["exit_code"] == 2


@pytest.mark.parametrize("argv", [["frob"], ["show", "--k", "seven"], ["list", "--frob"], ["compare"]])
def test_a_wrong_command_line_is_one_document_with_json(cli: Cli, argv: list[str]) -> None:
    done = cli(*argv, "--json")
    assert done.returncode == 2 and done.stderr == ""
    assert json.loads(done.stdout)["error"] == "usage"


def test_a_state_folder_that_is_a_file_is_a_wrong_setting(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = cli("use", "tiny-dflash", env={"RECIPECTL_STATE": str(tmp_path / "file")})
    assert done.returncode == 2 and "RECIPECTL_STATE" in done.stderr and str(tmp_path / "file") in done.stderr


def test_a_closed_stream_is_no_crash() -> None:
    line = f"exec {sys.executable} -m recipectl check --schema >&- 2>&-"
    assert subprocess.run(["sh", "-c", line], cwd=ROOT, check=False).returncode == 0


def test_a_broken_settings_file_is_exit_code_2(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("usee = 1\n")
    done = cli("list", env={"RECIPECTL_SETTINGS": str(tmp_path / "s.toml")})
    assert done.returncode == 2 and "usee" in done.stderr and str(tmp_path / "s.toml") in done.stderr
