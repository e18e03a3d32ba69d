"""What `show` and `list` say about a lane: facts as plain values, then as lines. No output here."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from recipectl import speculative
from recipectl.hub import store
from recipectl.lockfile import Lock, drift
from recipectl.recipe import catalog, evidence
from recipectl.recipe.base import Json
from recipectl.recipe.families import FAMILIES
from recipectl.recipe.lane import Lane
from recipectl.recipe.model import Given, Model
from recipectl.recipe.schema import Recipe
from recipectl.serving import containers
from recipectl.settings import Settings
from recipectl.speculative import RuleVerdict

# Longest cell of the rules' table, in characters; what is cut there stands in full below.
WIDEST = 100


@dataclass(frozen=True)
class View:
    """One lane as `show` presents it. `config` is the exact --speculative-config (for SGLang its flags)."""

    recipe: Recipe
    lane_name: str
    variant: str | None
    lane: Lane
    locked: str
    config: dict[str, Json] | None
    captures: tuple[int, ...] | None
    verdicts: list[RuleVerdict]

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "lane": self.lane_name, "variant": self.variant, "summary": self.lane.summary, "locked": self.locked,
            "target": _model_json(self.recipe, self.lane.target),
            "drafter": _model_json(self.recipe, self.lane.drafter) if self.lane.drafter else None,
            "engine": self.lane.engine.model_dump(mode="json", exclude={"evidence"}), "nodes": self.lane.nodes,
            "parallel": self.lane.parallel.model_dump(), "k": self.lane.speculative.k, "status": self.lane.status,
            "speculative_config": self.config, "capture_sizes": self.captures, "args": self.lane.args,
            "rules": [v.to_json() for v in self.verdicts],
        }  # fmt: skip


def view(
    settings: Settings, entry: catalog.Entry, recipe: Recipe, lane_name: str, lane: Lane, lock: Lock | None,
    variant: str | None = None,
) -> View:  # fmt: skip
    """Everything about one lane, after --k and --set."""
    drafter = drafter_folder(settings, entry, recipe, lane, lock) if lane.drafter else None
    return View(
        recipe, lane_name, variant, lane, lock_state(recipe, lock, lane_name), speculative.compose(lane, drafter),
        speculative.capture_sizes(lane), speculative.check(recipe, lane_name, lane, lock),
    )  # fmt: skip


def lock_state(recipe: Recipe, lock: Lock | None, lane_name: str) -> str:
    """`locked`, or what is missing."""
    if lock is None or lane_name not in lock.resolution:
        return "not locked"
    return "stale lock: " + "; ".join(drift(recipe, lock, lane_name)) if drift(recipe, lock, lane_name) else "locked"


def drafter_folder(settings: Settings, entry: catalog.Entry, recipe: Recipe, lane: Lane, lock: Lock | None) -> str:
    """Where the engine will find the drafter. Before a lock, for a hub model without a commit, its repo."""
    assert lane.drafter is not None
    if lane.engine.runtime == "docker":
        return containers.seen_models({"drafter": lane.drafter})["drafter"]
    model = recipe.models[lane.drafter]
    if model.path is not None:
        return str(store.path_dir(entry, model))
    locked = lock.models.get(lane.drafter) if lock else None
    commit = locked.commit if locked and locked.commit else model.revision
    return str(store.hub_dir(settings, model.repo or "", commit)) if commit else f"{model.repo} (not locked yet)"


def lines(shown: View) -> list[str]:
    """A lane in plain words: models, engine, the speculative config, capture sizes."""
    lane, spec, engine = shown.lane, shown.lane.speculative, shown.lane.engine
    machines = FAMILIES[shown.lane_name].machines
    image = engine.image.ref if engine.image else f"overlay {engine.overlay}" if engine.overlay else "this machine's"
    title = f"lane {shown.lane_name}" + (f", variant {shown.variant}" if shown.variant else "")
    out = [
        f"{title} ({machines}) - {shown.locked}, evidence {lane.status}", f"  {lane.summary}",
        f"  target   {model_line(shown.recipe, lane.target)}",
        *([f"  drafter  {model_line(shown.recipe, lane.drafter)}"] if lane.drafter else []),
        f"  engine   {engine.name} {engine.version or '(version not published)'}, {engine.runtime}, {image}"
        + (f", runner {engine.runner}" if engine.runner else ""),
        f"  ranks    {lane.nodes} node(s), tensor {lane.parallel.tensor}"
        + (f", pipeline {lane.parallel.pipeline}" if lane.parallel.pipeline > 1 else "")
        + (f", decode context {lane.parallel.decode_context}" if lane.parallel.decode_context > 1 else ""),
        f"  drafting {spec.method}" + (f", K {spec.k}" if spec.k else "") + _block(spec.block_size),
    ]  # fmt: skip
    if shown.config is not None and engine.name == "sglang":
        out += ["  flags    " + " ".join(f"--{k.replace('_', '-')} {v}" for k, v in shown.config.items())]
    elif shown.config is not None:
        out += ["  --speculative-config " + json.dumps(shown.config, separators=(",", ":"), ensure_ascii=False)]
    out.append("  captures " + _captures(shown))
    variants = {str(k): [*v] for k, v in shown.recipe.variants.items()}.get(shown.lane_name)
    if variants and shown.variant is None:
        out.append(f"  variants {', '.join(variants)} (--variant)")
    return out


def rule_rows(verdicts: list[RuleVerdict]) -> list[tuple[str, str, str, str]]:
    """Code, verdict, message, first source with its date."""
    rows: list[tuple[str, str, str, str]] = []
    for v in verdicts:
        first = v.evidence[0] if v.evidence and v.verdict != "NOT_APPLICABLE" else None
        source = f"{first.source} ({first.date})" if first and first.date else first.source if first else ""
        rows.append((v.code, v.verdict, _cut(v.message), source))
    return rows


def fix_lines(verdicts: list[RuleVerdict]) -> list[str]:
    """What to do about each FAIL and WARN, and how to get each unchecked rule checked, every command once."""
    out: list[str] = []
    for v in verdicts:
        if v.verdict in ("FAIL", "WARN"):
            out += [f"  {v.code} in full: {v.message}"] if _cut(v.message) != v.message else []
            out += [f"  {v.code} fix: {v.fix}"] if v.fix else []
    waiting = [v for v in verdicts if v.verdict == "NOT_CHECKED" and v.fix]
    for fix in dict.fromkeys(v.fix for v in waiting):
        out.append(f"  not checked yet ({', '.join(v.code for v in waiting if v.fix == fix)}): {fix}")
    return out


def document(entry: catalog.Entry, recipe: Recipe, views: list[View]) -> dict[str, Any]:
    """The recipe and its lanes for `--json`."""
    return {
        "name": recipe.name, "summary": recipe.summary, "license": recipe.license, "file": str(entry.file),
        "lanes": [v.to_json() for v in views], "variants": {lane: list(v) for lane, v in recipe.variants.items()},
    }  # fmt: skip


def model_line(recipe: Recipe, name: str) -> str:
    """A model in one line: where from, at what revision, format and license."""
    model = recipe.models[name]
    return f"{_source(model)}, {model.quantization or model.format}, {model.license or 'NO LICENSE STATED'}"


def evidence_status(recipe: Recipe, lane: Lane) -> str:
    """How the evidence of a lane stands: `12 published, 1 retracted`."""
    counts = Counter(e.status for _, _, e in evidence.rows(recipe, lane))
    return ", ".join(f"{n} {status}" for status, n in counts.most_common()) or "none"


def _cut(text: str) -> str:
    return text if len(text) <= WIDEST else text[: WIDEST - 3] + "..."


def _source(model: Model) -> str:
    if model.path is not None:
        return model.path if isinstance(model, Given) else f"./{model.path}"
    revision = model.revision or "no revision"
    return f"{model.repo}@{revision[:12] if len(revision) == 40 else revision}"


def _model_json(recipe: Recipe, name: str) -> dict[str, Any]:
    model = recipe.models[name]
    keys = {"role", "repo", "path", "revision", "license", "quantization", "gated"}
    return {"name": name, **model.model_dump(mode="json", include=keys)}


def _block(block_size: int | None) -> str:
    return f", block {block_size}" if block_size else ""


def _captures(shown: View) -> str:
    if off := speculative.graphs_off(shown.lane):
        return f"none: {off}"
    if shown.captures is None:
        return "the engine's own"
    own = speculative.own_sizes(shown.lane) is not None
    return f"{list(shown.captures)} ({'as the recipe says' if own else 'composed from K and max_num_seqs'})"
