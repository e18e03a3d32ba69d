"""Whether a machine can run a lane: each row OK, WARN or FAIL with the fix. PURE."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from recipectl.gpu import Gpu
from recipectl.recipe.families import Family
from recipectl.recipe.lane import Lane
from recipectl.serving.machine import Machine
from recipectl.serving.memory import DEFAULT_FLOOR_GIB

GIB = 1 << 30
# Kernel lines after which NVIDIA calls make it worse (catid's preflight on GB300). NV_ERR_NO_MEMORY is not among them:
# it appears on healthy hosts (vllm#56824).
_STOP = re.compile(
    r"kmemsysRemoveAllAtsPeers|PMA usage is non-zero|NV_ERR_INVALID_STATE|RmInitAdapter failed|NVRM: Xid|\bBUG: |Oops: "
    r"|soft lockup"
)
FILES_WANTED = 65536


@dataclass(frozen=True)
class Row:
    """One thing looked at."""

    what: str
    verdict: Literal["OK", "WARN", "FAIL"]
    seen: str
    fix: str | None = None


def cheap(machine: Machine, lane: Lane, family: Family) -> list[Row]:
    """What `serve` looks at each time: it costs nothing and has saved hosts."""
    return [kernel(machine, lane), memory(machine, lane, family), limits(machine, lane)]


def kernel(machine: Machine, lane: Lane) -> Row:
    """Messages after which a GPU must be left alone."""
    if machine.kernel is None:
        return Row("kernel messages", "WARN", "may not be read", "run doctor as root, or `journalctl -k`")
    bad = [line for line in machine.kernel if _STOP.search(line)]
    if not bad:
        return Row("kernel messages", "OK", "none that mean stop")
    verdict: Literal["WARN", "FAIL"] = "FAIL" if _on_gpu(lane) else "WARN"
    return Row("kernel messages", verdict, bad[-1][:160], "issue no NVIDIA calls; power-cycle the host")


def _on_gpu(lane: Lane) -> bool:
    return lane.engine.name != "vllm-cpu" and lane.container.gpus != "none"


def memory(machine: Machine, lane: Lane, family: Family) -> Row:
    """Memory left; on unified memory the page cache is the weights' rival."""
    free = f"{machine.memory_available / GIB:.1f} of {machine.memory_total / GIB:.1f} GiB available"
    floor = lane.gates.memory_floor_gib
    floor = (DEFAULT_FLOOR_GIB if family.unified_memory else 0.0) if floor is None else floor
    if machine.memory_available / GIB < floor:
        return Row("memory", "FAIL", free, f"free memory: the boot is aborted below {floor:g} GiB")
    if family.unified_memory and machine.page_cache > machine.memory_total // 4:
        return Row("memory", "WARN", f"{free}, page cache {machine.page_cache / GIB:.1f} GiB",
                   "sync; echo 3 > /proc/sys/vm/drop_caches (as root: without it nothing happens)")  # fmt: skip
    return Row("memory", "OK", free)


def limits(machine: Machine, lane: Lane) -> Row:
    """Open files for connections, locked memory for RDMA."""
    if lane.container.memlock_unlimited and lane.engine.runtime == "process" and machine.memlock != -1:
        return Row("limits", "FAIL", f"memlock {machine.memlock}", "ulimit -l unlimited")
    if 0 <= machine.open_files < FILES_WANTED:
        return Row("limits", "WARN", f"{machine.open_files} open files", f"ulimit -n {FILES_WANTED}")
    return Row("limits", "OK", f"open files {machine.open_files}")


def disk(machine: Machine, need: int) -> list[Row]:
    """Room for what is still to be fetched (bytes), and for logs."""
    out = []
    for folder, free in machine.disk_free.items():
        enough = free > need + GIB
        out.append(Row(f"disk of {folder}", "OK" if enough else "FAIL", f"{free / GIB:.1f} GiB free",
                       None if enough else f"{(need + GIB) / GIB:.1f} GiB are needed there"))  # fmt: skip
    return out


def gpu(found: Sequence[Gpu], lane: Lane, family: Family, toolkit: bool) -> list[Row]:
    """The GPU of the lane's family, its driver, and the way into a container."""
    if not _on_gpu(lane):
        return [Row("GPU", "OK", "the lane needs none")]
    ours = [g for g in found if g.family == family]
    seen = (
        ", ".join(f"{g.name} {g.capability[0]}.{g.capability[1]} driver {g.driver}" for g in found) or "no NVIDIA GPU"
    )
    rows = [Row("GPU", "OK" if ours else "FAIL", seen, None if ours else f"the lane is for {family.machines}")]
    if lane.engine.runtime == "docker":
        rows.append(
            Row(
                "GPU toolkit",
                "OK" if toolkit else "FAIL",
                "found" if toolkit else "not found",
                None if toolkit else "install nvidia-container-toolkit, then `nvidia-ctk runtime configure`",
            )
        )
    return rows


def fabric(machine: Machine, lane: Lane) -> list[Row]:
    """Links of a lane on several machines. Two of four ports of a GB10 are down by default."""
    if lane.nodes == 1:
        return []
    up = [f"{n.name} {n.address}" for n in machine.nics if n.up and n.name != "lo"]
    rows = [
        Row("network", "OK" if up else "FAIL", ", ".join(up) or "no interface is up", None if up else "ip link set")
    ]
    if "/dev/infiniband" in lane.container.devices:
        live = [f"{h.name} on {h.interface}, GID {h.gid_index}" for h in machine.hcas if h.active]
        rows.append(Row("RDMA", "OK" if live else "FAIL", ", ".join(live) or "no active port",
                        None if live else "connect the cable, or take the HCA that is up: ibdev2netdev"))  # fmt: skip
    return rows


def ipc(machine: Machine, lane: Lane) -> list[Row]:
    """logind removes a user's ipc at logout and with it a server that shares the host's (sparkrun#285)."""
    if lane.container.ipc != "host" or not machine.removes_ipc:
        return []
    return [Row("ipc at logout", "WARN", "logind removes it", "RemoveIPC=no in /etc/systemd/logind.conf")]


def clocks(skews: Sequence[tuple[str, float]]) -> list[Row]:
    """Clocks of several machines (seconds against this one): receipts and logs are read side by side."""
    fix = "chronyc makestep"
    return [
        Row(f"clock of {host}", "OK" if abs(skew) < 2 else "WARN", f"{skew:+.1f} s", None if abs(skew) < 2 else fix)
        for host, skew in skews
    ]
