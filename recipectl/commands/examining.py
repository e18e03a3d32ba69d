"""The doctor's rows about the machines of --hosts, this one among them: a helper container looks at each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from recipectl.commands import carrying
from recipectl.commands.context import Chosen
from recipectl.commands.placing import Held, held_as_locked
from recipectl.errors import EngineError, PinError, UsageError
from recipectl.images.port import ContainerEngine
from recipectl.serving import deployments, doctor, helper, machine, runtimes, tunnel
from recipectl.serving.containers import DEPLOYMENT
from recipectl.serving.doctor import Row
from recipectl.serving.fabric import Facts
from recipectl.serving.hosts import Host
from recipectl.settings import Settings


def rows(settings: Settings, chosen: Chosen, hosts: Sequence[Host]) -> list[Row]:
    """What each host is, then whether all agree. A host out of reach is one FAIL, and ends nothing."""
    out: list[Row] = []
    versions: dict[str, str] = {}
    skews: list[tuple[str, float]] = []
    head: Held | None = None
    for host in hosts:
        try:
            engine = runtimes.connect(settings, host.name)
            versions[host.name] = engine.version()
            out.append(Row(f"engine of {host.name}", "OK", engine.version()))
            if chosen.lane.engine.runtime == "docker":
                held = carrying.required(head, host, engine) if head else held_as_locked(settings, chosen, host, engine)
                head = head or held
                begun = time.time()
                facts = helper.probe(engine, held.image.id, {}, {}, settings.cache_dir / "hosts")
                skews.append((host.name, (facts.clock or begun) - (begun + time.time()) / 2))
                found = _rows_of(settings, chosen, held, facts)
                out += [replace(row, what=f"{row.what} of {host.name}") for row in found]
        except (EngineError, PinError, UsageError) as err:
            out.append(Row(f"host {host.name}", "FAIL", f"{err.what} ({err.seen or err.on})", err.next_step))
    if len(set(versions.values())) > 1:
        out.append(
            Row("engine versions", "WARN", "; ".join(f"{h} {v}" for h, v in versions.items()), "make them equal")
        )
    return out + doctor.clocks(skews)


def _rows_of(settings: Settings, chosen: Chosen, held: Held, facts: Facts) -> Iterator[Row]:
    """Links of every host; of a far one all that doctor says of this one and that can be known from there."""
    url, lane = held.host.engine or "", chosen.lane
    through = tunnel.command_on(url) if url.startswith("ssh://") else None
    far = not held.host.here
    # A container may not read the kernel's messages; whoever may log in there perhaps may.
    kernel = machine.kernel_messages(through) if far and through else None
    there = machine.of(facts, str(settings.cache_dir), kernel)
    yield from doctor.fabric(there, lane)
    if far:
        yield from doctor.cheap(there, lane, chosen.family)
        yield from doctor.disk(there, 0)
        # Another user's recipectl may have them on record: it is for a person to say.
        yield from (replace(r, verdict="WARN") if r.verdict == "FAIL" else r for r in stale(settings, held.engine))


def stale(settings: Settings, engine: ContainerEngine) -> list[Row]:
    """Ranks of deployments that nobody here knows: one that is left joins the next rendezvous and breaks it."""
    known = {d.id for d in deployments.known(settings) if d.state in ("starting", "ready")}
    left = [c.name for c in engine.containers({DEPLOYMENT: ""}) if c.labels.get(DEPLOYMENT) not in known]
    if not left:
        return [Row("stale ranks", "OK", "none")]
    return [Row("stale ranks", "FAIL", ", ".join(left), "docker stop -t 30 NAME, then docker rm NAME")]
