"""What a container's answer means: each check's verdict, and how a failed proof is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recipectl.errors import EngineError, PinError
from recipectl.images import proof, prover
from recipectl.images.overlay_files import load
from recipectl.images.port import Finished
from recipectl.images.prover import MARK
from recipectl.settings import Settings

from .conftest import ADDED, FIRST_NEW, sha, write_overlay

FILES = {"toy/first.py": FIRST_NEW.encode(), "toy/added.py": ADDED.encode()}
SEEN = {f"/opt/site/{p}": {"sha256": sha(d)} for p, d in FILES.items()}


@pytest.fixture
def judged(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)

    def run(checks: list[dict[str, Any]], answers: list[Any], files: Any = None, **changes: Any) -> list[proof.Proven]:
        write_overlay(tmp_path, checks=checks, **changes)
        report = {"python": "3.12", "files": files or SEEN, "checks": [{"seen": a, "seconds": 1.5} for a in answers]}
        toy = load(settings, "toy-overlay")
        return proof.judge(toy, FILES, Finished(0, f"noise\n{MARK}{json.dumps(report)}\n"))

    return run


ARCH = [{"kind": "arch", "capabilities": ["10.3"]}]


@pytest.mark.parametrize(
    ("arch", "ok", "says"),
    [
        (["sm_90", "sm_100", "sm_120"], True, "covers 10.3"),
        (["sm_90", "sm_100a"], False, "nothing runs on 10.3"),
        (["sm_90", "compute_90"], True, "covers 10.3"),
        ([], False, "no CUDA code at all"),
    ],
)
def test_arch(judged, arch: list[str], ok: bool, says: str) -> None:  # type: ignore[no-untyped-def]
    last = judged(ARCH, [arch], families=["sm100"])[-1]
    assert (last.ok, says in last.seen) == (ok, True)


@pytest.mark.parametrize(
    ("seen", "ok"), [("0.32.0", True), ("0.32.0+cu130", True), ("0.32.1", False), ("not installed", False)]
)
def test_version(judged, seen: str, ok: bool) -> None:  # type: ignore[no-untyped-def]
    assert judged([{"kind": "version", "distribution": "vllm", "version": "0.32.0"}], [seen])[-1].ok is ok


def test_geometry_is_held_against_our_own_arithmetic(judged) -> None:  # type: ignore[no-untyped-def]
    """TP 1, K 7: 3 x 8192 x 10 x 2 + 64 x 128 x 128 x 4 = 4,685,824 B a state."""
    case = {
        "tensor": 1,
        "k": 7,
        "linear_heads": 64,
        "linear_head_dim": 128,
        "linear_kernel": 4,
        "latent": 512,
        "kv_bytes": 1,
    }
    checks = [{"kind": "geometry", "cases": [case]}]
    good = judged(checks, [[{"state_page": 4_685_824, "token_bytes": 512}]])[-1]
    assert good.ok and "block 9216, page 4718592" in good.seen
    assert not judged(checks, [[{"state_page": 4_685_825, "token_bytes": 512}]])[-1].ok


def test_a_file_with_other_bytes_is_a_pin_error(judged, settings: Settings) -> None:  # type: ignore[no-untyped-def]
    bad = {**SEEN, "/opt/site/toy/added.py": {"sha256": "f" * 64}}
    answers = judged([], [], bad)
    error = proof.refuse(load(settings, "toy-overlay"), answers)
    assert isinstance(error, PinError) and "file toy/added.py" in error.details[0]


def test_a_container_that_says_nothing(settings: Settings, judged) -> None:  # type: ignore[no-untyped-def]
    judged([], [])
    with pytest.raises(EngineError, match="died") as caught:
        proof.judge(load(settings, "toy-overlay"), FILES, Finished(139, "Segmentation fault\n"))
    assert (caught.value.seen, caught.value.details) == ("exit code 139", ("Segmentation fault",))


def test_the_prover_runs_alone(tmp_path: Path) -> None:
    """Its text, as a container gets it: only the standard library, a check that raises is an answer."""
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text("x = 1\n")
    bad.write_text("def (:\n")
    spec = {"files": [str(good), str(bad), str(tmp_path / "none.py")],
            "checks": [{"kind": "script", "text": "print('hi')"}, {"kind": "registered", "architectures": ["X"]},
                       {"kind": "version", "distribution": "no-such-thing"}], "timeout_s": 60}  # fmt: skip
    text = Path(prover.__file__).read_text()
    whole = json.dumps(spec)
    argv = [sys.executable, "-I", "-S", "-B", "-c", text, whole[:50], whole[50:]]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout.split(MARK)[1])
    assert report["files"][str(good)] == {"sha256": sha("x = 1\n")}
    assert "does not compile" in report["files"][str(bad)]["error"]
    assert report["files"][str(tmp_path / "none.py")] == {"error": "No such file or directory"}
    assert report["checks"][0]["seen"]["stdout"] == "hi\n"
    assert report["checks"][1]["error"].startswith("ModuleNotFoundError")
    assert report["checks"][2]["seen"] == "not installed"


def test_the_prover_ends_by_itself_if_nobody_ends_it() -> None:
    spec = {"files": [], "checks": [{"kind": "script", "text": "import time; time.sleep(60)"}], "timeout_s": -29.5}
    argv = [sys.executable, "-I", "-S", "-B", "-c", Path(prover.__file__).read_text(), json.dumps(spec)]
    assert subprocess.run(argv, capture_output=True, timeout=20, check=False).returncode == 124
