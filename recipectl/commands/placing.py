"""Where a container plan runs: hosts, engines, the image as locked, mounts, GPUs. Reads, changes nothing."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from recipectl.commands.context import Chosen, require_lock
from recipectl.console import Console
from recipectl.errors import EngineError, UsageError
from recipectl.gpu import gpus
from recipectl.hub.store import local_dir
from recipectl.images import verify as images
from recipectl.images.build import plan as build_plan
from recipectl.images.locking import base_of
from recipectl.images.overlay_files import load
from recipectl.images.port import ContainerEngine, ImageInfo
from recipectl.serving import helper, runtimes
from recipectl.serving.containers import Place
from recipectl.serving.fabric import LOCAL, Fabric, join, parity, require_parity
from recipectl.serving.hosts import Host, parse_all
from recipectl.settings import Settings

KEY_LENGTH = 12


@dataclass(frozen=True)
class OnHost:
    """One host with its engine, the image that it has, and the place of its rank."""

    host: Host
    engine: ContainerEngine
    image: ImageInfo
    place: Place


@dataclass(frozen=True)
class Where:
    """Where a plan runs. `places` is empty with the runtime `process`; `fabric` is what each rank learns of its
    network; `expose` is the address to listen on, None for loopback."""

    port: int | None = None
    places: tuple[OnHost, ...] = ()
    fabric: Fabric = LOCAL
    expose: str | None = None


def where_of(
    settings: Settings, console: Console, chosen: Chosen, models: Mapping[str, Path], *, port: int | None,
    hosts: str | None, expose: str | None,
) -> Where:  # fmt: skip
    """Find out where a lane would run, and hold the machines against each other. What was found out is shown."""
    if expose is not None:
        _require_address(expose)
    if chosen.lane.engine.runtime == "process":
        if hosts not in (None, "local"):
            raise UsageError("the runtime `process` starts engines on this machine only", seen=f"--hosts {hosts}",
                             next_step="give the lane engine.runtime docker")  # fmt: skip
        return Where(port, expose=expose)
    named = parse_all(hosts, settings.hosts, chosen.lane.nodes)
    if not named[0].here and expose is None:
        raise UsageError("the API of a far head listens on that machine's loopback only", seen=named[0].name,
                         next_step="run recipectl on the head, or expose it with --expose ADDR")  # fmt: skip
    found = places(settings, chosen, models, named)
    return Where(port, tuple(found), _joined(settings, console, chosen, found), expose)


def _joined(settings: Settings, console: Console, chosen: Chosen, found: Sequence[OnHost]) -> Fabric:
    """Look at every machine of a lane with several, require parity, and say what each rank is told."""
    if len(found) == 1:
        return LOCAL
    lock = require_lock(chosen.recipe, chosen.lane_name, chosen.lock, chosen.entry)
    models = {str(m.role): m for m in (lock.models[n] for n in (chosen.lane.target, chosen.lane.drafter) if n)}
    facts = []
    for on in found:
        with console.progress(f"looking at {on.host.name}"):
            folders = {role: on.place.models[role] for role in models}
            facts.append(helper.probe(on.engine, on.place.image, folders, models, settings.cache_dir / "hosts"))
    hosts = [on.host for on in found]
    require_parity(parity(hosts, facts, [on.image.layers for on in found], {r: m.tree for r, m in models.items()}))
    joined = join(hosts, facts, chosen.lane.per_rank_env)
    for line in (f"head address {joined.master}", *joined.shown):
        console.notice(f"fabric: {line}")
    return joined


def _require_address(expose: str) -> None:
    try:
        ipaddress.IPv4Address(expose)
    except ValueError as err:
        raise UsageError("--expose takes an IPv4 address of this machine", seen=expose,
                         expected="such as 192.168.1.20, or 0.0.0.0 for all") from err  # fmt: skip


def places(settings: Settings, chosen: Chosen, models: Mapping[str, Path], hosts: Sequence[Host]) -> list[OnHost]:
    """The place of every rank. EngineError for a host out of reach, PinError for an image that is not as locked,
    UsageError for a mount that does not exist here."""
    assets = {a.path: str(local_dir(chosen.entry, a.path)) for a in chosen.lane.assets}
    for path in assets.values():
        if not Path(path).is_file():
            raise UsageError("an asset of the recipe is not there", on=path, next_step="restore it from git")
    out = []
    for host in hosts:
        engine = runtimes.connect(settings, host.name)
        name, image = _image(settings, chosen, engine, host)
        key = (image.layers[-1] if image.layers else image.id).removeprefix("sha256:")[:KEY_LENGTH]
        place = Place(
            image=name, image_key=key, models={r: str(p) for r, p in models.items()},
            caches=str(settings.cache_dir / "compile"), assets=assets, gpus=_gpus(chosen, host),
        )  # fmt: skip
        out.append(OnHost(host, engine, image, place))
    return out


def _image(settings: Settings, chosen: Chosen, engine: ContainerEngine, host: Host) -> tuple[str, ImageInfo]:
    """What to run, by a name that cannot move: the digest that the lock names, or the proven build of the overlay."""
    if name := chosen.lane.engine.overlay:
        overlay = load(settings, name)
        todo = build_plan(overlay, base_of(overlay, chosen.lock), chosen.lane_name)
        built = images.check_built(engine, todo, lambda _line: None)
        if built is None:
            raise EngineError(
                f"the image of overlay {name} is not built on {host.name}", on=todo.tag,
                next_step=f"recipectl build {chosen.recipe.name} --sm {chosen.lane_name.removeprefix('sm')}",
            )  # fmt: skip
        return built.id, built
    need = next(iter(images.needs(chosen.lane, chosen.lock)), None)
    if need is None:
        raise UsageError("the lane names no image", on=chosen.title, next_step="give it engine.image or engine.overlay")
    return need.name, images.check_pulled(engine, need)


def _gpus(chosen: Chosen, host: Host) -> tuple[str, ...]:
    """Devices by UUID: an index moves between boots, and a DGX Station may carry a second GPU of another kind."""
    wanted = chosen.lane.container.gpus
    if wanted == "none" or chosen.family.name == "cpu":
        return ()
    if wanted == "all":
        return ("all",)
    if not host.here:
        raise UsageError("which GPU of a far host is meant cannot be told from here", on=host.name,
                         next_step="run recipectl there, or set container.gpus to all")  # fmt: skip
    ours = [g for g in gpus() if g.family == chosen.family]
    if not ours:
        seen = ", ".join(f"{g.name} ({g.uuid})" for g in gpus()) or "no NVIDIA GPU"
        raise EngineError(f"no GPU of family {chosen.family.name} here", seen=seen, expected=chosen.family.machines,
                          next_step="recipectl doctor")  # fmt: skip
    return (ours[0].uuid,)
