"""Cross-field rules that need no lock: what each model alone cannot see. PURE, apart from looking for named files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from recipectl.errors import LicenseError, RecipeError
from recipectl.licenses import canonical
from recipectl.recipe import beside, gaterules, knownargs, published
from recipectl.recipe.codes import level_of
from recipectl.recipe.families import FAMILIES
from recipectl.recipe.findings import Finding, Level, in_file_order
from recipectl.recipe.lane import Lane
from recipectl.recipe.merge import Path as At
from recipectl.recipe.model import Model
from recipectl.recipe.parse import Document
from recipectl.recipe.retracted import rest_on_retracted
from recipectl.recipe.schema import LANE_NAMES, Recipe
from recipectl.recipe.yamltree import dotted

# Code, path in the merged recipe, message, fix.
Said = tuple[str, At, str, str | None]
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")


def check(document: Document, folder: Path | None = None) -> None:
    """Add the findings of all rules to a document that parsed. `folder` holds the recipe's files; None: not on disk.

    What several lanes inherit from one line is said once.
    """
    recipe = document.recipe
    if recipe is None:
        return
    found: dict[tuple[object, ...], Finding] = {}
    for code, path, message, fix in _all(recipe, folder):
        level: Level = "note" if code == "R003" and _unresolved(recipe.models[str(path[1])]) else level_of(code)
        finding = document.finding(code, path, message, fix, level=level)
        found.setdefault((code, finding.line, finding.column, message), finding)
    document.findings = in_file_order([*document.findings, *found.values()])


def _unresolved(model: Model) -> bool:
    """Whether the author says that something about a model could not be found out: then the lock has to."""
    return any(e.status == "unresolved" for e in model.evidence)


def lanes(recipe: Recipe) -> Iterator[tuple[At, str, Lane]]:
    """Every lane and variant: its path in the merged recipe, its family, itself."""
    for name, lane in recipe.lanes.items():
        yield ("lanes", name), name, lane
    for name, variants in recipe.variants.items():
        for variant, lane in variants.items():
            yield ("variants", name, variant), name, lane


def _all(recipe: Recipe, folder: Path | None) -> Iterator[Said]:
    if folder is not None and folder.resolve().name != recipe.name:
        name = folder.resolve().name
        yield "R014", ("name",), f"the recipe is named {recipe.name}, its folder {name}", f"write `name: {name}`"
    for name, model in recipe.models.items():
        yield from _model(("models", name), model)
        yield from (("R007", *said) for said in beside.model(("models", name), model, folder))
    for at, family, lane in lanes(recipe):
        yield from of_lane(at, recipe, family, lane)
        yield from _scopes(at, recipe, lane)
        yield from (("R007", *said) for said in beside.lane(at, lane, folder))
        yield from published.check(at, lane)
        yield from rest_on_retracted(at, lane)


def of_lane(at: At, recipe: Recipe, family: str, lane: Lane) -> Iterator[Said]:
    """What must hold of a lane's values together, also after `--k` and `--set`."""
    yield from _ranks(at, family, lane)
    yield from _engine(at, family, lane)
    yield from _arguments(at, recipe, lane)
    yield from gaterules.check(at, lane)


def refuse_changed(recipe: Recipe, family: str, lane: Lane) -> None:
    """RecipeError for a lane that `--k` and `--set` have made break a rule that its file keeps."""
    broken = [said for said in of_lane((), recipe, family, lane) if level_of(said[0]) == "error"]
    if broken:
        code, where, message, fix = broken[0]
        raise RecipeError(
            f"{code} {dotted(where)}: {message}", on=f"{recipe.name} {family} as changed by the command line",
            details=[f"{c} {dotted(w)}: {m}" for c, w, m, _ in broken[1:]], next_step=fix,
        )  # fmt: skip


def _model(at: At, model: Model) -> Iterator[Said]:
    if model.repo is not None and not _COMMIT.match(model.revision or ""):
        says = "no revision is given, which means the newest"
        if model.revision:
            short = re.fullmatch(r"[0-9a-f]{7,39}", model.revision)
            says = f"`{model.revision}` is a short commit" if short else f"`{model.revision}` may move with every push"
        yield (
            "R003", (*at, "revision"), f"{model.repo}: {says}",
            "`recipectl lock` finds the full commit; write it here: `revision: COMMIT`",
        )  # fmt: skip
    if model.license is None:
        if not model.license_evidence:
            yield (
                "R004", (*at, "license"), "no license is given, and nobody says that none is stated",
                "write the SPDX expression of the model card; if it states none, say so under license_evidence",
            )  # fmt: skip
        return
    try:
        canonical(model.license)
    except LicenseError as err:
        yield "R005", (*at, "license"), f"{err.what}: {model.license}", "write an SPDX expression, or LicenseRef-NAME"


def _ranks(at: At, family: str, lane: Lane) -> Iterator[Said]:
    p = lane.parallel
    ranks = p.tensor * p.pipeline * p.data
    one_gpu = FAMILIES[family].unified_memory
    if ranks % lane.nodes or (one_gpu and ranks != lane.nodes):
        each = "one GPU each" if one_gpu else "an equal number of ranks each"
        yield (
            "R001", (*at, "parallel"),
            f"tensor {p.tensor} x pipeline {p.pipeline} x data {p.data} = {ranks} ranks on {lane.nodes} nodes, {each}",
            f"make tensor x pipeline x data a multiple of {lane.nodes}" if not one_gpu else f"give {lane.nodes} ranks",
        )  # fmt: skip
    if p.tensor % p.decode_context:
        yield "R002", (*at, "parallel"), f"decode_context {p.decode_context} does not divide tensor {p.tensor}", None


def _engine(at: At, family: str, lane: Lane) -> Iterator[Said]:
    engine, here = lane.engine, (*at, "engine")
    if (engine.name == "vllm-cpu") != (family == "cpu"):
        yield (
            "R009",
            here,
            f"engine {engine.name} does not run on lane {family}",
            "vllm-cpu is for lane cpu, and only that",
        )
    boxed = engine.image is not None or engine.overlay is not None
    if engine.runtime == "docker" and not boxed:
        yield "R009", here, "runtime docker has neither image nor overlay", "name one, or `runtime: process`"
    if engine.runtime == "process" and engine.image is not None:  # an overlay patches a copy of the environment
        yield "R009", here, "runtime process uses no image", "remove the image, or `runtime: docker`"
    wanted = FAMILIES[family].platform
    if engine.image and engine.image.platform and wanted and engine.image.platform != wanted:
        yield (
            "R009", (*here, "image"), f"the image is for {engine.image.platform}, {family} machines are {wanted}",
            f"name the {wanted} image",
        )  # fmt: skip


def _arguments(at: At, recipe: Recipe, lane: Lane) -> Iterator[Said]:
    for key, value in lane.args.items():
        if wrong := knownargs.problem(key, value):
            yield "R016", (*at, "args", key), wrong, None
        elif isinstance(value, str) and re.fullmatch(r"\s*[\[{].*[\]}]\s*", value, re.DOTALL):
            yield "R012", (*at, "args", key), "JSON in text", "write it as YAML, without the outer quotes"
    yield from _captures(at, lane)
    listed = any(recipe.models[n].remote_code for n in (lane.target, lane.drafter) if n)
    if lane.args.get("trust_remote_code") is True and not listed:
        yield (
            "R013", (*at, "args", "trust_remote_code"), "remote code is trusted, but no model lists any",
            "remove it, or list the reviewed files with their sha256 under models.NAME.remote_code",
        )  # fmt: skip


def _captures(at: At, lane: Lane) -> Iterator[Said]:
    """vLLM refuses to boot with a list of sizes that does not end at the largest size it is told."""
    config = lane.args.get("compilation_config")
    nested = config if isinstance(config, dict) else {}
    sizes, top = (
        lane.args.get(name, nested.get(name)) for name in ("cudagraph_capture_sizes", "max_cudagraph_capture_size")
    )
    if isinstance(sizes, list) and isinstance(top, int) and sizes and (last := max(map(_number, sizes))) != top:
        yield (
            "R017", (*at, "args"), f"cudagraph_capture_sizes ends at {last}, max_cudagraph_capture_size says {top}",
            "remove max_cudagraph_capture_size",
        )  # fmt: skip


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _scopes(at: At, recipe: Recipe, lane: Lane) -> Iterator[Said]:
    drafters = {*recipe.models, *(m.repo for m in recipe.models.values() if m.repo)}
    scopes = [((*at, "speculative", "rules", i), r.scope) for i, r in enumerate(lane.speculative.rules)]
    scopes += [((*at, "guards", i), g.scope) for i, g in enumerate(lane.guards)]
    for path, scope in scopes:
        if scope.lane is not None and scope.lane not in LANE_NAMES:
            yield "R015", path, f"no lane is called {scope.lane}", f"one of {', '.join(LANE_NAMES)}"
        if scope.drafter is not None and scope.drafter not in drafters:
            yield "R015", path, f"no model is called {scope.drafter}", "write a name under `models`, or its repo"
