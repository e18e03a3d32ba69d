"""Recipe + lock + machine -> the plan of a deployment: what will run on every rank, and what it must prove. PURE.

A plan is data: printable, comparable, kept in the deployment's folder. Nothing here touches a disk or a process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePath
from typing import Any

from recipectl import speculative
from recipectl.errors import RecipeError
from recipectl.images.port import ContainerSpec
from recipectl.recipe.base import Json
from recipectl.recipe.lane import Gates, Lane
from recipectl.recipe.schema import Recipe
from recipectl.serving import containers, dialects

MASTER_PORT = 29521
LOOPBACK = "127.0.0.1"
# Serving needs no hub and no telemetry; a server that tries either hangs on an air-gapped machine.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
_FORBIDDEN_ENV = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACEHUB_API_TOKEN", "VLLM_API_KEY", "HF_TOKEN_PATH")


@dataclass(frozen=True)
class RankPlan:
    """One engine process. `argv` is complete; `env` is what the plan adds to the runtime's clean environment;
    `container` is what it runs in, None with the runtime `process`."""

    rank: int
    host: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    container: ContainerSpec | None = None


@dataclass(frozen=True)
class Prompts:
    """What the gates ask: the counting prompt, how far it counts, and prose prompts to rotate through."""

    counting: str
    count_to: int
    prose: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What a deployment is. `k` is the number of speculative tokens a step, None without speculation; `stamps` say
    where the plan departs from the recipe; digests are `sha256:` of the files' bytes; `notes` are its licenses and
    credits, as receipts and reports carry them. `overlay` is the patched copy of the engine's package that comes first
    on its path, with the runtime `process`."""

    id: str
    recipe: str
    lane: str
    variant: str | None
    engine: str
    engine_version: str | None
    runtime: str
    served_name: str
    address: str
    port: int
    method: str
    k: int | None
    schedule: tuple[tuple[int, int, int], ...]
    speculative: Mapping[str, Json] | None
    capture_sizes: tuple[int, ...] | None
    models: Mapping[str, str]
    trees: Mapping[str, str]
    taps: tuple[int, ...] | None
    max_model_len: int | None
    random_weights: bool
    ranks: tuple[RankPlan, ...]
    gates: Gates
    prompts: Prompts
    recipe_digest: str
    lock_digest: str
    exposed: bool = False
    unified_memory: bool = False
    stamps: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    overlay: str | None = None

    @property
    def name(self) -> str:
        """`recipe-lane[-variant]`: one deployment of that name may live at a time."""
        return "-".join(p for p in (self.recipe, self.lane, self.variant) if p)

    @property
    def url(self) -> str:
        """Where the API is, without a path."""
        return f"http://{self.address}:{self.port}"

    def to_json(self) -> dict[str, Any]:
        """For `--json`, for the deployment's folder and for receipts."""
        return {
            **asdict(replace(self, gates=Gates())),
            "gates": self.gates.model_dump(mode="json", exclude_defaults=True),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """The plan that `to_json` wrote. KeyError, TypeError or ValueError if it is none."""
        values = dict(data)
        values["gates"] = Gates.model_validate_json(json.dumps(values["gates"]))
        asked = values["prompts"]
        values["prompts"] = Prompts(asked["counting"], asked["count_to"], tuple(asked["prose"]))
        values["ranks"] = tuple(
            RankPlan(
                r["rank"],
                r["host"],
                tuple(r["argv"]),
                dict(r["env"]),
                None if r["container"] is None else containers.from_json(r["container"]),
            )
            for r in values["ranks"]
        )
        for key in ("capture_sizes", "taps", "stamps"):
            values[key] = None if values[key] is None else tuple(values[key])
        values["schedule"] = tuple((a, b, c) for a, b, c in values["schedule"])
        return cls(**values)


@dataclass(frozen=True)
class Order:
    """What a plan is made from. `models` are folders by role and `assets` files by engine argument, as the engine will
    see them; `program` is what comes
    before the engine's own words (`python -m vllm.entrypoints.cli.main`, or `vllm` in a container). `address` is where
    clients reach the API, `listen` what the engine binds, `publish` what a container's port is published on."""

    id: str
    recipe: Recipe
    lane_name: str
    lane: Lane
    variant: str | None
    models: Mapping[str, PurePath]
    program: tuple[str, ...]
    port: int
    prompts: Prompts
    recipe_digest: str
    lock_digest: str
    assets: Mapping[str, str] = field(default_factory=dict)
    trees: Mapping[str, str] = field(default_factory=dict)
    taps: tuple[int, ...] | None = None
    address: str = LOOPBACK
    listen: str = LOOPBACK
    hosts: tuple[str, ...] = ("local",)
    master: str = LOOPBACK
    master_port: int = MASTER_PORT
    rank_env: tuple[Mapping[str, str], ...] = ()
    places: tuple[containers.Place, ...] = ()
    publish: str = LOOPBACK
    exposed: bool = False
    unified_memory: bool = False
    stamps: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)


def compose(order: Order) -> Plan:
    """The plan of one deployment. RecipeError for a recipe that no engine could be started from."""
    lane = order.lane
    if len(order.hosts) != lane.nodes:
        raise RecipeError(
            f"lane {order.lane_name} runs on {lane.nodes} machine(s)", on=order.recipe.name,
            seen=f"{len(order.hosts)}: {', '.join(order.hosts)}", expected=f"{lane.nodes} hosts",
            next_step="name them with --hosts a,b (the head first) or in the settings",
        )  # fmt: skip
    config = speculative.compose(lane, str(order.models["drafter"]) if lane.drafter else None)
    captures = speculative.capture_sizes(lane)
    args: dict[str, Json] = {**lane.args, **order.assets}
    if captures is not None and speculative.own_sizes(lane) is None:
        args["cudagraph_capture_sizes"] = list(captures)
    served = order.recipe.name
    ranks = tuple(_rank(order, args, config, served, rank, host) for rank, host in enumerate(order.hosts))
    length = lane.args.get("max_model_len")
    models = [order.recipe.models[n] for n in (lane.target, lane.drafter) if n]
    return Plan(
        id=order.id, recipe=order.recipe.name, lane=order.lane_name, variant=order.variant, engine=lane.engine.name,
        engine_version=lane.engine.version, runtime=lane.engine.runtime, served_name=served, address=order.address,
        port=order.port, method=lane.speculative.method, k=lane.speculative.k,
        schedule=tuple((t.low, t.high, t.k) for t in lane.speculative.schedule), speculative=config,
        capture_sizes=captures, models={role: str(path) for role, path in order.models.items()},
        trees=dict(order.trees), taps=order.taps, max_model_len=length if isinstance(length, int) else None,
        random_weights=any(m.random_weights for m in models), ranks=ranks, gates=lane.gates, prompts=order.prompts,
        recipe_digest=order.recipe_digest, lock_digest=order.lock_digest, exposed=order.exposed,
        unified_memory=order.unified_memory,
        stamps=order.stamps, notes=order.notes,
    )  # fmt: skip


def _rank(
    order: Order, args: Mapping[str, Json], config: Mapping[str, Json] | None, served: str, rank: int, host: str
) -> RankPlan:
    lane, parallel = order.lane, order.lane.parallel
    launch = dialects.Launch(
        target=str(order.models["target"]), drafter=str(order.models["drafter"]) if lane.drafter else None,
        served_name=served, host=order.listen, port=order.port, tensor=parallel.tensor, pipeline=parallel.pipeline,
        decode_context=parallel.decode_context, data=parallel.data, expert=parallel.expert, nodes=lane.nodes,
        rank=rank, master=order.master, master_port=order.master_port,
    )  # fmt: skip
    words = dialects.argv(lane.engine.name, lane.engine.version, args, config, launch)
    secret = sorted(set(_FORBIDDEN_ENV) & set(lane.env))
    if secret:
        raise RecipeError("a recipe carries no secrets", on=order.recipe.name, seen=f"env.{secret[0]}",
                          next_step="remove it: serving reads local files only")  # fmt: skip
    own = order.rank_env[rank] if rank < len(order.rank_env) else {}
    argv, env = (*order.program, *words), {**OFFLINE, **lane.env, **own}
    return RankPlan(rank, host, argv, env, _container(order, rank, argv, env) if order.places else None)


def _container(order: Order, rank: int, argv: tuple[str, ...], env: Mapping[str, str]) -> ContainerSpec:
    labels = {
        containers.LABEL + "recipe": order.recipe.name, containers.LABEL + "recipe.digest": order.recipe_digest,
        containers.LABEL + "lock.digest": order.lock_digest,
        **({containers.LABEL + "departures": "; ".join(order.stamps)} if order.stamps else {}),
    }  # fmt: skip
    published = (order.publish, order.port) if rank == 0 else None
    return containers.spec(order.id, rank, order.lane, order.places[rank], argv, env, published, labels)
