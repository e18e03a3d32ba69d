"""docs/recipe.md as a reader follows it: its file, its commands, its messages, in an empty folder."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT, Cli

GUIDE = (ROOT / "docs" / "recipe.md").read_text()
FILE = re.search(r"<!-- file (\S+) -->\n```yaml\n(.*?)```", GUIDE, re.DOTALL)
BREAK = re.search(r'<!-- breaks ("[^\n]*?") ("[^\n]*") -->\n\n((?:    .*\n)+)', GUIDE)
COMMANDS = [
    (words.split(" #")[0].strip(), int(code[-1]) if (code := words.partition(" # exit code ")[2]) else 0)
    for words in re.findall(r"(?m)^    recipectl (.*)$", GUIDE)
]

Run = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture
def reader(cli: Cli, tmp_path: Path) -> Run:
    """A reader in an empty folder who has saved the file of step 1."""
    assert FILE is not None
    file = tmp_path / FILE[1]
    file.parent.mkdir(parents=True)
    file.write_text(FILE[2])

    def run(words: str) -> subprocess.CompletedProcess[str]:
        argv, _, to = words.partition(" > ")
        done = cli(*shlex.split(argv), cwd=tmp_path)
        if to:
            (tmp_path / to).write_text(done.stdout)
        return done

    return run


def test_every_command_ends_as_the_guide_says(reader: Run, tmp_path: Path) -> None:
    assert len(COMMANDS) >= 10
    for words, code in COMMANDS:
        done = reader(words)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
    assert json.loads((tmp_path / "recipe.schema.json").read_text())["title"]
    assert (tmp_path / "recipes" / "my-e" / "recipe.yaml").is_file()


def test_the_file_is_clean_and_says_what_the_guide_promises(reader: Run) -> None:
    checked = reader("check my-flash --strict")
    assert checked.returncode == 0 and "0 errors, 0 warnings" in checked.stdout
    assert "finding" not in checked.stdout.replace("0 findings", "") and "note[" not in checked.stdout
    shown = reader("show my-flash --sm 121").stdout
    assert '"num_speculative_tokens":5' in shown and "[1, 2, 4, 6, 12, 18, 24]" in shown
    broken = reader("show my-flash --sm 121 --k 8").stdout
    quoted = re.search(r"(?m)^    (K001  FAIL .*)$", GUIDE)
    assert quoted and re.sub(r"\s+", " ", quoted[1]) in re.sub(r"\s+", " ", broken)


def test_the_misspelt_key_is_answered_as_quoted(reader: Run, tmp_path: Path) -> None:
    assert BREAK is not None and FILE is not None
    before, after = (json.loads(part) for part in BREAK.groups()[:2])
    file = tmp_path / FILE[1]
    assert file.read_text().count(before) == 1
    file.write_text(file.read_text().replace(before, after))
    said = reader("check my-flash")
    assert said.returncode == 3
    assert textwrap.dedent(BREAK[3]) in said.stdout, said.stdout


def test_the_drafter_is_refused_for_commerce_and_the_alternative_named(
    reader: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECIPECTL_USE", "commercial")
    listed = reader("list --json").stdout
    mine = next(r for r in json.loads(listed)["recipes"] if r["name"] == "my-flash")
    assert mine["lanes"][0]["here"].startswith("no: the license of drafter permits no commercial use")


def test_variants_and_shared_of_the_guide_are_right(reader: Run, tmp_path: Path) -> None:
    """The fragment under "Lanes, variants": put into the file, it checks, and the variants are what it says."""
    assert FILE is not None
    fragment = next(b for b in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL) if b.startswith("shared:"))
    extra, file = yaml.safe_load(fragment), tmp_path / FILE[1]
    data = yaml.safe_load(file.read_text())
    data["shared"] = extra["shared"]
    data["lanes"]["sm121"]["variants"] = extra["lanes"]["sm121"]["variants"]
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    assert reader("check my-flash").returncode == 0
    seven = json.loads(reader("show my-flash --sm 121 --variant k7 --json").stdout)["lanes"][0]
    assert (seven["k"], seven["args"]["max_num_seqs"], seven["args"]["trust_remote_code"]) == (7, 2, False)
    plain = json.loads(reader("show my-flash --sm 121 --variant plain --json").stdout)["lanes"][0]
    assert plain["speculative_config"] is None and plain["drafter"] is None
