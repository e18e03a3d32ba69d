"""Where a container plan runs: hosts, engines, the image as locked, mounts, GPUs. Only `bring` changes a host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from recipectl.commands.context import Chosen
from recipectl.errors import EngineError, UsageError
from recipectl.gpu import gpus
from recipectl.hub.store import local_dir
from recipectl.images import verify as images
from recipectl.images.build import plan as build_plan
from recipectl.images.known import Known
from recipectl.images.locking import base_of
from recipectl.images.overlay_files import load
from recipectl.images.port import ContainerEngine, ImageInfo
from recipectl.serving import runtimes
from recipectl.serving.containers import Place
from recipectl.serving.hosts import Host
from recipectl.settings import Settings

KEY_LENGTH = 12


@dataclass(frozen=True)
class Held:
    """The lane's image on one host: by a name that cannot move, and what the engine there says of it."""

    host: Host
    engine: ContainerEngine
    name: str
    image: ImageInfo


@dataclass(frozen=True)
class OnHost:
    """One host with its engine, the image that it has, and the place of its rank."""

    host: Host
    engine: ContainerEngine
    image: ImageInfo
    place: Place


# The head's image, another host, its engine -> the same image there.
Bring = Callable[[Held, Host, ContainerEngine], Held]


def places(
    settings: Settings, chosen: Chosen, models: Mapping[str, Path], hosts: Sequence[Host], bring: Bring
) -> list[OnHost]:
    """The place of every rank. EngineError for a host out of reach, PinError for an image that is not as locked,
    UsageError for a mount that does not exist here. `bring` finds the head's image on another host, or carries it."""
    assets = {a.path: str(local_dir(chosen.entry, a.path)) for a in chosen.lane.assets}
    for path in assets.values():
        if not Path(path).is_file():
            raise UsageError("an asset of the recipe is not there", on=path, next_step="restore it from git")
    out: list[OnHost] = []
    head: Held | None = None
    for host in hosts:
        engine = runtimes.connect(settings, host.name)
        held = held_as_locked(settings, chosen, host, engine) if head is None else bring(head, host, engine)
        head = head or held
        key = held.image.top.removeprefix("sha256:")[:KEY_LENGTH]
        place = Place(
            image=held.name, image_key=key, models={r: str(p) for r, p in models.items()},
            caches=str(settings.cache_dir / "compile"), assets=assets, gpus=gpus_of(chosen, host),
        )  # fmt: skip
        out.append(OnHost(host, engine, held.image, place))
    return out


def held_as_locked(settings: Settings, chosen: Chosen, host: Host, engine: ContainerEngine) -> Held:
    """What to run, by a name that cannot move: the digest that the lock names, or the proven build of the overlay."""
    if name := chosen.lane.engine.overlay:
        overlay = load(settings, name)
        todo = build_plan(overlay, base_of(overlay, chosen.lock), chosen.lane_name)
        built = images.check_built(engine, todo, lambda _line: None, Known(settings.state_dir))
        if built is None:
            raise EngineError(
                f"the image of overlay {name} is not built on {host.name}", on=todo.tag,
                next_step=f"recipectl build {chosen.recipe.name} --sm {chosen.lane_name.removeprefix('sm')}",
            )  # fmt: skip
        return Held(host, engine, built.id, built)
    need = next(iter(images.needs(chosen.lane, chosen.lock)), None)
    if need is None:
        raise UsageError("the lane names no image", on=chosen.title, next_step="give it engine.image or engine.overlay")
    return Held(host, engine, need.name, images.check_pulled(engine, need))


def gpus_of(chosen: Chosen, host: Host) -> tuple[str, ...]:
    """Devices by UUID: an index moves between boots, and a DGX Station may carry a second GPU of another kind."""
    wanted = chosen.lane.container.gpus
    if wanted == "none" or chosen.family.name == "cpu":
        if host.gpu:
            raise UsageError("the lane runs on no GPU", on=chosen.title, seen=f"{host.name}#gpu={host.gpu}")
        return ()
    if host.gpu:
        return (host.gpu,)
    if wanted == "all":
        return ("all",)
    if not host.here:
        raise UsageError("which GPU of a far host is meant cannot be told from here", on=host.name,
                         next_step=f"name it: --hosts ...,{host.name}#gpu=GPU-... (nvidia-smi -L there), or set "
                         "container.gpus to all")  # fmt: skip
    ours = [g for g in gpus() if g.family == chosen.family]
    if not ours:
        seen = ", ".join(f"{g.name} ({g.uuid})" for g in gpus()) or "no NVIDIA GPU"
        raise EngineError(f"no GPU of family {chosen.family.name} here", seen=seen, expected=chosen.family.machines,
                          next_step="recipectl doctor")  # fmt: skip
    return (ours[0].uuid,)
