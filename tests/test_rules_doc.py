"""docs/rules.md holds exactly the codes that the product has. Write the tables anew: python -m tests.test_rules_doc."""

from __future__ import annotations

import re

from recipectl.recipe.codes import CODES
from recipectl.speculative import RULES

from .conftest import ROOT

DOC = ROOT / "docs" / "rules.md"


def code_table() -> str:
    rows = [f"| {code} | {title} | {level} |" for code, (title, level) in CODES.items()]
    return "\n".join(["| code | rule | level |", "|---|---|---|", *rows])


def rule_table() -> str:
    rows = []
    for rule in RULES.values():
        sources = "; ".join(dict.fromkeys(e.source for e in rule.evidence)) or "the recipe's own evidence"
        rows.append(f"| {rule.code} | {rule.title} | {rule.level} | {sources} |")
    return "\n".join(["| code | rule | level | sources |", "|---|---|---|---|", *rows])


def written(text: str) -> str:
    """The document with both tables as the code has them."""
    for marker, table in (("codes", code_table()), ("rules", rule_table())):
        pattern = rf"<!-- {marker} -->\n(?:\n\|.*(?:\n\|.*)*\n)?"
        text = re.sub(pattern, lambda _, m=marker, t=table: f"<!-- {m} -->\n\n{t}\n", text)
    return text


def test_the_document_is_the_code() -> None:
    assert DOC.read_text() == written(DOC.read_text()), "write it anew: python -m tests.test_rules_doc"


def test_each_code_stands_once() -> None:
    codes = re.findall(r"^\| ([A-Z]\d{3}) \|", DOC.read_text(), re.M)
    assert sorted(codes) == sorted({*CODES, *RULES})


if __name__ == "__main__":
    DOC.write_text(written(DOC.read_text()))
