"""Which runtime a plan runs on. The one place that knows both."""

from __future__ import annotations

import sys
from pathlib import Path

from recipectl.errors import EngineError
from recipectl.serving.deployments import Deployment
from recipectl.serving.process import ProcessRuntime, members
from recipectl.serving.runtime import Runtime
from recipectl.settings import Settings


def engine_python(settings: Settings) -> Path:
    """The interpreter that has the engine: the setting, else the one that runs recipectl."""
    return settings.engine_python or Path(sys.executable)


def process(settings: Settings) -> ProcessRuntime:
    """Engines as child processes on this machine."""
    return ProcessRuntime(engine_python(settings), settings.cache_dir, settings.environ)


def of(settings: Settings, runtime: str) -> Runtime:
    """The runtime by its name in a plan."""
    if runtime == "process":
        return process(settings)
    raise EngineError(f"no runtime {runtime!r}", expected="process or docker")


def runs(settings: Settings, deployment: Deployment) -> bool:
    """Whether anything of the deployment still runs."""
    if deployment.plan.runtime == "process":
        return bool(members(deployment.id, deployment.handles)) if deployment.state != "stopped" else False
    return False
