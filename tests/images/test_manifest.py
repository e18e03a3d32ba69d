"""overlay.yaml: one bad thing, one message at its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from recipectl.images.manifest import parse_text
from recipectl.images.overlay_files import names
from recipectl.settings import Settings
from tests.conftest import ROOT

from .conftest import manifest


def messages(text: str) -> list[str]:
    found, findings = parse_text(text, "overlay.yaml")
    assert (found is None) == any(f.level == "error" for f in findings)
    return [f.lines()[0] for f in findings]


def said(**changes: Any) -> str:
    return "\n".join(messages(yaml.safe_dump(manifest(**changes), sort_keys=False)))


def test_the_toy_manifest_is_fine() -> None:
    assert said() == ""


def test_a_sha256_that_begins_like_a_binary_number_is_text_to_every_reader() -> None:
    """One in 256 begins with 0b; no reader takes a 2 for a binary digit."""
    sha = "0b27be6986eb2f8a9642486dde6d4df9293ed872394ecbbc66d0ef21514506d8"
    text = yaml.safe_dump(manifest(patches=patch(before=sha)))
    assert f"before: {sha}" in text, "not quoted, as people write it"
    assert messages(text) == []
    assert "error[P008]" in messages(text.replace(sha, "0b" + "10" * 31))[0]


@pytest.mark.parametrize("place", ["/root/.venv/lib/python3.12/site-packages", "/opt/x_1/lib+"])
def test_an_environment_may_lie_in_a_hidden_folder(place: str) -> None:
    assert said(base={**manifest()["base"], "site_packages": place}) == ""


def test_our_own_overlays_are_fine() -> None:
    files = sorted((ROOT / "overlays").glob("*/overlay.yaml"))
    assert len(files) >= 6
    for file in files:
        assert messages(file.read_text()) == [], file
        assert (file.parent / "README.md").is_file(), file


def patch(**changes: Any) -> list[dict[str, Any]]:
    return [{**manifest()["patches"][0], **changes}]


FOREIGN = {"repository": "https://github.com/a/b", "path": "x.patch", "license": "MIT"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sums": {}}, "error[P003] sums: unknown key `sums`"),
        ({"build_args": {"HF_TOKEN": "hf_" + "a" * 30}}, "error[P012] build_args.HF_TOKEN: `HF_TOKEN` looks"),
        ({"build_args": {"X": "ghp_" + "a" * 30}}, "error[P012] build_args.X"),
        ({"env": {"MY_API_KEY": "12345678"}}, "error[P012] env.MY_API_KEY"),
        ({"labels": {"x": "sk-" + "a" * 30}}, "error[P012] labels.x"),
        ({"env": {"A-B": "1"}}, "error[P007] env.A-B: `A-B` is not a variable name"),
        ({"env": {"A": "one\ntwo"}}, "error[P007] env.A: `A` holds a line break or a control character"),
        ({"build_args": {"A": "x\n"}}, "error[P007] build_args.A: `A` holds a line break"),
        ({"labels": {'a="1"\nENV X=1\nLABEL b': "x"}}, "is not a label name"),
        ({"labels": {"a b": "x"}}, "error[P007] labels.a b: `a b` is not a label name"),
        ({"base": {**manifest()["base"], "site_packages": "/opt/x/../site"}}, "error[P007] base.site_packages"),
        ({"base": {**manifest()["base"], "site_packages": "/opt/.."}}, "error[P007] base.site_packages"),
        ({"labels": {"io.recipectl.sm": "x"}}, "error[P014] labels.io.recipectl.sm: recipectl writes"),
        ({"patches": patch(file="../etc/passwd")}, "error[P007] patches[0].file"),
        ({"patches": patch(file="/etc/passwd")}, "error[P007] patches[0].file"),
        ({"patches": patch(before="abc")}, "error[P007] patches[0].before"),
        ({"patches": patch(before=None)}, "error[P006] patches[0]: a patch of our own needs before and after"),
        ({"patches": patch(foreign=FOREIGN)}, "error[P006] patches[0]: give exactly one of patch"),
        ({"patches": patch(why="x")}, "error[P007] patches[0].why"),
        ({"families": ["sm999"]}, "error[P007] families[0]: expected sm90, sm100, sm121 or cpu"),
        ({"families": ["sm121"], "capabilities": ["10.3"]}, "capabilities 10.3 do not belong to sm121"),
        ({"base": {"distribution": ["toy"], "version": "1", "image": {"ref": "a:1"}}}, "base.image needs base.site_"),
        ({"base": {"distribution": ["toy"], "version": 1.0}}, "base.version: expected text, got the number 1.0"),
        ({"checks": [{"kind": "magic"}]}, "checks[0]"),
        ({"checks": [{"kind": "script", "source": "x.py", "why": "because it is so"}]}, "the key `expect` is missing"),
        ({"schema": 1.0}, "error[P004] schema: expected a whole number, got the number 1.0"),
        ({"sources": []}, "sources"),
        ({"name": "Upper"}, "error[P007] name"),
    ],
)  # fmt: skip
def test_one_bad_thing(changes: dict[str, Any], message: str) -> None:
    assert message in said(**changes)


def test_all_findings_at_once_with_lines() -> None:
    text = yaml.safe_dump(manifest(families=["sm999"], env={"A-B": "1"}, extra=1), sort_keys=False)
    lines = messages(text)
    assert len(lines) == 3
    at = {line.split(":")[1] for line in lines}
    assert at == {
        str(n) for n, row in enumerate(text.splitlines(), 1) if any(w in row for w in ("- sm999", "A-B:", "extra:"))
    }


@pytest.mark.parametrize("text", ["", "[]", "a", "a: [", "\t", "name: *x"])
def test_texts_that_are_no_manifest(text: str) -> None:
    assert messages(text)


@given(st.text(max_size=200))
def test_parsing_never_raises(text: str) -> None:
    parse_text(text, "overlay.yaml")


def test_the_overlays_are_found_by_name(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert {"dflash-guard", "sm100", "sm121", "vllm-cpu-temperature"} <= set(names(settings))
