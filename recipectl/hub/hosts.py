"""Copy a verified model folder to another machine over ssh, and have it verified there from the same lock."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from recipectl.errors import HubError, PinError, UsageError
from recipectl.hub import far
from recipectl.hub.store import safe_name
from recipectl.lockfile import LockedFile, LockedModel
from recipectl.transfers import Transfers

BLOCK = 1 << 20
# Never a prompt: a password question that nobody sees would hang the pull.
SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15")


@dataclass(frozen=True)
class Host:
    """A machine that ssh reaches: `name`, `user@name` or `ssh://user@name:port`."""

    address: str
    port: int | None = None

    def command(self, remote: str) -> list[str]:
        """The ssh call that runs `remote` there."""
        port = ["-p", str(self.port)] if self.port else []
        return [*SSH, *port, "--", self.address, remote]


@dataclass(frozen=True)
class Folders:
    """Where a model goes; the same absolute paths on every machine, as a deployment over several hosts mounts them."""

    model: Path
    cache: Path


@dataclass(frozen=True)
class Copied:
    """What a copy did on one host."""

    host: str
    sent: int
    files: int
    bytes: int


def parse_host(text: str) -> Host:
    """One entry of --hosts. UsageError for what ssh cannot reach."""
    found = re.fullmatch(r"(?:ssh://)?((?:[\w.\-]+@)?[\w.][\w.\-]*)(?::(\d{1,5}))?", text.strip())
    if not found:
        raise UsageError(
            "this is no host that ssh reaches", seen=text, expected="name, user@name or ssh://user@name:port"
        )
    return Host(found[1], int(found[2]) if found[2] else None)


def parse_hosts(text: str) -> list[Host]:
    """The value of --hosts, each host once. UsageError for what ssh cannot reach, and for none at all."""
    hosts = list(dict.fromkeys(parse_host(part) for part in text.split(",") if part.strip()))
    if not hosts:
        raise UsageError("--hosts names no host", seen=repr(text), expected="name, user@name or ssh://user@name:port")
    return hosts


class Copier:
    """One copy of one model to one host. `stop` ends it."""

    def __init__(self, host: Host, folders: Folders, locked: LockedModel, stop: threading.Event) -> None:
        self._host, self._folders, self._locked, self._stop = host, folders, locked, stop

    def copy(self, display: Transfers) -> Copied:
        """Send what is missing or wrong there; return only once the far side has verified the whole folder.

        HubError if the host cannot be reached or fails, PinError if it still differs at the end.
        """
        if shutil.which("ssh") is None:
            raise HubError("there is no ssh client on this machine", next_step="install openssh-client")
        script = Path(far.__file__).read_bytes()
        # Two quotes and nothing that a login shell (fish included) would read otherwise.
        remote = f'python3 -c "import sys;exec(sys.stdin.buffer.read({len(script)}))"'
        with tempfile.TemporaryFile() as errors:
            pipe = subprocess.PIPE
            process = subprocess.Popen(self._host.command(remote), stdin=pipe, stdout=pipe, stderr=errors)
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(script)
                return self._converse(process.stdin, process.stdout, display)
            except (OSError, ValueError) as err:
                process.kill()
                process.wait()
                raise self._failed(errors, err) from err
            finally:
                process.kill()
                process.wait()

    def _converse(self, to: IO[bytes], back: IO[bytes], display: Transfers) -> Copied:
        self._say(to, self._order())
        files, sent = {f.path: f for f in self._locked.files}, 0
        for need in self._answer(back)["needs"]:
            file = files[need["path"]]
            sent += self._send(file, need["have"], to, display)
            answer = self._answer(back)
            if "bad" in answer:
                raise PinError(
                    "a file arrived with other bytes than were sent", on=f"{file.path} on {self._host.address}",
                    seen=f"sha256 {answer['sha256']}", expected=f"sha256 {file.sha256}",
                    next_step="pull again; if it happens twice, check that machine's memory and disk",
                )  # fmt: skip
        last = self._answer(back)
        if last["problems"]:
            raise PinError(
                "the copy is not what the lock names", on=f"{self._folders.model} on {self._host.address}",
                details=last["problems"][:20], next_step="pull again; what is right there is kept",
            )  # fmt: skip
        return Copied(self._host.address, sent, int(last["files"]), int(last["bytes"]))

    def _order(self) -> dict[str, Any]:
        cache, folder = self._folders.cache, self._folders.model
        return {
            "folder": str(folder),
            "parts": str(cache / "partial"),
            "aside": str(cache / "quarantine" / folder.parent.name / folder.name),
            "receipts": str(cache / "copied-hashes.json"),
            "files": [{"path": safe_name(f.path), "size": f.size, "sha256": f.sha256} for f in self._locked.files],
        }

    def _send(self, file: LockedFile, start: int, to: IO[bytes], display: Transfers) -> int:
        self._say(to, {"path": file.path, "from": start})
        with (
            (self._folders.model / file.path).open("rb") as source,
            display.file(f"{self._host.address}: {file.path}", file.size) as shown,
        ):
            source.seek(start)
            shown.advance(start)
            while block := source.read(BLOCK):
                if self._stop.is_set():
                    raise OSError("stopped")
                to.write(block)
                shown.advance(len(block))
        to.flush()
        return file.size - start

    def _say(self, to: IO[bytes], value: object) -> None:
        to.write(json.dumps(value).encode() + b"\n")
        to.flush()

    def _answer(self, back: IO[bytes]) -> dict[str, Any]:
        line = back.readline()
        if not line:
            raise OSError("the connection ended")
        answer = json.loads(line)
        if "error" in answer:
            raise OSError(answer["error"])
        return dict(answer)

    def _failed(self, errors: IO[bytes], err: BaseException) -> HubError:
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip().splitlines()[-4:]
        return HubError(
            f"the copy to {self._host.address} failed", on=str(self._folders.model), seen=err, details=said,
            next_step=f"check `ssh {self._host.address} python3 --version` and that the folder can be written there; "
            "then pull again: what has arrived is kept",
        )  # fmt: skip
