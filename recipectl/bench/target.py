"""What is measured and by which protocols: from a live deployment and its recipe, or from a bare URL. PURE."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from recipectl.bench import protocol as protocols
from recipectl.bench.protocol import Protocol
from recipectl.bench.run import Target
from recipectl.errors import UsageError
from recipectl.provenance import UNKNOWN
from recipectl.receipts import Subject
from recipectl.recipe.lane import BenchRef
from recipectl.serving.deployments import Deployment


@dataclass(frozen=True)
class Job:
    """A target with what its recipe says about benching it. `label` names files; `folder` is the recipe's."""

    target: Target
    label: str
    refs: tuple[BenchRef, ...] = ()
    folder: Path | None = None
    subjects: tuple[Subject, ...] = ()

    def protocols(
        self, names: Sequence[str], *, prompts: Path | None = None, concurrency: Sequence[int] | None = None,
        max_tokens: int | None = None, rounds: int | None = None, temperature: float | None = None,
    ) -> list[Protocol]:  # fmt: skip
        """Protocols by name, as the recipe's settings amend them, then the flags. UsageError for an unknown one."""
        found = []
        for name in dict.fromkeys(n.strip() for n in names):
            p = protocols.load(name)
            ref = next((r for r in self.refs if r.protocol == name), None)
            if ref and self.folder:
                p = protocols.with_settings(p, ref.settings, self.folder)
            if prompts is not None and not any(phase.count for phase in p.phases.values()):
                p = protocols.with_settings(p, {"prompts": str(prompts.resolve())}, Path("/"))
            p = protocols.with_flags(p, concurrency=concurrency, max_tokens=max_tokens, rounds=rounds,
                                     temperature=temperature)  # fmt: skip
            found.append(protocols.ready(p))
        return found


def of_url(url: str, model: str | None, api_key: str | None, *, gpu_here: bool) -> Job:
    """Any OpenAI-compatible server. UsageError for what is no http address.

    A server on this machine where there is no GPU computes on the cores that the client runs on too.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError("this is no address of a server", seen=url, expected="such as http://127.0.0.1:8000")
    if parts.username or parts.password:
        raise UsageError("no credentials in the address", next_step="set RECIPECTL_API_KEY")
    here = parts.hostname in ("localhost", "::1") or parts.hostname.startswith("127.")
    target = Target(url=url.rstrip("/"), model=model, api_key=api_key, shares_cpu=here and not gpu_here,
                    gpu=here and gpu_here, notes=dict(UNKNOWN))  # fmt: skip
    return Job(target, label=parts.hostname)


def of_deployment(
    live: Deployment, refs: Sequence[BenchRef], folder: Path | None = None, api_key: str | None = None
) -> Job:
    """A live deployment, with what its plan promises."""
    plan = live.plan
    target = Target(
        url=plan.url, model=plan.served_name, api_key=api_key, speculates=plan.method != "none", k=plan.k,
        speculative=dict(plan.speculative or {}), max_num_seqs=_flag(plan.ranks[0].argv, "--max-num-seqs"),
        random_weights=plan.random_weights, shares_cpu=plan.lane == "cpu", gpu=plan.lane != "cpu", log=live.log,
        argv=plan.ranks[0].argv, boot=f"{plan.id}/{live.started}", recipe=plan.recipe, lane=plan.lane,
        variant=plan.variant, resolution=plan.lock_digest,
        notes=dict(plan.notes) | ({"departures": list(plan.stamps)} if plan.stamps else {}),
    )  # fmt: skip
    subjects = (Subject("recipe.yaml", plan.recipe_digest), Subject("recipe.lock.yaml", plan.lock_digest))
    return Job(target, plan.name, tuple(refs), folder, subjects)


def _flag(argv: Sequence[str], name: str) -> int | None:
    words = dict(itertools.pairwise(argv))
    value = words.get(name, "")
    return int(value) if value.isdigit() else None
