"""Run on a host by python3, in a helper container of the lane's own image: says as JSON what the host is and has.

Standard library only, and nothing of recipectl: its text is what travels. Reads the order as JSON from its first
argument: {"models": {role: {"folder": ..., "files": {path: sha256}}}, "cache": file of remembered hashes or null}.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import resource
import shutil
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

SIOCGIFADDR = 0x8915


def text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def folder(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def nics() -> list[dict[str, Any]]:
    found = []
    for entry in folder(Path("/sys/class/net")):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                raw = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", entry.name.encode()[:15]))
            except OSError:
                continue
        up = text(entry / "operstate") != "down"
        found.append({"name": entry.name, "address": socket.inet_ntoa(raw[20:24]), "up": up})
    return found


def hcas() -> list[dict[str, Any]]:
    found = []
    for entry in folder(Path("/sys/class/infiniband")):
        port, interface, index = entry / "ports" / "1", "", None
        for gid in sorted(folder(port / "gids"), key=lambda p: int(p.name)):
            interface = interface or text(port / "gid_attrs" / "ndevs" / gid.name)
            ipv4 = text(gid).startswith("0000:0000:0000:0000:0000:ffff:")
            if index is None and ipv4 and text(port / "gid_attrs" / "types" / gid.name) == "RoCE v2":
                index = int(gid.name)
        active = "ACTIVE" in text(port / "state")
        found.append({"name": entry.name, "interface": interface or None, "active": active, "gid_index": index})
    return found


def memory() -> dict[str, int]:
    """In bytes; the host's, also inside a container."""
    rows = dict(line.split(":", 1) for line in text(Path("/proc/meminfo")).splitlines())
    names = {"memory_total": "MemTotal", "memory_available": "MemAvailable", "page_cache": "Cached"}
    return {ours: int(rows.get(theirs, "0").split()[0]) * 1024 for ours, theirs in names.items()}


def limits() -> dict[str, int]:
    """Of this process; in a container those that the engine gives to each."""
    return {
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[1],
    }


def sha256(path: Path, known: dict[str, str]) -> str:
    st = path.stat()
    key = ":".join(map(str, (path, st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns)))
    if key not in known:
        digest = hashlib.sha256()
        with path.open("rb", buffering=0) as handle:
            while block := handle.read(4 << 20):
                digest.update(block)
                # Unified-memory hosts need the page cache empty for the weights.
                os.posix_fadvise(handle.fileno(), 0, handle.tell(), os.POSIX_FADV_DONTNEED)
        known[key] = digest.hexdigest()
    return known[key]


def model(base: Path, files: dict[str, str], known: dict[str, str]) -> tuple[str, list[str]]:
    problems, hashes = [], {}
    for name, wanted in sorted(files.items()):
        if not (base / name).is_file():
            problems.append(f"{name} is missing")
            continue
        hashes[name] = sha256(base / name, known)
        if hashes[name] != wanted:
            problems.append(f"{name} has sha256 {hashes[name][:12]}, the lock says {wanted[:12]}")
    lines = "".join(f"{sha}  {name}\n" for name, sha in sorted(hashes.items()))
    return "sha256:" + hashlib.sha256(lines.encode()).hexdigest(), problems


def remembered(path: Path) -> dict[str, str]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def main() -> None:
    order = json.loads(sys.argv[1])
    cache = Path(order["cache"]) if order.get("cache") else None
    known = remembered(cache) if cache else {}
    trees, problems = {}, []
    for role, wanted in order["models"].items():
        trees[role], wrong = model(Path(wanted["folder"]), wanted["files"], known)
        problems += [f"{role}/{p}" for p in wrong]
    if cache:
        new = cache.with_suffix(".new")
        new.write_text(json.dumps(known))
        new.replace(cache)
    words = text(Path("/proc/driver/nvidia/version")).split()
    print(json.dumps({
        "nics": nics(), "hcas": hcas(), "models": trees, "problems": problems,
        "driver": next((w for w in words if w[:1].isdigit() and "." in w), None), "clock": time.time(),
        "disk_free": shutil.disk_usage(cache.parent).free if cache else None, **memory(), **limits(),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
