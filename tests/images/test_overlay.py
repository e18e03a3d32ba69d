"""Overlays applied to a tree: file by file, chained, and with an identity that depends on nothing but the inputs."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest

from recipectl.errors import PinError, RecipeError
from recipectl.images import context
from recipectl.images.overlay import FileResult, Overlay, apply, input_digest, require
from recipectl.images.overlay_files import find, load
from recipectl.settings import Settings

from .conftest import ADDED, FIRST_NEW, FIRST_PATCH, FIRST_PY, manifest, sha, write_overlay, write_package


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def applied(what: Overlay, site: Path) -> dict[str, FileResult]:
    results = apply(what, lambda p: (site / p).read_bytes() if (site / p).is_file() else None)
    return {r.file: r for r in results}


def test_every_file_is_patched_or_added(settings: Settings, work: Path) -> None:
    write_overlay(work)
    got = applied(load(settings, "toy-overlay"), write_package(work / "site"))
    assert {f: r.status for f, r in got.items()} == {"toy/first.py": "patched", "toy/added.py": "added"}
    assert require(got.values()) == {"toy/first.py": FIRST_NEW.encode(), "toy/added.py": ADDED.encode()}


def test_the_tree_itself_is_not_touched(settings: Settings, work: Path) -> None:
    write_overlay(work)
    site = write_package(work / "site")
    applied(load(settings, "toy-overlay"), site)
    assert (site / "toy/first.py").read_text() == FIRST_PY
    assert not (site / "toy/added.py").exists()


def test_several_patches_to_one_file_chain(settings: Settings, work: Path) -> None:
    second = FIRST_PATCH.replace("x21 = 21\n+x21 = 2100", "x21 = 2100\n+x21 = 7")
    newest = FIRST_NEW.replace("x21 = 2100", "x21 = 7")
    patches = [*manifest()["patches"], {"file": "toy/first.py", "patch": "second.patch", "before": sha(FIRST_NEW),
                                        "after": sha(newest), "why": "once more, with feeling"}]  # fmt: skip
    write_overlay(work, {"second.patch": second}, patches=patches)
    got = applied(load(settings, "toy-overlay"), write_package(work / "site"))
    assert got["toy/first.py"].content == newest.encode()
    assert got["toy/first.py"].hunks == 2
    assert load(settings, "toy-overlay").patch_table() == {"toy/first.py": (sha(FIRST_PY), sha(newest))}
    patches[1]["before"] = "0" * 64
    write_overlay(work, {"second.patch": second}, patches=patches)
    with pytest.raises(RecipeError, match=r"patches of toy/first.py do not chain"):
        load(settings, "toy-overlay")


def test_another_version_is_named_if_it_is_known(settings: Settings, work: Path) -> None:
    other = FIRST_PY + "# next version\n"
    write_overlay(work, known={sha(other): "toy 1.1"})
    site = write_package(work / "site")
    (site / "toy/first.py").write_text(other)
    error = applied(load(settings, "toy-overlay"), site)["toy/first.py"].error
    assert isinstance(error, PinError)
    assert error.exit_code == 4
    assert error.seen == f"{sha(other)} (that of toy 1.1)"
    (site / "toy/first.py").write_text(other + "#\n")
    error = applied(load(settings, "toy-overlay"), site)["toy/first.py"].error
    assert error and "no version that this overlay knows" in str(error.seen)


def test_a_file_that_is_patched_already(settings: Settings, work: Path) -> None:
    write_overlay(work)
    site = write_package(work / "site")
    (site / "toy/first.py").write_text(FIRST_NEW)
    got = applied(load(settings, "toy-overlay"), site)
    assert got["toy/first.py"].status == "already patched"
    with pytest.raises(PinError, match="patched already"):
        require(got.values())


@pytest.mark.parametrize(
    ("path", "text", "status"), [("toy/added.py", ADDED, "already patched"), ("toy/added.py", "mine", "refused")]
)
def test_an_added_file_that_exists(settings: Settings, work: Path, path: str, text: str, status: str) -> None:
    write_overlay(work)
    site = write_package(work / "site")
    (site / "toy/added.py").write_text(text)
    assert applied(load(settings, "toy-overlay"), site)["toy/added.py"].status == status


def test_a_missing_file_and_all_failures_at_once(settings: Settings, work: Path) -> None:
    write_overlay(work)
    site = write_package(work / "site")
    (site / "toy/first.py").unlink()
    (site / "toy/added.py").write_text("x")
    with pytest.raises(PinError) as caught:
        require(applied(load(settings, "toy-overlay"), site).values())
    assert caught.value.details == ("toy/first.py: missing", "toy/added.py: refused")


def test_a_patch_that_gives_something_else(settings: Settings, work: Path) -> None:
    write_overlay(work, {"first.patch": FIRST_PATCH.replace("2100", "2200")})
    error = applied(load(settings, "toy-overlay"), write_package(work / "site"))["toy/first.py"].error
    assert error and "does not give the sha256" in error.what and error.exit_code == 4


def test_a_changed_source_file(settings: Settings, work: Path) -> None:
    write_overlay(work, {"added.py": "ADDED = False\n"})
    with pytest.raises(PinError, match="not what its manifest says"):
        load(settings, "toy-overlay")


@pytest.mark.parametrize("name", ["first.patch", "added.py", "check.py"])
def test_a_link_that_leaves_the_folder_is_refused(settings: Settings, work: Path, name: str) -> None:
    folder = write_overlay(work)
    (work / "elsewhere").write_bytes((folder / name).read_bytes())
    (folder / name).unlink()
    (folder / name).symlink_to("../../elsewhere")
    with pytest.raises(RecipeError, match="outside of its folder") as caught:
        load(settings, "toy-overlay")
    assert caught.value.seen == str(work / "elsewhere")
    (folder / "inside").write_bytes((work / "elsewhere").read_bytes())
    (folder / name).unlink()
    (folder / name).symlink_to("inside")
    load(settings, "toy-overlay")


def test_a_check_that_is_not_utf8(settings: Settings, work: Path) -> None:
    (write_overlay(work) / "check.py").write_bytes(b"x = 1\nprint('\xff')\n")
    with pytest.raises(RecipeError, match="not UTF-8 text") as caught:
        load(settings, "toy-overlay")
    assert str(caught.value.on).endswith("check.py:2")


def test_a_file_has_one_source(settings: Settings, work: Path) -> None:
    added = manifest()["files"]
    write_overlay(work, files=[*added, {**added[0]}])
    with pytest.raises(RecipeError, match=r"toy/added.py is added twice"):
        load(settings, "toy-overlay")
    write_overlay(work, files=[{**added[0], "file": "toy/first.py"}])
    with pytest.raises(RecipeError, match=r"toy/first.py is added and patched"):
        load(settings, "toy-overlay")


def test_includes_come_first(settings: Settings, work: Path) -> None:
    write_overlay(work)
    write_overlay(work, name="outer", include=["toy-overlay"], patches=[], files=[], env={"A": "1"}, checks=[])
    outer = load(settings, "outer")
    assert [s.overlay for s in outer.steps] == ["toy-overlay"]
    assert (len(outer.added), len(outer.checks), outer.env) == (1, 1, {"A": "1"})
    write_overlay(work, name="third", include=["outer"])
    with pytest.raises(RecipeError, match="one level is enough"):
        load(settings, "third")
    write_overlay(work, name="other", include=["toy-overlay"], base={"distribution": ["toy"], "version": "2.0"})
    with pytest.raises(RecipeError, match="for another package"):
        load(settings, "other")


def test_unknown_overlay_names_the_nearest(settings: Settings, work: Path) -> None:
    write_overlay(work)
    with pytest.raises(Exception, match="no overlay 'toy-overlai'") as caught:
        find(settings, "toy-overlai")
    assert "toy-overlay" in caught.value.seen  # type: ignore[attr-defined]


CHANGES: list[dict[str, Any]] = [
    {"env": {"A": "1"}}, {"build_args": {"B": "1"}}, {"labels": {"c": "1"}}, {"families": ["cpu", "sm121"]},
    {"checks": []}, {"license": "MIT"}, {"files": []},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: next(iter(c)))
def test_the_digest_covers_what_decides_and_what_proves(settings: Settings, work: Path, change: dict[str, Any]) -> None:
    write_overlay(work)
    first = input_digest(load(settings, "toy-overlay"), "sha256:1", "linux/arm64")
    write_overlay(work, **change)
    assert input_digest(load(settings, "toy-overlay"), "sha256:1", "linux/arm64") != first


def test_the_digest_covers_base_platform_and_check_text_but_no_notes(settings: Settings, work: Path) -> None:
    write_overlay(work)
    toy = load(settings, "toy-overlay")
    digests = {input_digest(toy, b, p) for b in ("sha256:1", "sha256:2") for p in ("linux/arm64", "linux/amd64", None)}
    assert len(digests) == 6
    write_overlay(work, {"check.py": "print('toy says 2100')\n"})
    assert input_digest(load(settings, "toy-overlay"), "sha256:1", None) not in digests
    write_overlay(work, summary="the same in other words", evidence=[{"source": "a note that proves nothing"}])
    assert input_digest(load(settings, "toy-overlay"), "sha256:1", None) in digests


DIGEST = """
import os, sys
from recipectl.images import context, overlay, overlay_files
from recipectl.settings import load
if sys.argv[2] == "nobody":
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
toy = overlay_files.load(load(), "toy-overlay")
files = {"toy/b.py": b"2", "toy/a.py": b"1"} if sys.argv[1] == "ba" else {"toy/a.py": b"1", "toy/b.py": b"2"}
tar = context.context(toy, files, "FROM x\\n")
print(overlay.input_digest(toy, "sha256:1", None), overlay.sha256(tar), os.getuid())
"""


def test_identity_does_not_depend_on_user_umask_order_time_or_place(tmp_path: Path) -> None:
    """Two processes: another user, umask, hash seed, time zone, language, file order, modes, times and folder."""
    seen = []
    root_user = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as open_place:  # below /tmp, which other users can enter
        Path(open_place).chmod(0o755)
        for n, root in enumerate([tmp_path / "one", Path(open_place) / "two"]):
            for path in write_overlay(root).iterdir():
                os.utime(path, (n * 10**8, n * 10**8))
                path.chmod(0o644 if n else 0o700)
            env = {**os.environ, "PYTHONHASHSEED": str(n), "RECIPECTL_SETTINGS": str(root / "none")}
            env |= {"TZ": "Asia/Tokyo", "LANG": "C", "RECIPECTL_DATA": str(root)} if n else {}
            argv = [sys.executable, "-c", DIGEST, "ba" if n else "ab", "nobody" if n and root_user else "same"]
            ran = subprocess.run(argv, cwd=root, env=env, capture_output=True, text=True, check=False,
                                 umask=0o077 if n else 0o022)  # fmt: skip
            assert ran.returncode == 0, ran.stderr
            seen.append(ran.stdout.split())
    assert seen[0][:2] == seen[1][:2]
    assert not root_user or (seen[0][2], seen[1][2]) == ("0", "65534")


def test_the_context_is_sorted_with_fixed_times_and_modes(settings: Settings, work: Path) -> None:
    write_overlay(work)
    data = context.context(load(settings, "toy-overlay"), {"toy/b.py": b"2", "toy/a.py": b"1"}, "FROM x\n")
    with tarfile.open(fileobj=io.BytesIO(data)) as outer:
        assert outer.getnames() == ["Dockerfile", "rootfs.tar"]
        inner = outer.extractfile("rootfs.tar")
        assert inner is not None
        with tarfile.open(fileobj=inner) as rootfs:
            members = rootfs.getmembers()
    assert [m.name for m in members] == ["opt/site/toy/a.py", "opt/site/toy/b.py"]
    assert {(m.mtime, m.mode, m.uid, m.gid, m.uname) for m in members} == {(0, 0o644, 0, 0, "")}


@pytest.mark.parametrize("name", ["model.safetensors", "mask_embedding.pt", "a/B.PT", "x.gguf"])
def test_weights_are_refused(name: str) -> None:
    with pytest.raises(RecipeError, match="weights do not go into an image"):
        context.refuse_content(name, b"")


def test_tokens_are_refused() -> None:
    with pytest.raises(RecipeError, match="looks like a secret"):
        context.refuse_content("a.py", b"TOKEN = 'hf_" + b"a" * 34 + b"'")


def test_values_reach_the_builder_unexpanded() -> None:
    assert context.quote('a"b\\c$HOME') == '"a\\"b\\\\c\\$HOME"'
    with pytest.raises(RecipeError, match="line break"):
        context.quote("a\nLABEL x=y")


@pytest.mark.parametrize(
    ("ref", "repository"),
    [("vllm/vllm-openai:v1", "vllm/vllm-openai"), ("127.0.0.1:5000/a/b:1@sha256:0", "127.0.0.1:5000/a/b"),
     ("base", "base"), ("ghcr.io/x/y", "ghcr.io/x/y"), ("localhost:5000/x", "localhost:5000/x")],
)  # fmt: skip
def test_repository(ref: str, repository: str) -> None:
    assert context.repository(ref) == repository


def test_dockerfile(settings: Settings, work: Path) -> None:
    write_overlay(work, env={"B": "2", "A": "1"}, build_args={"X": "y"})
    toy = load(settings, "toy-overlay")
    labels = context.labels(toy, "r/base:1", "sha256:1", "sha256:2")
    text = context.dockerfile(toy, "r/base:1", "sha256:1", labels)
    assert text.splitlines()[:6] == [
        "# recipectl overlay toy-overlay", "FROM r/base@sha256:1", 'ARG X="y"', 'ENV A="1"', 'ENV B="2"',
        "ADD rootfs.tar /",
    ]  # fmt: skip
    assert 'LABEL io.recipectl.overlay.digest="sha256:2"' in text
