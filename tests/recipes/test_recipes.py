"""What must hold of every recipe of the field: clean, sourced value by value, benched under a protocol that exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from recipectl.bench import protocol
from recipectl.checking import check_entry
from recipectl.recipe import catalog, evidence, rules
from recipectl.recipe.lane import Lane
from recipectl.recipe.parse import parse_document
from recipectl.settings import Settings
from tests.recipes import yardstick

FIELD = sorted(p.parent.name for p in (yardstick.ROOT / "recipes").glob("*/recipe.yaml"))
OURS = ("tiny-dflash", "dflash2-lab")  # ran here: their values need no outside source
SOURCED = [name for name in FIELD if name not in OURS]


def lanes(name: str) -> Iterator[tuple[str, Lane]]:
    yield from yardstick.load(name).all_lanes()


@pytest.mark.parametrize("name", SOURCED)
def test_strict_check_is_clean(name: str, settings: Settings) -> None:
    entry = catalog.find(settings, str(yardstick.ROOT / "recipes" / name / "recipe.yaml"))
    found = [f for f in check_entry(entry).findings if f.level != "note"]
    assert not found, "\n".join(line for f in found for line in f.lines())


@pytest.mark.parametrize("name", SOURCED)
def test_every_argument_and_variable_names_its_source(name: str) -> None:
    for where, lane in lanes(name):
        assert lane.args.keys() <= lane.args_evidence.keys(), where
        assert lane.env.keys() <= lane.env_evidence.keys(), where


@pytest.mark.parametrize("name", SOURCED)
def test_every_evidence_leads_to_a_listed_source(name: str) -> None:
    """`sfxnz repository: run.sh` begins with the title of a source under provenance, where its license stands."""
    recipe = yardstick.load(name)
    titles = [s.title for s in recipe.provenance.sources]
    told = [e.source for _, lane in recipe.all_lanes() for _, _, e in evidence.rows(recipe, lane)]
    told += [n.source for n in (*recipe.provenance.caveats, *recipe.provenance.amendments, *recipe.provenance.related)]
    told += [c.source for c in recipe.provenance.credits if c.source]
    lost = {s for s in told if not any(s == t or s.startswith(f"{t}: ") for t in titles)}
    assert not lost
    unused = {t for t in titles if not any(s == t or s.startswith(f"{t}: ") for s in told)}
    assert not unused


# A package version, a commit or a blob dates what it holds; pages without a date are named here.
PINNED = re.compile(r"@[0-9a-f]{7,40}\b|\bblob [0-9a-f]{40}\b|\b\d+\.\d+\.\d+\b")
UNDATED_PAGES = {"ATOM documentation", "SpecForge draft card"}


@pytest.mark.parametrize("name", SOURCED)
def test_rules_gates_and_published_numbers_name_source_and_date(name: str) -> None:
    recipe = yardstick.load(name)
    pinned = {s.title for s in recipe.provenance.sources if PINNED.search(s.where)} | UNDATED_PAGES
    for where, lane in recipe.all_lanes():
        judged = [(f"rule {r.k}", r.evidence) for r in lane.speculative.rules]
        judged += [(f"guard {g.key}", p.evidence) for g in lane.guards for p in g.points]
        judged += [(f"log {line.pattern}", line.evidence) for line in lane.gates.required_log]
        judged += [(f"acceptance {n}", a.evidence) for n, a in lane.gates.acceptance.items()]
        judged += [(f"{b.protocol} {r.phase}", r.evidence) for b in lane.bench for r in b.published]
        if lane.gates.kv_pool_tokens_min:
            judged.append(("pool", lane.gates.evidence))
        assert [what for what, found in judged if not found] == [], where
        rows = evidence.rows(recipe, lane)
        loose = {
            e.source for at, _, e in rows if at.startswith(("speculative", "guards", "gates", "bench")) and not e.date
        }
        assert {s for s in loose if s.split(": ", 1)[0] not in pinned} == set(), where


def test_a_default_that_rests_on_taken_back_evidence_alone_is_warned_about() -> None:
    """The E card's "K must be 7" was taken back by its authors; with nothing but it, the default has no ground."""
    file = yardstick.ROOT / "recipes" / "glm53-flash-dflash2e" / "recipe.yaml"
    document = parse_document(file.read_text(), str(file))
    rules.check(document)
    assert "R006" not in [f.code for f in document.findings]
    data = yaml.safe_load(file.read_text())
    spec = data["lanes"]["sm121"]["speculative"]
    spec["evidence"] = []
    spec["rules"] = [r for r in spec["rules"] if any(e.get("status") == "retracted" for e in r["evidence"])]
    spec["rules"] = [
        {**r, "evidence": [e for e in r["evidence"] if e.get("status") == "retracted"]} for r in spec["rules"]
    ]
    assert spec["rules"], "the card's rule is kept with its retraction"
    document = parse_document(yaml.safe_dump(data, sort_keys=False), "e.yaml")
    rules.check(document)
    found = [f for f in document.findings if f.code == "R006"]
    assert found and found[0].level == "warning" and "2026-09-26" in found[0].message


@pytest.mark.parametrize("name", FIELD)
def test_published_rows_belong_to_a_protocol_and_its_phases(name: str) -> None:
    folder = yardstick.ROOT / "recipes" / name
    for where, lane in lanes(name):
        for bench in lane.bench:
            known = protocol.load(bench.protocol)
            protocol.with_settings(known, bench.settings, folder)
            assert {row.phase for row in bench.published} <= set(known.phases), (where, bench.protocol)


@pytest.mark.parametrize("name", FIELD)
def test_rows_name_variants_that_exist(name: str) -> None:
    recipe = yardstick.load(name)
    for lane_name, lane in recipe.lanes.items():
        variants = dict({str(k): v for k, v in recipe.variants.items()}.get(str(lane_name), {}))
        named = {row.variant for b in lane.bench for row in b.published if row.variant}
        assert named <= variants.keys(), lane_name


@pytest.mark.parametrize("name", FIELD)
def test_nothing_of_one_machine_and_no_secret_is_in_it(name: str) -> None:
    text = (yardstick.ROOT / "recipes" / name / "recipe.yaml").read_text()
    assert not re.search(r"/home/|/root/(?!\.cache|\.tilelang)|\b(?:10|192\.168)\.\d+\.\d+\.\d+|hf_\w{8}", text)


def test_methods_and_depths_of_the_field_differ() -> None:
    """The rules are seen to differ: DFlash stops one below its block, DSpark may fill it, MTP has no block."""
    seen: dict[str, set[tuple[Any, ...]]] = {}
    for name in SOURCED:
        for _, lane in lanes(name):
            spec = lane.speculative
            seen.setdefault(spec.method, set()).add((spec.k, spec.block_size))
    assert {(5, 8), (7, 8), (15, 16)} <= seen["dflash"]
    assert (5, 5) in seen["dspark"]
    assert {k for k, _ in seen["mtp"]} >= {1, 2, 3, 4, 5}


def test_engines_and_families_of_the_field_differ() -> None:
    engines = {lane.engine.name for n in SOURCED for _, lane in lanes(n)}
    families = {str(f) for n in SOURCED for f in yardstick.load(n).lanes}
    assert engines == {"vllm", "sglang"}
    assert families == {"sm100", "sm121"}


def test_the_drafter_with_restrictions_names_a_free_recipe() -> None:
    for name in SOURCED:
        recipe = yardstick.load(name)
        default = {lane.drafter for lane in recipe.lanes.values() if lane.drafter}
        bound = [m for m in default if (recipe.models[m].license or "").startswith("CC-BY-NC")]
        if bound:
            assert recipe.alternative is not None, name
            free = yardstick.load(recipe.alternative)
            drafters = {free.models[lane.drafter].license for lane in free.lanes.values() if lane.drafter}
            assert drafters == {"Apache-2.0"}
