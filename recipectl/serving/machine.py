"""What this machine says about itself: memory, disk, limits, links, kernel messages. Reads, never writes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from recipectl.serving import far_probe
from recipectl.serving.fabric import Facts, Hca, Nic


@dataclass(frozen=True)
class Machine:
    """Bytes, counts and texts as read. `kernel` is None where the kernel's messages may not be read."""

    memory_total: int
    memory_available: int
    page_cache: int
    disk_free: dict[str, int]
    open_files: int
    memlock: int
    nics: tuple[Nic, ...]
    hcas: tuple[Hca, ...]
    kernel: tuple[str, ...] | None
    toolkit: bool
    removes_ipc: bool


def look(folders: tuple[Path, ...]) -> Machine:
    """Read everything; takes some 50 ms."""
    return Machine(
        **far_probe.memory(), **far_probe.limits(),
        disk_free={str(f): shutil.disk_usage(_existing(f)).free for f in folders},
        nics=tuple(Nic(**n) for n in far_probe.nics()), hcas=tuple(Hca(**h) for h in far_probe.hcas()),
        kernel=kernel_messages(), toolkit=any(shutil.which(t) for t in ("nvidia-container-runtime", "nvidia-ctk")),
        removes_ipc=_removes_ipc(),
    )  # fmt: skip


def of(facts: Facts, folder: str, kernel: tuple[str, ...] | None) -> Machine:
    """A far machine from what its probe said; `folder` is where its models lie. Its toolkit and its logind cannot be
    seen from a container: nothing is said about them."""
    return Machine(
        memory_total=facts.memory_total, memory_available=facts.memory_available, page_cache=facts.page_cache,
        disk_free={} if facts.disk_free is None else {folder: facts.disk_free}, open_files=facts.open_files,
        memlock=facts.memlock, nics=facts.nics, hcas=facts.hcas, kernel=kernel, toolkit=True, removes_ipc=False,
    )  # fmt: skip


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder


def kernel_messages(through: Sequence[str] = ()) -> tuple[str, ...] | None:
    """The kernel's warnings and worse, here or `through` a command that runs one elsewhere; None: not readable."""
    try:
        done = subprocess.run([*through, "dmesg", "--level", "emerg,alert,crit,err,warn"], capture_output=True,
                              text=True, timeout=15, check=True)  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return tuple(done.stdout.splitlines())


def _removes_ipc() -> bool:
    """Whether logind removes a user's shared memory at logout, which kills a server that shares the host's ipc."""
    try:
        lines = Path("/etc/systemd/logind.conf").read_text().splitlines()
    except OSError:
        return False
    set_to = [line.partition("=")[2].strip() for line in lines if line.strip().startswith("RemoveIPC")]
    return (set_to[-1] if set_to else "yes") == "yes"
