"""Which deployments run now, whatever their record says, and which of them a NAME means."""

from __future__ import annotations

from recipectl.errors import UsageError
from recipectl.serving import runtimes
from recipectl.serving.deployments import Deployment, known
from recipectl.serving.process import members
from recipectl.settings import Settings


def runs(settings: Settings, deployment: Deployment) -> bool:
    """Whether anything of the deployment still runs. A host that does not answer counts as not running: `stop` says
    so."""
    if deployment.state == "stopped":
        return False
    if deployment.plan.runtime == "process":
        return bool(members(deployment.id, deployment.handles))
    return runtimes.docker(settings, deployment.plan).alive(deployment.plan)


def live(settings: Settings) -> list[Deployment]:
    """The deployments that run now, oldest first."""
    return [d for d in known(settings) if runs(settings, d)]


def pick(settings: Settings, name: str | None) -> Deployment:
    """The live deployment that NAME (recipe, deployment name or id) means; without NAME the only one there is."""
    running = live(settings)
    found = [d for d in running if d.means(name)]
    if len(found) == 1:
        return found[0]
    seen = ", ".join(d.plan.name for d in (found or running)) or "none runs"
    if not found:
        raise UsageError(f"no deployment of {name} runs" if name else "no deployment runs", seen=seen,
                         next_step=f"recipectl serve{' ' + name if name else ''}")  # fmt: skip
    raise UsageError("several deployments run", seen=seen, next_step="name one of them")
