"""The command line as a user meets it: help, exit codes, the documented table of codes."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from recipectl import errors
from recipectl.cli import app

from .conftest import ROOT, Cli

GOOD = (ROOT / "tests/data/good/minimal.yaml").read_text()
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


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_answers_programs(cli: Cli, verb: str) -> None:
    assert re.search(r"^  --json +Answer with one JSON document", cli(verb, "-h").stdout, re.M)


def test_what_a_verb_offers_is_what_its_command_takes() -> None:
    """They meet by name alone: `cli` imports no command."""
    for verb in app.registered_commands:
        assert verb.name is not None and verb.callback is not None
        offered = {*inspect.signature(verb.callback).parameters} - {"json"}
        run = importlib.import_module(f"recipectl.commands.{verb.name}").run
        assert offered == {*inspect.signature(run).parameters} - {"settings", "console"}, verb.name


def test_use_new_notes_and_check_answer_with_one_document(cli: Cli, tmp_path: Path) -> None:
    used = json.loads(cli("use", "tiny-dflash", "--json").stdout)
    assert used["default_recipe"] == "tiny-dflash" and used["file"].endswith("tiny-dflash/recipe.yaml")
    made = json.loads(cli("new", "mine", "--from", "tiny-dflash", "--json", cwd=tmp_path).stdout)
    assert (made["name"], made["not_copied"]) == ("mine", ["drafter", "target"])
    assert (tmp_path / made["file"]).is_file()
    assert json.loads(cli("notes", "tiny-dflash", "--json").stdout)["recipe"] == "tiny-dflash"
    assert json.loads(cli("check", "--schema", "--json").stdout) == json.loads(cli("check", "--schema").stdout)


@pytest.mark.parametrize("argv", ["logs nobody", "logs -f", "use nobody", "new Bad --from tiny-dflash", "notes nobody"])
def test_what_fails_answers_with_one_document_too(cli: Cli, argv: str) -> None:
    done = cli(*argv.split(), "--json")
    assert done.returncode == 2 and json.loads(done.stdout)["error"] == "usage" and done.stderr == ""


@pytest.mark.parametrize("argv", [["frob"], ["show", "--k", "seven"], ["--frob"], ["use"]])
def test_a_wrong_command_line_is_exit_code_2(cli: Cli, argv: list[str]) -> None:
    done = cli(*argv)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.startswith("error[usage]: ")
    assert done.stderr.splitlines()[-1].endswith(" -h")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["serv"], "no such command 'serv'. Did you mean 'serve'?"),
        (["show", "--evidnce"], "--evidence"),
        (["lock", "--update", "x"], "'x' is not one of 'target', 'drafter', 'all'"),
        (["list", "--recipes", "."], "put it before the verb: recipectl --recipes ..."),
    ],
)
def test_a_wrong_command_line_names_the_right_one(cli: Cli, argv: list[str], told: str) -> None:
    assert told in cli(*argv).stderr


def test_no_command_line_at_all_is_answered_with_the_help(cli: Cli) -> None:
    done = cli()
    assert (done.returncode, done.stderr.strip()) == (2, cli("--help").stdout.strip())


def test_the_table_of_exit_codes_is_the_error_tree() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \|", (ROOT / "docs/exit-codes.md").read_text(), re.M)
    tree = {(str(c.exit_code), c.kind) for c in (errors.RecipectlError, *errors.RecipectlError.__subclasses__())}
    assert set(rows) == tree


def test_an_unknown_recipe_is_named_and_the_nearest_offered(cli: Cli) -> None:
    done = cli("show", "tiny-dflahs", "--sm", "cpu")
    assert done.returncode == 2
    assert "tiny-dflash" in done.stderr


def test_the_list_outlives_what_is_broken(cli: Cli, tmp_path: Path) -> None:
    for name, recipe, lock in (("bad", "schema: 1", ""), ("unlocked", GOOD.replace("minimal", "unlocked"), "{")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.yaml").write_text(recipe)
        (tmp_path / name / "recipe.lock.yaml").write_text(lock)
    done = cli("--recipes", str(tmp_path), "list", "--json")
    found = {r["name"]: r for r in json.loads(done.stdout)["recipes"]}
    assert done.returncode == 0 and found["bad"]["broken"]["exit_code"] == 3
    assert found["unlocked"]["lanes"][0]["lock"] == "the lock is not YAML"


def test_a_value_that_cannot_be_is_refused_on_the_command_line_too(cli: Cli) -> None:
    done = cli("show", "tiny-dflash", "--sm", "cpu", "--set", "gates.acceptance.counting.min=99")
    assert done.returncode == 3 and "R011 gates.acceptance.counting: 99 to 8 is no range" in done.stderr


@pytest.mark.parametrize("argv", [["pull", ""], ["stop", ""], ["show", "tiny-dflash", "--variant", ""], ["check", ""]])
def test_an_unset_variable_of_a_script_means_no_default(cli: Cli, argv: list[str]) -> None:
    done = cli(*argv)
    assert done.returncode == 2 and "is empty" in done.stderr and done.stdout == ""


def test_check_tells_about_a_file_that_is_no_text_and_goes_on(cli: Cli, tmp_path: Path) -> None:
    for name, text in (("bad", b"schema: 1\nname: \xff\n"), ("good", GOOD.replace("minimal", "good").encode())):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.yaml").write_bytes(text)
    (tmp_path / "plain").write_text(GOOD)
    done = cli("check", "bad/recipe.yaml", "good/recipe.yaml", "plain", cwd=tmp_path)
    assert done.stdout.startswith("bad/recipe.yaml:2:1: error[P001] not UTF-8 text")
    assert done.returncode == 3 and done.stdout.splitlines()[-1].startswith("3 recipes: 1 error, ")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ("compare none none", "there is no bench result none"),
        ("compare . .", "there is no run.json in this folder"),
        ("compare tiny-dflash --against published", "there is no bench result tiny-dflash"),
        ("report r.json", "this is not a recipectl receipt (r.json)\n  seen:     no 'predicate'"),
        ("report l.json", "this is not a recipectl receipt (l.json)\n  seen:     another structure"),
        ("experiment l.json", "the contract breaks its format (l.json)\n  the file: "),
        ("experiment none.yaml", "the contract cannot be read (none.yaml)"),
    ],
)
def test_what_is_no_result_receipt_or_contract_is_a_usage_error(cli: Cli, tmp_path: Path, argv: str, told: str) -> None:
    (tmp_path / "r.json").write_text('{"predicateType": 1}')
    (tmp_path / "l.json").write_text("[]")
    done = cli(*argv.split(), cwd=tmp_path)
    assert done.returncode == 2 and told in done.stderr


def test_a_signal_is_named(tmp_path: Path) -> None:
    """A receipt that never comes keeps `report` waiting."""
    os.mkfifo(tmp_path / "r.json")
    argv = [sys.executable, "-m", "recipectl", "report", str(tmp_path / "r.json")]
    with subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None and process.stderr.readline().startswith("receipt: ")
        process.terminate()
        assert process.stderr.read() == "error[interrupted]: stopped by SIGTERM\n"
    assert process.returncode == 130


def test_status_tells_nothing_runs_from_a_name_that_nobody_knows(cli: Cli) -> None:
    assert cli("status").stdout == "nothing runs\n"
    assert cli("status", "tiny-dflahs").stdout == "nothing of tiny-dflahs is known here\n"


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


@pytest.mark.parametrize("argv", ["list", "list --json", "check --schema", "--help", "show -h", "--version"])
def test_an_answer_that_could_not_be_written_is_exit_code_2(argv: str) -> None:
    """/dev/full takes nothing, as a full disk does."""
    done = _sh(f"{sys.executable} -m recipectl {argv} >/dev/full")
    assert done.returncode == 2
    assert done.stderr.splitlines()[:2] == [
        "error[usage]: the answer could not be written (stdout)", "  seen:     No space left on device"
    ]  # fmt: skip


def test_a_verdict_outlives_an_answer_that_could_not_be_written() -> None:
    done = _sh(f"{sys.executable} -m recipectl show tiny-dflash --sm cpu --k 9 >/dev/full")
    assert done.returncode == 3 and "could not be written" in done.stderr


@pytest.mark.parametrize(("argv", "code"), [("check --schema", 0), ("show tiny-dflash --sm cpu --k 9 --json", 3)])
def test_a_reader_may_leave(argv: str, code: int) -> None:
    done = _sh(f"{sys.executable} -m recipectl {argv} | head -n 1; echo ${{PIPESTATUS[0]}}")
    assert done.stdout.splitlines()[1:] == [str(code)] and done.stderr == ""


def test_in_a_folder_that_is_gone_most_works_and_the_rest_says_why(tmp_path: Path) -> None:
    def gone(argv: str) -> subprocess.CompletedProcess[str]:
        at = tmp_path / "gone"
        return _sh(f"mkdir {at}; cd {at}; rmdir {at}; {Path(sys.executable).with_name('recipectl')} {argv}")

    for argv in ("list", "show tiny-dflash --sm cpu", "check tiny-dflash", "status"):
        assert gone(argv).returncode == 0, argv
    done = gone("new mine --from tiny-dflash")
    assert done.returncode == 2 and "error[usage]: the working folder no longer exists" in done.stderr


def test_what_the_machine_refuses_is_no_bug(cli: Cli) -> None:
    done = cli("use", "tiny-dflash", env={"RECIPECTL_STATE": "/proc/none"})
    assert done.returncode == 2 and "RECIPECTL_STATE" in done.stderr
    done = cli("report", "a" * 256)
    assert done.returncode == 2 and "this machine refuses a file" in done.stderr and "name too long" in done.stderr
    done = _sh(f"ulimit -f 0; trap '' XFSZ; exec {sys.executable} -m recipectl use tiny-dflash")
    assert done.returncode == 2 and "this machine refuses a file" in done.stderr


def _sh(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line], cwd=ROOT, check=False, capture_output=True, text=True)


def test_a_broken_settings_file_is_exit_code_2(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("usee = 1\n")
    done = cli("list", env={"RECIPECTL_SETTINGS": str(tmp_path / "s.toml")})
    assert done.returncode == 2 and "usee" in done.stderr and str(tmp_path / "s.toml") in done.stderr
