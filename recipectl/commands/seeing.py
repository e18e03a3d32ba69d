"""What the engine of a lane sees: the program it is, and where its models and assets lie for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from recipectl.commands.context import Chosen
from recipectl.hub.store import local_dir
from recipectl.serving import containers, runtimes
from recipectl.settings import Settings


def program(settings: Settings, chosen: Chosen) -> tuple[str, ...]:
    """What comes before the engine's own words."""
    sglang, inside = chosen.lane.engine.name == "sglang", chosen.lane.engine.runtime == "docker"
    if inside:
        return ("python3", "-m", "sglang.launch_server") if sglang else ("vllm",)
    module = "sglang.launch_server" if sglang else "vllm.entrypoints.cli.main"
    return (str(runtimes.engine_python(settings)), "-m", module)


def models(chosen: Chosen, folders: Mapping[str, PurePath]) -> dict[str, PurePath]:
    """The model folders by role: mounted in a container, as they lie on this machine for a process."""
    if chosen.lane.engine.runtime == "docker":
        return {role: PurePath(path) for role, path in containers.seen_models(folders).items()}
    return dict(folders)


def assets(chosen: Chosen) -> dict[str, str]:
    """The engine arguments that take an asset, with its place."""
    if chosen.lane.engine.runtime == "docker":
        return containers.asset_args(chosen.lane)
    return {a.argument: str(local_dir(chosen.entry, a.path)) for a in chosen.lane.assets if a.argument}
