"""Foreign patches: named, fetched from a real server on loopback, verified, or refused."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recipectl.errors import HubError, PinError, RecipeError
from recipectl.images import foreign, overlay
from recipectl.images.manifest import Foreign, Patch
from recipectl.images.overlay_files import load
from recipectl.settings import Settings

from .conftest import FIRST_NEW, FIRST_PATCH, FIRST_PY, sha, write_overlay, write_package

COMMIT = "a" * 40


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    root = tmp_path / "www"
    (root / "repo" / "raw" / COMMIT / "dir").mkdir(parents=True)
    (root / "repo" / "raw" / COMMIT / "dir" / "first.patch").write_text(FIRST_PATCH)
    (root / "repo" / "raw" / COMMIT / "huge.patch").write_bytes(b"x" * (foreign.LIMIT + 1))

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(root))

        def log_message(self, *args: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_address[1]}/repo"
        found.shutdown()


def named(**changes: Any) -> Foreign:
    data = {"repository": "https://example.org/repo", "commit": COMMIT, "path": "dir/first.patch", "license": "MIT",
            "sha256": sha(FIRST_PATCH), **changes}  # fmt: skip
    # A loopback server has no https; the manifest itself takes nothing else.
    return Foreign.model_construct(**{"form": "diff", "note": None, **data})


def patch_of(what: Foreign) -> Patch:
    return Patch.model_construct(file="toy/first.py", before=sha(FIRST_PY), after=sha(FIRST_NEW), patch=None,
                                 foreign=what, why="somebody else's work")  # fmt: skip


def test_download_and_verify(server: str) -> None:
    (text,) = foreign.download([patch_of(named(repository=server))]).values()
    assert text == FIRST_PATCH


def test_another_content_is_refused(server: str) -> None:
    with pytest.raises(PinError, match="not what the overlay names") as caught:
        foreign.download([patch_of(named(repository=server, sha256="0" * 64))])
    assert (caught.value.seen, caught.value.exit_code) == (sha(FIRST_PATCH), 4)


def test_not_there_and_nobody_there(server: str) -> None:
    with pytest.raises(HubError, match="cannot be downloaded") as caught:
        foreign.download([patch_of(named(repository=server, path="nothing.patch"))])
    assert "--patches DIR" in str(caught.value.next_step)
    with pytest.raises(HubError):
        foreign.download([patch_of(named(repository="http://127.0.0.1:9/repo"))])


def test_too_large(server: str) -> None:
    with pytest.raises(PinError, match="larger than any patch"):
        foreign.download([patch_of(named(repository=server, path="huge.patch"))])


@pytest.mark.parametrize("missing", ["commit", "sha256"])
def test_what_cannot_be_verified_is_not_downloaded(server: str, missing: str) -> None:
    with pytest.raises(RecipeError, match="nothing could be verified"):
        foreign.download([patch_of(named(repository=server, **{missing: None}))])


def test_only_https() -> None:
    with pytest.raises(RecipeError, match="only fetched over https"):
        foreign.download([patch_of(named(repository="ftp://example.org/x"))])


def test_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "first.patch").write_text(FIRST_PATCH)
    assert list(foreign.from_folder([patch_of(named())], tmp_path).values()) == [FIRST_PATCH]
    assert foreign.from_folder([patch_of(named(path="dir/other.patch"))], tmp_path) == {}
    (tmp_path / "first.patch").write_text("changed")
    with pytest.raises(PinError, match="not what the overlay names"):
        foreign.from_folder([patch_of(named())], tmp_path)


def test_urls_of_github() -> None:
    what = named(repository="https://github.com/owner/name.git")
    assert foreign.raw_url(what) == f"https://raw.githubusercontent.com/owner/name/{COMMIT}/dir/first.patch"


def test_the_license_is_shown_first() -> None:
    lines = foreign.license_lines([patch_of(named()), patch_of(named(license=None))])
    assert any("license: MIT" in line for line in lines) and any("license: NONE STATED" in line for line in lines)


def foreign_overlay(tmp_path: Path, **changes: Any) -> None:
    entry = {"repository": "https://github.com/a/b", "commit": COMMIT, "path": "dir/first.patch", "license": "MIT",
             "sha256": sha(FIRST_PATCH), **changes}  # fmt: skip
    before = None if changes.get("form") == "file" else sha(FIRST_PY)
    write_overlay(tmp_path, patches=[{"file": "toy/first.py", "before": before, "after": sha(FIRST_NEW),
                                      "foreign": entry, "why": "somebody else's work"}])  # fmt: skip


def test_a_fetched_patch_applies_as_our_own_does(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    foreign_overlay(tmp_path)
    toy = load(settings, "toy-overlay")
    with pytest.raises(RecipeError, match="named but not here"):
        overlay.require_resolved(toy)
    (tmp_path / "first.patch").write_text(FIRST_PATCH)
    toy = load(settings, "toy-overlay", foreign.from_folder([s.patch for s in toy.steps], tmp_path))
    overlay.require_resolved(toy)
    site = write_package(tmp_path / "site")
    results = overlay.apply(toy, lambda p: (site / p).read_bytes() if (site / p).is_file() else None)
    assert overlay.require(results)["toy/first.py"] == FIRST_NEW.encode()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"sha256": None}, "toy/first.py: foreign.sha256"),
        ({"commit": None}, "toy/first.py: foreign.commit"),
        ({"license": None}, "toy/first.py: a license (none is stated)"),
        ({"form": "script"}, "toy/first.py: a diff (the publisher ships a script, which is never run)"),
        ({"form": "file"}, "toy/first.py: before"),
    ],
)  # fmt: skip
def test_what_nobody_published_is_refused(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    foreign_overlay(tmp_path, **changes)
    with pytest.raises(RecipeError, match="not resolved, so nothing is built") as caught:
        overlay.require_resolved(load(settings, "toy-overlay"))
    assert caught.value.details == (line,)
    assert caught.value.exit_code == 3


def test_our_foreign_overlays_contain_nothing_foreign(settings: Settings) -> None:
    for name in ("glm53-sm121-fork", "glm53-sm100-fork"):
        toy = load(settings, name)
        assert toy.steps and all(s.text is None and s.patch.foreign for s in toy.steps)
        with pytest.raises(RecipeError, match="not resolved"):
            overlay.require_resolved(toy)
