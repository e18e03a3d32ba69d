"""`doctor`: whether this machine, and with --hosts others, can run a lane. Exit code 7 if a row fails."""

from __future__ import annotations

from recipectl.commands import examining
from recipectl.commands.context import Chosen, choose
from recipectl.commands.models import folder_of, lane_models
from recipectl.console import Console
from recipectl.errors import EngineError
from recipectl.gpu import gpus
from recipectl.serving import doctor, machine, runtimes
from recipectl.serving.doctor import Row
from recipectl.serving.hosts import parse_all
from recipectl.settings import Settings


def run(settings: Settings, console: Console, *, name: str | None, sm: str | None, hosts: str | None) -> int:
    """The rows as a table; the exit code says whether one failed."""
    chosen = choose(settings, console, name, sm, need_lock=False)
    lane, here = chosen.lane, machine.look((settings.cache_dir, settings.state_dir))
    rows = [*_engine(settings, chosen), *doctor.gpu(gpus(), lane, chosen.family, here.toolkit),
            *doctor.cheap(here, lane, chosen.family), *doctor.disk(here, _to_fetch(settings, chosen)),
            *doctor.fabric(here, lane), *doctor.ipc(here, lane), *_stale(settings, chosen)]  # fmt: skip
    if hosts or (lane.nodes > 1 and settings.hosts):
        rows += examining.rows(settings, chosen, parse_all(hosts, settings.hosts, lane.nodes))
    console.table(["what", "verdict", "seen", "fix"], [(r.what, r.verdict, r.seen, r.fix) for r in rows], below=["fix"])
    failed = [r for r in rows if r.verdict == "FAIL"]
    console.document({"recipe": chosen.recipe.name, "lane": chosen.lane_name, "rows": [vars(r) for r in rows]})
    return EngineError.exit_code if failed else 0


def _engine(settings: Settings, chosen: Chosen) -> list[Row]:
    engine = chosen.lane.engine
    try:
        if engine.runtime == "process":
            runtimes.process(settings).prepare(engine.name, engine.version)
            return [Row("engine", "OK", f"{engine.name} {engine.version or ''} for {runtimes.engine_python(settings)}")]
        return [Row("engine", "OK", runtimes.connect(settings, "local").version())]
    except EngineError as err:
        return [Row("engine", "FAIL", f"{err.what} ({err.seen or err.on})", err.next_step)]


def _to_fetch(settings: Settings, chosen: Chosen) -> int:
    """Bytes of the lane's models that are not here yet."""
    if chosen.lock is None or any(n and n not in chosen.lock.models for n in (chosen.lane.target, chosen.lane.drafter)):
        return 0
    models = lane_models(chosen, chosen.lock)
    return sum(m.size for n, m in models.items() if not folder_of(settings, chosen, n, m).exists())


def _stale(settings: Settings, chosen: Chosen) -> list[Row]:
    if chosen.lane.engine.runtime == "process":
        return []
    try:
        return examining.stale(settings, runtimes.connect(settings, "local"))
    except EngineError:
        return []
