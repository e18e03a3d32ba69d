"""One rank as a container: mounts, network, limits, labels; and the `docker run` line that would do the same. PURE.

Safe by default, and more only as the lane says: no capabilities, no privilege, no restarts, private ipc, loopback
publishing. Models are read-only; compile caches are writable and keyed by the image, since a cold one costs 15 to 75
minutes and one of another build is poison.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recipectl.images.port import ContainerSpec, Mount
from recipectl.recipe.lane import Lane

LABEL = "io.recipectl."
DEPLOYMENT = LABEL + "deployment"
MODELS, ASSETS = "/models", "/assets"
ANYWHERE = "0.0.0.0"


@dataclass(frozen=True)
class Place:
    """What a container needs from its machine. `models` are folders there by role, `caches` is the folder that keeps
    compile caches, `assets` are files there by their name in the recipe, `gpus` are UUIDs or ("all",)."""

    image: str
    image_key: str
    models: Mapping[str, str]
    caches: str
    assets: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[str, ...] = ()


def seen_models(lane_roles: Mapping[str, object]) -> dict[str, str]:
    """Where the engine finds each model inside its container."""
    return {role: f"{MODELS}/{role}" for role in lane_roles}


def asset_args(lane: Lane) -> dict[str, str]:
    """The engine arguments that take an asset, with its place inside the container."""
    return {a.argument: f"{ASSETS}/{_flat(a.path)}" for a in lane.assets if a.argument}


def listen_address(lane: Lane, address: str) -> str:
    """What the engine binds inside: everything in a network of its own (published as asked), else the address."""
    return ANYWHERE if lane.container.network == "bridge" else address


def spec(
    deployment: str, rank: int, lane: Lane, place: Place, argv: tuple[str, ...], env: Mapping[str, str],
    published: tuple[str, int] | None, labels: Mapping[str, str],
) -> ContainerSpec:  # fmt: skip
    """The container of one rank. `published` is (address, port) of the API, for the head only."""
    want = lane.container
    mounts = [Mount(source, f"{MODELS}/{role}") for role, source in sorted(place.models.items())]
    mounts += [Mount(f"{place.caches}/{place.image_key}/{c.name}", c.path, read_only=False) for c in lane.caches]
    mounts += [Mount(source, f"{ASSETS}/{_flat(name)}") for name, source in sorted(place.assets.items())]
    bridge = want.network == "bridge"
    return ContainerSpec(
        name=f"recipectl-{deployment}-r{rank}", image=place.image, entrypoint=argv[:1], command=argv[1:], env=dict(env),
        labels={DEPLOYMENT: deployment, LABEL + "rank": str(rank), **labels}, mounts=tuple(mounts),
        network=want.network, ports={published[1]: published} if bridge and published else {}, ipc=want.ipc,
        shm_size=want.shm_size, memory=want.memory, memlock_unlimited=want.memlock_unlimited,
        cap_add=tuple(want.cap_add), devices=tuple(want.devices), gpus=place.gpus,
    )  # fmt: skip


def _flat(path: str) -> str:
    return re.sub(r"[^\w.\-]", "_", path)


def docker_run(s: ContainerSpec) -> list[str]:
    """The `docker run` words that start the same container, to read and to compare; recipectl calls the API."""
    out = ["docker", "run", "--detach", "--init", "--name", s.name, "--restart", "no", "--cap-drop", "ALL",
           "--security-opt", "no-new-privileges:true", "--network", s.network]  # fmt: skip
    if s.ipc == "host":
        out += ["--ipc", "host"]
    for flag, value in (
        ("--shm-size", s.shm_size),
        ("--memory", s.memory),
        ("--entrypoint", (s.entrypoint or ("",))[0]),
    ):
        out += [flag, value] if value else []
    out += ["--ulimit", "memlock=-1:-1"] if s.memlock_unlimited else []
    out += [w for c in s.cap_add for w in ("--cap-add", c)]
    out += [w for d in s.devices for w in ("--device", d)]
    if s.gpus:
        out += ["--gpus", "all" if s.gpus == ("all",) else f'"device={",".join(s.gpus)}"']
    out += [w for inner, (address, port) in s.ports.items() for w in ("--publish", f"{address}:{port}:{inner}")]
    out += [w for k, v in sorted(s.env.items()) for w in ("--env", f"{k}={v}")]
    out += [w for k, v in sorted(s.labels.items()) for w in ("--label", f"{k}={v}")]
    out += [w for m in s.mounts for w in ("--volume", f"{m.source}:{m.target}:{'ro' if m.read_only else 'rw'}")]
    return [*out, s.image, *s.command]


def from_json(data: Mapping[str, Any]) -> ContainerSpec:
    """The spec that `dataclasses.asdict` and JSON made of one."""
    values = dict(data)
    values["mounts"] = tuple(Mount(**m) for m in values["mounts"])
    values["ports"] = {int(k): (v[0], v[1]) for k, v in values["ports"].items()}
    for key in ("command", "cap_add", "devices", "gpus"):
        values[key] = tuple(values[key])
    values["entrypoint"] = None if values["entrypoint"] is None else tuple(values["entrypoint"])
    return ContainerSpec(**values)
