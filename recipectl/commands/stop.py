"""`stop`: stop a deployment, look again, and say what is left. Never a false "stopped"."""

from __future__ import annotations

from recipectl.commands import launching
from recipectl.console import Console
from recipectl.errors import EngineError
from recipectl.serving import running
from recipectl.settings import Settings


def run(settings: Settings, console: Console, *, name: str | None, all_: bool, force: bool) -> int:
    """Stop the one deployment that NAME means, or all. EngineError lists what would not end."""
    chosen = running.live(settings) if all_ else [running.pick(settings, name)]
    if not chosen:
        console.print("nothing runs")
    left: dict[str, list[str]] = {}
    for deployment in chosen:
        with console.progress(f"stopping {deployment.plan.name}"), launching.uninterrupted():
            remaining = launching.stop(settings, deployment, force=force)
        if remaining:
            left[deployment.plan.name] = remaining
        else:
            console.print(f"stopped {deployment.plan.name}, nothing of it is left")
    if left:
        raise EngineError(
            "not everything has stopped", details=[f"{n}: {', '.join(r)}" for n, r in left.items()],
            next_step="recipectl stop --force",
        )  # fmt: skip
    console.document({"stopped": [d.plan.name for d in chosen], "left": []})
    return 0
