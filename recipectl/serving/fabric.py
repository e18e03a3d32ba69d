"""Several machines: what each says about itself, whether they agree, and what each rank must be told. PURE.

The facts come from `probe_script`, run by python3 on each host. Wrong defaults for the network are the top complaint of
two-node users (MiaAI#179): what is not pinned and not the only choice is refused with the choices, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recipectl.errors import PinError, UsageError
from recipectl.serving.hosts import Host

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Nic:
    """One network interface with an IPv4 address."""

    name: str
    address: str
    up: bool


@dataclass(frozen=True)
class Hca:
    """One RDMA device: its interface, whether its port is active, and the index of its RoCE v2 IPv4 GID."""

    name: str
    interface: str | None
    active: bool
    gid_index: int | None


@dataclass(frozen=True)
class Facts:
    """What a host said. `models` are tree digests by role; `problems` are files that differ; sizes are in bytes,
    `disk_free` where its models lie."""

    nics: tuple[Nic, ...] = ()
    hcas: tuple[Hca, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    driver: str | None = None
    clock: float | None = None
    memory_total: int = 0
    memory_available: int = 0
    page_cache: int = 0
    disk_free: int | None = None
    open_files: int = -1
    memlock: int = -1


@dataclass(frozen=True)
class Fabric:
    """What the ranks are told: where the head is, and the environment of each rank."""

    master: str = LOOPBACK
    env: tuple[Mapping[str, str], ...] = ()
    shown: tuple[str, ...] = ()


LOCAL = Fabric()


def facts(data: Mapping[str, Any]) -> Facts:
    """The probe's JSON as facts. KeyError or TypeError if it is none."""
    return Facts(
        nics=tuple(Nic(**n) for n in data["nics"]), hcas=tuple(Hca(**h) for h in data["hcas"]),
        models=dict(data["models"]), problems=tuple(data["problems"]),
        **{k: data[k] for k in ("driver", "clock", "memory_total", "memory_available", "page_cache", "disk_free",
                                "open_files", "memlock")},
    )  # fmt: skip


def join(hosts: Sequence[Host], found: Sequence[Facts], wanted: Sequence[str]) -> Fabric:
    """Addresses and variables of every rank. UsageError lists the choices where there is more than one.

    `wanted` names the lane's per-rank variables.
    """
    if len(hosts) == 1:
        return LOCAL
    nics = [_nic(h, f) for h, f in zip(hosts, found, strict=True)]
    env, shown = [], []
    for host, fact, nic in zip(hosts, found, nics, strict=True):
        hca = _hca(host, fact, nic) if any(w.startswith("NCCL_IB") for w in wanted) else None
        known = {
            "VLLM_HOST_IP": nic.address, "SGLANG_HOST_IP": nic.address, "NCCL_SOCKET_IFNAME": nic.name,
            "GLOO_SOCKET_IFNAME": nic.name, "TP_SOCKET_IFNAME": nic.name, "MN_IF_NAME": nic.name,
            "NCCL_IB_HCA": hca.name if hca else None,
            "NCCL_IB_ADDR_RANGE": f"{nic.address}/32",  # which of this host's own GIDs: the one of this address
            "NCCL_IB_GID_INDEX": host.gid_index or (str(hca.gid_index) if hca and hca.gid_index is not None else None),
        }  # fmt: skip
        if strange := [w for w in wanted if w not in known]:
            raise UsageError(f"no fact about a host gives {', '.join(strange)}", on="per_rank_env",
                             expected=", ".join(known), next_step="write the value under env of the lane")  # fmt: skip
        unknown = [w for w in wanted if known[w] is None]
        if unknown:
            raise UsageError(f"{', '.join(unknown)} cannot be found out on {host.name}", seen=_seen(fact),
                             next_step=f"pin it: --hosts ...,{host.name}#hca=...,gid_index=...")  # fmt: skip
        env.append({w: str(known[w]) for w in (wanted or ("VLLM_HOST_IP", "GLOO_SOCKET_IFNAME"))})
        shown.append(f"{host.name}: " + ", ".join(f"{k}={v}" for k, v in env[-1].items()))
    return Fabric(nics[0].address, tuple(env), tuple(shown))


def _nic(host: Host, fact: Facts) -> Nic:
    up = [n for n in fact.nics if n.up and n.name != "lo"]
    pinned = [n for n in up if n.address == host.address or n.name == host.interface]
    if host.address or host.interface:
        if not pinned:
            raise UsageError(f"{host.name} has no such interface that is up", seen=_seen(fact),
                             expected=host.address or host.interface)  # fmt: skip
        return pinned[0]
    if len(up) != 1:
        raise UsageError(f"which interface of {host.name} joins the machines?", seen=_seen(fact),
                         next_step=f"pin it: --hosts ...,{host.name}#interface=NAME")  # fmt: skip
    return up[0]


def _hca(host: Host, fact: Facts, nic: Nic) -> Hca | None:
    if host.hca:
        return next((h for h in fact.hcas if h.name == host.hca and h.active), None)
    return next((h for h in fact.hcas if h.interface == nic.name and h.active), None)


def _seen(fact: Facts) -> str:
    nics = ", ".join(f"{n.name} {n.address} {'up' if n.up else 'DOWN'}" for n in fact.nics) or "no interface"
    hcas = ", ".join(f"{h.name} on {h.interface} {'active' if h.active else 'DOWN'}" for h in fact.hcas)
    return nics + (f"; {hcas}" if hcas else "")


def parity(hosts: Sequence[Host], found: Sequence[Facts], trees: Mapping[str, str]) -> list[str]:
    """Why these machines must not form one server; empty if they may. A corrupted worker gives wrong tokens (field
    report 8). That they have one image is required before: a container of it on each has found these facts."""
    out = []
    for host, fact in zip(hosts, found, strict=True):
        out += [f"{host.name}: {p}" for p in fact.problems]
        for role, tree in trees.items():
            if not fact.problems and fact.models.get(role) != tree:
                out.append(f"{host.name}: the {role} is {fact.models.get(role)}, the lock says {tree}")
    drivers = {f.driver for f in found}
    if len(drivers) > 1:
        out.append("drivers differ: " + ", ".join(f"{h.name} {f.driver}" for h, f in zip(hosts, found, strict=True)))
    return out


def require_parity(problems: Sequence[str]) -> None:
    """PinError with everything that differs."""
    if problems:
        raise PinError("the machines differ, so they must not form one server", details=list(problems)[:30],
                       next_step="recipectl pull --hosts copies the models")  # fmt: skip
