"""Which runtime a plan runs on, and which engine a host has. The one place that knows both kinds."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from recipectl.images.port import ContainerEngine
from recipectl.serving import hosts, tunnel
from recipectl.serving.docker import DockerRuntime
from recipectl.serving.plan import Plan
from recipectl.serving.process import ProcessRuntime
from recipectl.serving.runtime import Runtime
from recipectl.settings import Settings


def engine_python(settings: Settings) -> Path:
    """The interpreter that has the engine: the setting, else the one that runs recipectl."""
    return settings.engine_python or Path(sys.executable)


def connect(settings: Settings, host: str) -> ContainerEngine:
    """The Docker engine of a host. EngineError if it cannot be reached."""
    from recipectl.images.docker import DockerEngine  # 0.2 s

    engine = hosts.parse(host).engine or settings.docker_host
    if engine is not None and engine.startswith("ssh://"):
        engine = tunnel.local_url(engine)
    return DockerEngine(engine)


def process(settings: Settings, secrets: Mapping[str, str] | None = None) -> ProcessRuntime:
    """Engines as child processes on this machine."""
    return ProcessRuntime(engine_python(settings), settings.cache_dir, settings.environ, secrets)


def docker(settings: Settings, plan: Plan, secrets: Mapping[str, str] | None = None) -> DockerRuntime:
    """Engines in containers."""
    return DockerRuntime(lambda host: connect(settings, host), secrets=secrets, gentle=plan.unified_memory)


def of(settings: Settings, plan: Plan, secrets: Mapping[str, str] | None = None) -> Runtime:
    """The runtime of a plan. `secrets` are for a start only."""
    return process(settings, secrets) if plan.runtime == "process" else docker(settings, plan, secrets)
