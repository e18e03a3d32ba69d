"""`list`: every recipe with its lanes, models, K, licenses and evidence, and whether it runs on this machine."""

from __future__ import annotations

from typing import Any

from recipectl import showing
from recipectl.console import Console
from recipectl.errors import PinError, RecipeError
from recipectl.gpu import Gpu, gpus
from recipectl.recipe import catalog
from recipectl.recipe.lane import Lane
from recipectl.recipe.schema import Recipe
from recipectl.settings import Settings


def run(settings: Settings, console: Console) -> int:
    """Always 0: a broken recipe is listed as broken, and so is a damaged lock."""
    found, rows, documents = gpus(), list[tuple[str, ...]](), list[dict[str, Any]]()
    for entry in catalog.entries(settings):
        try:
            recipe = catalog.load(entry)
        except RecipeError as err:
            rows.append((entry.name, "", "", "", "", "", f"no: {err.what}, see `recipectl check {entry.name}`"))
            documents.append({"name": entry.name, "file": str(entry.file), "broken": err.to_json()})
            continue
        try:
            lock, damaged = catalog.load_lock(entry), None
        except PinError as err:
            lock, damaged = None, err.what
        lanes = []
        for index, (name, lane) in enumerate(recipe.lanes.items()):
            here = runs_here(settings, entry, recipe, name, lane, found)
            licenses = sorted({recipe.models[n].license or "not stated" for n in (lane.target, lane.drafter) if n})
            models = [n for n in (lane.target, lane.drafter) if n]
            k = str(lane.speculative.k or "none")
            method = lane.speculative.method
            evidence = showing.evidence_status(recipe, lane)
            rows.append(("" if index else recipe.name, name, f"{method} {k}" if k != "none" else "no drafting",
                         _models(recipe, models), ", ".join(licenses), evidence, here))  # fmt: skip
            lanes.append({"lane": name, "method": method, "k": lane.speculative.k, "models": models,
                          "licenses": licenses, "evidence": evidence, "status": lane.status, "here": here,
                          "runnable": here.startswith("yes"), "nodes": lane.nodes,
                          "lock": damaged or showing.lock_state(recipe, lock, name),
                          "variants": list({str(n): v for n, v in recipe.variants.items()}.get(name, {}))})  # fmt: skip
        documents.append({"name": recipe.name, "summary": recipe.summary, "file": str(entry.file), "lanes": lanes})
    console.table(("recipe", "lane", "drafting, K", "models", "licenses", "evidence", "runs here"), rows,
                  below=("models", "licenses", "evidence"))  # fmt: skip
    console.document({"recipes": documents})
    return 0


def runs_here(
    settings: Settings, entry: catalog.Entry, recipe: Recipe, lane_name: str, lane: Lane, found: list[Gpu]
) -> str:
    """`yes`, or `no:` and why. Whether the files of the models are right is the lock's and `verify`'s matter."""
    from recipectl.licenses import permits_commercial

    names = [n for n in (lane.target, lane.drafter) if n]
    if settings.use == "commercial" and (bad := [n for n in names if not permits_commercial(recipe.models[n].license)]):
        return f"no: the license of {', '.join(bad)} permits no commercial use"
    if lane_name != "cpu" and not any(g.family and g.family.name == lane_name for g in found):
        seen = ", ".join(sorted({f"{g.name} ({g.capability[0]}.{g.capability[1]})" for g in found})) or "no GPU"
        return f"no: {lane_name} needed, {seen} found"
    paths = [path for n in names if (path := recipe.models[n].path) and not (entry.folder / path).is_dir()]
    if paths:
        return f"no: put the models into {', '.join(paths)} beside the recipe"
    hosts = max(1, len(settings.hosts))
    if lane.nodes > hosts:
        return f"no: needs {lane.nodes} hosts, {hosts} known (--hosts, or `hosts` in the settings)"
    return "yes"


def _models(recipe: Recipe, names: list[str]) -> str:
    return " + ".join(recipe.models[n].repo or f"./{recipe.models[n].path}" for n in names)
