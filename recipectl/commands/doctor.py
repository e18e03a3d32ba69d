"""`doctor`: whether this machine, and with --hosts others, can run a lane. Exit code 7 if a row fails."""

from __future__ import annotations

import time

from recipectl.commands import carrying
from recipectl.commands.context import Chosen, choose
from recipectl.commands.models import folder_of, lane_models
from recipectl.commands.placing import Held, held_as_locked
from recipectl.console import Console
from recipectl.errors import EngineError, PinError, UsageError
from recipectl.gpu import gpus
from recipectl.serving import deployments, doctor, helper, machine, runtimes
from recipectl.serving.containers import DEPLOYMENT
from recipectl.serving.doctor import Row
from recipectl.serving.hosts import Host, parse_all
from recipectl.settings import Settings


def run(settings: Settings, console: Console, *, name: str | None, sm: str | None, hosts: str | None) -> int:
    """The rows as a table; the exit code says whether one failed."""
    chosen = choose(settings, console, name, sm, need_lock=False)
    lane, here = chosen.lane, machine.look((settings.cache_dir, settings.state_dir))
    rows = [*_engine(settings, chosen), *doctor.gpu(gpus(), lane, chosen.family, here.toolkit),
            *doctor.cheap(here, lane, chosen.family), *doctor.disk(here, _to_fetch(settings, chosen)),
            *doctor.fabric(here, lane), *doctor.ipc(here, lane), *_stale(settings, chosen)]  # fmt: skip
    if hosts or (lane.nodes > 1 and settings.hosts):
        rows += _hosts(settings, chosen, parse_all(hosts, settings.hosts, lane.nodes))
    console.table(["what", "verdict", "seen", "fix"], [(r.what, r.verdict, r.seen, r.fix) for r in rows])
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
    """Ranks of deployments that nobody knows: one that is left joins the next rendezvous and breaks it."""
    if chosen.lane.engine.runtime == "process":
        return []
    try:
        found = runtimes.connect(settings, "local").containers({DEPLOYMENT: ""})
    except EngineError:
        return []
    known = {d.id for d in deployments.known(settings) if d.state in ("starting", "ready")}
    stale = [c.name for c in found if c.labels.get(DEPLOYMENT) not in known]
    if not stale:
        return [Row("stale ranks", "OK", "none")]
    return [Row("stale ranks", "FAIL", ", ".join(stale), "docker stop -t 30 NAME, then docker rm NAME")]


def _hosts(settings: Settings, chosen: Chosen, hosts: list[Host]) -> list[Row]:
    rows, versions, skews = [], {}, []
    head: Held | None = None
    for host in hosts:
        try:
            engine = runtimes.connect(settings, host.name)
            versions[host.name] = engine.version()
            rows.append(Row(f"engine of {host.name}", "OK", engine.version()))
            if chosen.lane.engine.runtime == "docker":
                held = carrying.required(head, host, engine) if head else held_as_locked(settings, chosen, host, engine)
                head = head or held
                begun = time.time()
                facts = helper.probe(engine, held.image.id, {}, {}, settings.cache_dir / "hosts")
                skews.append((host.name, (facts.clock or begun) - (begun + time.time()) / 2))
                links = ", ".join(f"{n.name} {n.address}" for n in facts.nics if n.up and n.name != "lo")
                rows.append(Row(f"network of {host.name}", "OK" if links else "FAIL", links or "no interface is up"))
        except (EngineError, PinError, UsageError) as err:
            rows.append(Row(f"host {host.name}", "FAIL", f"{err.what} ({err.seen or err.on})", err.next_step))
    if len(set(versions.values())) > 1:
        rows.append(
            Row("engine versions", "WARN", "; ".join(f"{h} {v}" for h, v in versions.items()), "make them equal")
        )
    return rows + doctor.clocks(skews)
