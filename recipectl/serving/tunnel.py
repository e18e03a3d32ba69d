"""A far Docker engine's socket, brought here by one ssh connection. The system's ssh client: its keys, agent, config.

The docker SDK speaks ssh only through paramiko, a second implementation that reads neither ~/.ssh/config fully nor
hardware keys, and it opens a connection per call. One forward is faster and asks once.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from recipectl.errors import EngineError

DEFAULT_SOCKET = "/var/run/docker.sock"
START_S = 15.0
_OPEN: dict[str, Tunnel] = {}


class Tunnel:
    """One forward of `ssh://[user@]host[:port][/path/of/docker.sock]`. Ends with this process, also when it is killed:
    the far side runs `cat` on our end of a pipe, which every login shell can."""

    def __init__(self, url: str) -> None:
        far = urlsplit(url).path or DEFAULT_SOCKET
        self._url, self._folder = url, Path(tempfile.mkdtemp(prefix="recipectl-ssh-"))
        self.socket = self._folder / "docker.sock"
        self._errors = (self._folder / "stderr").open("w+b")
        command = [*command_on(url, "-o", "ExitOnForwardFailure=yes", "-L", f"{self.socket}:{far}"), "cat"]
        if shutil.which("ssh") is None:
            raise EngineError("there is no ssh client on this machine", on=url, next_step="install openssh-client")
        # A session of its own: Ctrl-C must not cut the connection that the teardown needs.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._errors,
                                         start_new_session=True)  # fmt: skip
        self._wait()

    @property
    def alive(self) -> bool:
        """Whether the connection stands."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the connection and remove its files."""
        self._process.kill()  # on SIGTERM ssh waits for forwarded connections, and the SDK keeps its own open
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._errors.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait(self) -> None:
        deadline = time.monotonic() + START_S
        while not self.socket.exists():
            if not self.alive or time.monotonic() > deadline:
                self._errors.seek(0)
                said = self._errors.read().decode(errors="replace").strip().splitlines()
                self.close()
                raise EngineError(
                    "the host cannot be reached over ssh", on=self._url, seen=said[-1] if said else "no answer in time",
                    next_step=f"try `ssh {urlsplit(self._url).netloc}` by hand: it must ask for nothing",
                )  # fmt: skip
            time.sleep(0.05)


def command_on(url: str, *options: str) -> list[str]:
    """The ssh call that runs the words after it on the host of an ssh URL. It asks for nothing."""
    parts = urlsplit(url)
    host = f"{parts.username}@{parts.hostname}" if parts.username else str(parts.hostname)
    port = ["-p", str(parts.port)] if parts.port else []
    return ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15", *port,
            *options, "--", host]  # fmt: skip


def local_url(url: str) -> str:
    """The `unix://` address at which a far engine answers here. EngineError with ssh's own words if it cannot."""
    found = _OPEN.get(url)
    if found is None or not found.alive:
        if found is not None:
            found.close()
        found = _OPEN[url] = Tunnel(url)
    return f"unix://{found.socket}"


@atexit.register
def _close_all() -> None:
    for tunnel in _OPEN.values():
        tunnel.close()
