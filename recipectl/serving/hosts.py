"""Hosts: what --hosts and the settings may name, and which Docker engine that is. PURE apart from reading contexts.

`local`, `unix:///path`, `ssh://user@host[:port]` or the name of a docker context; after a `#`, facts that cannot be
guessed: `ssh://spark2#address=192.168.177.12,interface=enp1s0f1np1`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from recipectl.errors import UsageError

FACTS = ("address", "interface", "hca", "gid_index", "gpu")
# What NVML and `nvidia-smi -L` call a GPU, or a slice of one; an index moves between boots.
_UUID = re.compile(r"(GPU|MIG)-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True)
class Host:
    """One machine. `engine` is a Docker host URL (None: this machine's default); the rest pins its fabric,
    `gpu` the one GPU that its rank gets, by UUID."""

    name: str
    engine: str | None
    address: str | None = None
    interface: str | None = None
    hca: str | None = None
    gid_index: str | None = None
    gpu: str | None = None

    @property
    def here(self) -> bool:
        """Whether its engine is reached without a network."""
        return self.engine is None or self.engine.startswith("unix://")


def parse(text: str, contexts: Path | None = None) -> Host:
    """One host. UsageError for what names none."""
    name, _, facts = text.strip().partition("#")
    values = dict(_fact(text, f) for f in facts.split(",") if f)
    if name in ("", "local"):
        return Host("local", None, **values)
    if name.startswith(("unix://", "ssh://", "tcp://")):
        if name.startswith("tcp://"):
            raise UsageError("a Docker engine on a bare TCP port is open to everybody on the network", seen=name,
                             expected="ssh://user@host", next_step="use ssh")  # fmt: skip
        if urlsplit(name).password:
            raise UsageError("no passwords in a host", seen=name.split(":")[0] + "://...", next_step="use an ssh key")
        return Host(name, name, **values)
    return Host(name, _context(name, contexts), **values)


def parse_all(given: str | None, settings_hosts: Sequence[str], nodes: int, contexts: Path | None = None) -> list[Host]:
    """The hosts of a lane, head first: --hosts, else the settings, else this machine for a lane of one node."""
    named = [h for h in given.split(";" if ";" in given else ",") if h] if given else list(settings_hosts[:nodes])
    if not named and nodes == 1:
        named = ["local"]
    hosts = [parse(h, contexts) for h in _joined(named)]
    if len(hosts) != nodes:
        raise UsageError(f"the lane runs on {nodes} machine(s)", seen=f"{len(hosts)} host(s)",
                         next_step="name them with --hosts HEAD,WORKER or in the settings")  # fmt: skip
    if len({h.name for h in hosts}) != len(hosts):
        raise UsageError("a host is named twice", seen=", ".join(h.name for h in hosts))
    return hosts


def _joined(parts: Sequence[str]) -> list[str]:
    """Commas separate hosts and facts alike: a part such as `interface=eth0` belongs to the host before it."""
    out: list[str] = []
    for part in parts:
        if out and part.partition("=")[0] in FACTS:
            out[-1] += "," + part
        else:
            out.append(part)
    return out


def _fact(text: str, fact: str) -> tuple[str, str]:
    key, sign, value = fact.partition("=")
    if key not in FACTS or not sign or not value:
        raise UsageError("unknown fact about a host", on=text, seen=fact, expected=", ".join(f"{f}=..." for f in FACTS))
    if key == "gpu" and not _UUID.fullmatch(value):
        raise UsageError("a GPU is named by its UUID", on=text, seen=fact, expected="gpu=GPU-...",
                         next_step="nvidia-smi -L on that host lists them")  # fmt: skip
    return key, value


def _context(name: str, contexts: Path | None) -> str:
    folder = contexts or Path.home() / ".docker" / "contexts"
    meta = folder / "meta" / hashlib.sha256(name.encode()).hexdigest() / "meta.json"
    try:
        host = json.loads(meta.read_text())["Endpoints"]["docker"]["Host"]
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise UsageError("no such host", seen=name, expected="local, unix:///path, ssh://user@host or a docker context",
                         next_step="docker context ls") from err  # fmt: skip
    return str(host)
