"""What this machine says about itself: memory, disk, limits, links, kernel messages. Reads, never writes."""

from __future__ import annotations

import resource
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

from recipectl.serving import far_probe
from recipectl.serving.fabric import Hca, Nic


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
    memory = psutil.virtual_memory()
    return Machine(
        memory_total=memory.total, memory_available=memory.available, page_cache=int(getattr(memory, "cached", 0)),
        disk_free={str(f): shutil.disk_usage(_existing(f)).free for f in folders},
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        memlock=resource.getrlimit(resource.RLIMIT_MEMLOCK)[1],
        nics=tuple(Nic(**n) for n in far_probe.nics()), hcas=tuple(Hca(**h) for h in far_probe.hcas()),
        kernel=_kernel(), toolkit=any(shutil.which(t) for t in ("nvidia-container-runtime", "nvidia-ctk")),
        removes_ipc=_removes_ipc(),
    )  # fmt: skip


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder


def _kernel() -> tuple[str, ...] | None:
    try:
        done = subprocess.run(["dmesg", "--level", "emerg,alert,crit,err,warn"], capture_output=True, text=True,
                              timeout=5, check=True)  # fmt: skip
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
