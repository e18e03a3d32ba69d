"""Builds on a real engine: proven and named, reused, or refused with nothing named."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from recipectl.errors import EngineError, HubError, PinError, RecipeError
from recipectl.images import context
from recipectl.images.build import BuildPlan, Built, build, faults, plan
from recipectl.images.known import Known
from recipectl.images.overlay_files import load
from recipectl.images.verify import check_built
from recipectl.lockfile import LockedImage
from recipectl.settings import Settings
from tests.docker_engine import import_image

from .conftest import ADDED, FIRST_NEW, SITE, Bench, sha, write_overlay

pytestmark = pytest.mark.docker


def planned(
    settings: Settings, bench: Bench, work: Path, sources: dict[str, str] | None = None, **changes: Any
) -> BuildPlan:
    write_overlay(work, sources, **{"base": bench.base(), **changes})
    toy = load(settings, "toy-overlay")
    return plan(toy, LockedImage(ref=bench.ref, digest=bench.digest, platform=bench.docker.platform()), "cpu")


def built(settings: Settings, bench: Bench, work: Path, sources: dict[str, str] | None = None, **changes: Any) -> Built:
    return build(bench.docker, planned(settings, bench, work, sources, **changes), lambda line: None)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_proven_image(settings: Settings, bench: Bench, work: Path) -> None:
    done = built(settings, bench, work, env={"TOY": "a $HOME b"}, labels={"org.example.x": "y"})
    todo = planned(settings, bench, work, env={"TOY": "a $HOME b"}, labels={"org.example.x": "y"})
    assert bench.names() == {todo.tag}
    assert [(p.subject, p.ok) for p in done.proven] == [
        ("file toy/added.py", True), ("file toy/first.py", True), ("check script check.py", True),
    ]  # fmt: skip
    image = bench.docker.image(todo.tag)
    assert image is not None
    assert image.labels["io.recipectl.overlay.digest"] == todo.digest
    assert image.labels["org.opencontainers.image.base.digest"] == bench.digest
    assert image.labels["org.example.x"] == "y"
    # What the engine says, not what we say: the bytes, and the environment unexpanded.
    ran = bench.docker.run_check(todo.tag, ["python3", "-c", "import os; print(os.environ['TOY'])"], 20)
    assert ran.output.strip() == "a $HOME b"
    inside = bench.docker.read_files(todo.tag, [f"{SITE}/toy/first.py", f"{SITE}/toy/nothing.py"])
    assert inside == {f"{SITE}/toy/first.py": FIRST_NEW.encode(), f"{SITE}/toy/nothing.py": None}
    base = bench.docker.image(f"{bench.ref.rsplit(':', 1)[0]}@{bench.digest}")
    assert base is not None and image.layers[: len(base.layers)] == base.layers


def test_nothing_changed_is_reused(settings: Settings, bench: Bench, work: Path) -> None:
    first = built(settings, bench, work)
    again = built(settings, bench, work)
    assert (first.reused, again.reused) == (False, True)
    assert again.image.id == first.image.id


def test_labels_that_were_changed_are_not_trusted(settings: Settings, bench: Bench, work: Path) -> None:
    built(settings, bench, work)
    todo = planned(settings, bench, work)
    client = bench.engine.client()
    try:
        box = client.containers.create(todo.tag, "true")
        name, _, tag = todo.tag.partition(":")
        box.commit(name, tag, changes=["LABEL io.recipectl.sm=sm999"])
        box.remove()
    finally:
        client.close()
    assert wrong(bench, todo) == ["io.recipectl.sm: 'sm999', not 'cpu'"]
    assert built(settings, bench, work).reused is False
    assert wrong(bench, todo) == []


def wrong(bench: Bench, todo: BuildPlan) -> list[str]:
    image = bench.docker.image(todo.tag)
    assert image is not None
    return faults(bench.docker, todo, image)


def test_labels_that_were_copied_onto_another_image_are_not_trusted(
    settings: Settings, bench: Bench, work: Path
) -> None:
    """One layer on the right base, every label as it should be, and another program in it."""
    todo = planned(settings, bench, work)
    labels = "".join(f"LABEL {key}={context.quote(text)}\n" for key, text in todo.labels.items())
    (work / "forged").mkdir()
    (work / "forged" / "first.py").write_text("x21 = 666\n")
    (work / "forged" / "Dockerfile").write_text(f"FROM {todo.base_name}\nADD first.py {SITE}/toy/first.py\n{labels}")
    client = bench.engine.client()
    try:
        client.images.build(path=str(work / "forged"), tag=todo.tag)
    finally:
        client.close()
    found = wrong(bench, todo)
    assert found[0] == f"toy/added.py: not there, not {sha(ADDED)}"
    assert found[1] == f"toy/first.py: sha256 {sha('x21 = 666' + chr(10))}, not {sha(FIRST_NEW)}"
    with pytest.raises(PinError, match="not the one that the overlay makes") as caught:
        check_built(bench.docker, todo, lambda line: None)
    assert list(caught.value.details) == found
    said: list[str] = []
    assert build(bench.docker, todo, said.append).reused is False
    assert any("is built anew: toy/added.py: not there" in line for line in said)
    assert check_built(bench.docker, todo, lambda line: None) is not None


def test_an_image_is_read_once_by_its_id(settings: Settings, bench: Bench, work: Path) -> None:
    todo = planned(settings, bench, work)
    image = build(bench.docker, todo, lambda line: None, known=Known(work)).image
    other = bench.docker.image("toybase:1")
    assert other is not None
    known = Known(work)
    assert known.holds(image.id, todo.digest)
    assert not known.holds(other.id, todo.digest) and not known.holds(image.id, "sha256:other")

    class Unread:
        """The engine, out of which no file is read."""

        image = staticmethod(bench.docker.image)

    assert faults(Unread(), todo, image, known) == []  # type: ignore[arg-type]
    for damage in ("", "{", "[]", '{"x": 1}'):
        (work / "images.json").write_text(damage)
        assert not Known(work).holds(image.id, todo.digest)


def refused(kind: type[Exception], settings: Settings, bench: Bench, work: Path, **given: Any) -> Any:
    with pytest.raises(kind) as caught:
        built(settings, bench, work, given.pop("sources", None), **given)
    assert bench.names() == set(), "a name was left behind"
    return caught.value


def test_a_failed_check_leaves_no_name(settings: Settings, bench: Bench, work: Path) -> None:
    error = refused(EngineError, settings, bench, work, sources={"check.py": "print('no'); raise SystemExit(3)"})
    assert error.exit_code == 7
    assert "exit code 3" in error.details[0]
    assert any("no" in line for line in error.details)


def test_a_failed_check_takes_an_older_name_away(settings: Settings, bench: Bench, work: Path) -> None:
    """A broken image under the overlay's own name, as an interrupted older tool could leave."""
    sources = {"check.py": "raise SystemExit(1)"}
    todo = planned(settings, bench, work, sources)
    bench.docker.tag("toybase:1", todo.tag)
    assert bench.names() == {todo.tag}
    refused(EngineError, settings, bench, work, sources=sources)


def test_a_check_that_hangs_is_ended(settings: Settings, bench: Bench, work: Path) -> None:
    start = time.monotonic()
    error = refused(
        EngineError, settings, bench, work, sources={"check.py": "import time; time.sleep(600)"}, check_timeout_s=2
    )
    assert time.monotonic() - start < 30
    assert "did not end within 2 s" in error.what
    client = bench.engine.client()
    try:
        assert client.containers.list(all=True, filters={"label": "io.recipectl.check"}) == []
    finally:
        client.close()


def test_what_a_killed_build_left_is_removed_when_its_time_is_over(bench: Bench) -> None:
    client = bench.engine.client()
    try:
        box = {
            until: client.containers.create("toybase:1", ["python3"], labels={"io.recipectl.check": until})
            for until in (str(int(time.time()) - 5), str(int(time.time()) + 60))
        }
        bench.docker.read_files("toybase:1", ["/etc/hostname"])
        left = client.containers.list(all=True, filters={"label": "io.recipectl.check"})
        assert [c.id for c in left] == [box[max(box)].id], "one that may be in use stays"
        box[max(box)].remove()
    finally:
        client.close()


def test_a_proof_larger_than_one_argument(settings: Settings, bench: Bench, work: Path) -> None:
    """Linux takes no argument of more than 128 KiB."""
    check = f"# {'x' * 300_000}\nprint('large')\n"
    expect = {"checks": [{"kind": "script", "source": "check.py", "expect": "large", "why": "it is a large check"}]}
    assert [p.ok for p in built(settings, bench, work, {"check.py": check}, **expect).proven] == [True, True, True]


def test_checks_have_no_network(settings: Settings, bench: Bench, work: Path) -> None:
    check = "import socket\nprint('interfaces', [n for _, n in socket.if_nameindex()])"
    expect = {
        "checks": [
            {"kind": "script", "source": "check.py", "expect": "interfaces ['lo']", "why": "no network in a proof"}
        ]
    }
    assert built(settings, bench, work, {"check.py": check}, **expect).proven[-1].ok


def test_a_file_that_does_not_compile(settings: Settings, bench: Bench, work: Path) -> None:
    bad = "def broken(:\n"
    files = [{"file": "toy/added.py", "source": "added.py", "sha256": sha(bad), "why": "it must not pass"}]
    error = refused(PinError, settings, bench, work, sources={"added.py": bad}, files=files, checks=[])
    assert "does not compile" in error.details[0]


def test_version_check(settings: Settings, bench: Bench, work: Path) -> None:
    checks = [{"kind": "version", "distribution": "toy", "version": "2.0"}]
    error = refused(EngineError, settings, bench, work, checks=checks)
    # The toy's metadata lies in a folder that Python does not search, so the distribution is not found.
    assert "toy not installed, wanted 2.0" in error.details[0]


def test_an_engine_check_without_the_engine_fails(settings: Settings, bench: Bench, work: Path) -> None:
    checks = [
        {"kind": "registered", "architectures": ["DFlash2DraftModel"]},
        {"kind": "arch", "capabilities": ["12.1"]},
    ]
    error = refused(EngineError, settings, bench, work, checks=checks, families=["sm121"])
    assert any("No module named 'vllm'" in line for line in error.details)
    assert any("No module named 'torch'" in line for line in error.details)


def test_a_base_that_is_another_version(settings: Settings, bench: Bench, work: Path) -> None:
    patches = [
        {
            "file": "toy/first.py",
            "patch": "first.patch",
            "before": "1" * 64,
            "after": sha(FIRST_NEW),
            "why": "for another toy",
        }
    ]
    assert "not the one that the patch was made for" in refused(PinError, settings, bench, work, patches=patches).what


def test_a_base_that_is_patched_already(settings: Settings, bench: Bench, work: Path) -> None:
    todo_base = built(settings, bench, work).image
    bench.docker.tag(todo_base.id, bench.ref.replace("toybase", "patched"))
    client = bench.engine.client()
    try:
        name, _, tag = bench.ref.replace("toybase", "patched").rpartition(":")
        pushed = [x["aux"]["Digest"] for x in client.api.push(name, tag, stream=True, decode=True) if "aux" in x][-1]
    finally:
        client.close()
    for taken in bench.names():
        bench.docker.untag(taken)
    write_overlay(work, base={**bench.base(), "image": {"ref": f"{name}:{tag}", "digest": pushed}})
    todo = plan(load(settings, "toy-overlay"), LockedImage(ref=f"{name}:{tag}", digest=pushed), "cpu")
    with pytest.raises(PinError, match="patched already"):
        build(bench.docker, todo, lambda line: None)
    assert bench.names() == set()


def test_a_digest_that_the_registry_does_not_have(settings: Settings, bench: Bench, work: Path) -> None:
    gone = LockedImage(ref=bench.ref, digest="sha256:" + "e" * 64)
    write_overlay(work, base=bench.base())
    with pytest.raises(HubError, match="the registry does not have it") as caught:
        build(bench.docker, plan(load(settings, "toy-overlay"), gone, "cpu"), lambda line: None)
    assert caught.value.exit_code == 6
    assert bench.names() == set()


def test_a_registry_that_is_not_there(settings: Settings, bench: Bench, work: Path) -> None:
    away = LockedImage(ref="127.0.0.1:9/toybase:1", digest="sha256:" + "e" * 64)
    write_overlay(work, base=bench.base())
    with pytest.raises(HubError, match="its registry cannot be reached"):
        build(bench.docker, plan(load(settings, "toy-overlay"), away, "cpu"), lambda line: None)


def test_the_wrong_platform(settings: Settings, bench: Bench, work: Path) -> None:
    other = "linux/arm64" if bench.docker.platform() == "linux/amd64" else "linux/amd64"
    write_overlay(work, base=bench.base())
    base = LockedImage(ref=bench.ref, digest=bench.digest, platform=other)
    with pytest.raises(PinError, match="for another platform"):
        build(bench.docker, plan(load(settings, "toy-overlay"), base, "cpu"), lambda line: None)


def test_weights_in_the_context(settings: Settings, bench: Bench, work: Path) -> None:
    files = [{"file": "toy/x.py", "source": "w.safetensors", "sha256": sha("w"), "why": "weights in disguise"}]
    assert (
        "weights do not go"
        in refused(RecipeError, settings, bench, work, sources={"w.safetensors": "w"}, files=files).what
    )


def test_a_full_disk(settings: Settings, bench: Bench, work: Path) -> None:
    """An engine of its own on a disk of 150 MB: the base (70 MB, stored twice while it is unpacked) does not fit."""
    from recipectl.images.docker import DockerEngine
    from tests.docker_engine import dockerd

    disk = work / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=150m", "tmpfs", str(disk)], check=True)
    try:
        with dockerd(disk / "engine", "--storage-driver=vfs") as small:
            engine = DockerEngine(small.host)
            with pytest.raises(EngineError, match="the engine's disk is full"):
                build(engine, planned(settings, bench, work), lambda line: None)
            engine.close()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


INTERRUPTED = """
import sys
from recipectl.images.build import build, plan
from recipectl.images.docker import DockerEngine
from recipectl.images.overlay_files import load
from recipectl.lockfile import LockedImage
from recipectl.settings import load as settings
host, ref, digest = sys.argv[1:]
print("ready", flush=True)
build(DockerEngine(host), plan(load(settings(), "toy-overlay"), LockedImage(ref=ref, digest=digest), "cpu"), print)
"""


def test_ctrl_c_during_a_check(settings: Settings, bench: Bench, work: Path) -> None:
    write_overlay(work, {"check.py": "import time; time.sleep(600)"}, base=bench.base())
    argv = [sys.executable, "-c", INTERRUPTED, bench.engine.host, bench.ref, bench.digest]
    process = subprocess.Popen(argv, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    client = bench.engine.client()
    try:
        deadline = time.monotonic() + 30
        while not client.containers.list(filters={"label": "io.recipectl.check"}) and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        process.wait(20)
        assert client.containers.list(all=True, filters={"label": "io.recipectl.check"}) == []
    finally:
        process.kill()
        client.close()
    assert bench.names() == set()


def test_two_builds_of_the_same_overlay_at_once(settings: Settings, bench: Bench, work: Path) -> None:
    todo = planned(settings, bench, work)
    done: list[Built] = []
    threads = [
        threading.Thread(target=lambda: done.append(build(bench.docker, todo, lambda line: None))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(done) == 2
    assert bench.names() == {todo.tag}


def test_an_image_without_python(settings: Settings, bench: Bench, work: Path) -> None:
    error = refused(EngineError, settings, bench, work, base={**bench.base(), "python": "python9"})
    assert "could not run a check in the image" in error.what or "died" in error.what


def test_import_image_helper_is_what_it_says(bench: Bench) -> None:
    """The fixture's own base: Python runs in it, and it has no network in a check."""
    assert import_image is not None
    assert bench.docker.run_check("toybase:1", ["python3", "-c", "print(6 * 7)"], 20).output.strip() == "42"
