"""One bad file, one exact message: what an author sees for each slip, kept word for word.

A changed message is a visible diff of a .txt file. Write a new one by running this file as a module.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from recipectl.checking import check_entry
from recipectl.recipe.catalog import Entry
from recipectl.recipe.codes import CODES
from recipectl.recipe.parse import parse_text
from recipectl.speculative import RULES

BAD = Path(__file__).parents[1] / "data" / "bad"
FILES = sorted(BAD.glob("*.yaml"))
# Findings that need more than one file: a lock, a folder of the recipe's name. test_checking.py has them.
ELSEWHERE = {"L001", "L002", "R014"}
# Rules that need facts of real models; tests/speculative has them.
NEEDS_FACTS = {"K004", "K005", "K006", "K007", "K009", "K010", "K011", "K012", "K014"}


def rendered(file: Path) -> str:
    """All findings about a file as `check` prints them, without the folder."""
    entry = Entry(file.stem, file, file.with_suffix(".lock.yaml"), "flag")
    lines = [line for finding in check_entry(entry).findings for line in finding.lines()]
    return "\n".join(lines).replace(str(file.parent) + "/", "").replace("tests/data/bad/", "") + "\n"


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_the_message_is_the_one_on_record(file: Path) -> None:
    assert rendered(file) == file.with_suffix(".txt").read_text()


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_every_finding_has_its_line_and_a_known_code(file: Path) -> None:
    _, findings = parse_text(file.read_text(), file.name)
    lines = file.read_text().count("\n") + 1
    assert all(1 <= f.line <= lines and f.column >= 1 and f.code in CODES for f in findings)


def test_every_code_has_a_bad_file() -> None:
    seen = "".join(f.with_suffix(".txt").read_text() for f in FILES)
    missing = {code for code in {*CODES, *RULES} if f"[{code}]" not in seen}
    assert missing == ELSEWHERE | NEEDS_FACTS


if __name__ == "__main__":
    for bad in FILES:
        bad.with_suffix(".txt").write_text(rendered(bad))
