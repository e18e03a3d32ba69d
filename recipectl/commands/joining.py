"""Machines for a lane: which they are, whether they agree, and what each rank is told of its network."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from recipectl.commands import carrying
from recipectl.commands.context import Chosen, require_lock
from recipectl.commands.drafters import given_drafter
from recipectl.commands.placing import OnHost, places
from recipectl.console import Console
from recipectl.errors import UsageError
from recipectl.serving import helper
from recipectl.serving.fabric import LOCAL, Fabric, Facts, join, parity, require_parity
from recipectl.serving.hosts import parse_all
from recipectl.settings import Settings


@dataclass(frozen=True)
class Where:
    """Where a plan runs. `places` is empty with the runtime `process`; `fabric` is what each rank learns of its
    network; `expose` is the address to listen on, None for loopback; `facts` are what each of several hosts said."""

    port: int | None = None
    places: tuple[OnHost, ...] = ()
    fabric: Fabric = LOCAL
    expose: str | None = None
    facts: tuple[Facts, ...] = ()


def where_of(
    settings: Settings, console: Console, chosen: Chosen, models: Mapping[str, Path], *, port: int | None,
    hosts: str | None, expose: str | None, carry_image: bool = False,
) -> Where:  # fmt: skip
    """Find out where a lane would run, and hold the machines against each other. What was found out is shown.

    With `carry_image` a host that lacks the head's image gets it."""
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
    bring = partial(carrying.carried, console) if carry_image else carrying.required
    found = places(settings, chosen, models, named, bring)
    if len(found) == 1:
        return Where(port, tuple(found), expose=expose)
    facts = _looked(settings, console, chosen, found)
    joined = join([on.host for on in found], facts, chosen.lane.per_rank_env)
    for line in (f"head address {joined.master}", *joined.shown):
        console.notice(f"fabric: {line}")
    return Where(port, tuple(found), joined, expose, tuple(facts))


def _looked(settings: Settings, console: Console, chosen: Chosen, found: Sequence[OnHost]) -> list[Facts]:
    """What every machine of a lane with several says of itself; PinError where they do not agree."""
    lock = require_lock(chosen.recipe, chosen.lane_name, chosen.lock, chosen.entry)
    models = {str(m.role): m for m in (lock.models[n] for n in (chosen.lane.target, chosen.lane.drafter) if n)}
    facts = []
    for on in found:
        with console.progress(f"looking at {on.host.name}"):
            folders = {role: on.place.models[role] for role in models}
            facts.append(helper.probe(on.engine, on.place.image, folders, models, settings.cache_dir / "hosts"))
    problems = parity([on.host for on in found], facts, {r: m.tree for r, m in models.items()})
    if problems and (given := given_drafter(chosen)):
        problems.append(f"{given.path} must hold the same files on every host: `pull --hosts` does not copy it")
    require_parity(problems)
    return facts


def _require_address(expose: str) -> None:
    try:
        ipaddress.IPv4Address(expose)
    except ValueError as err:
        raise UsageError("--expose takes an IPv4 address of this machine", seen=expose,
                         expected="such as 192.168.1.20, or 0.0.0.0 for all") from err  # fmt: skip
