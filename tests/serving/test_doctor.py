"""The doctor's rows, on machines as the field describes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from recipectl.commands.context import Chosen
from recipectl.commands.joining import Where
from recipectl.commands.placing import OnHost
from recipectl.commands.preflight import check_machine
from recipectl.console import Console
from recipectl.errors import EngineError
from recipectl.gpu import Gpu
from recipectl.recipe.catalog import Entry
from recipectl.recipe.families import FAMILIES
from recipectl.recipe.lane import Lane
from recipectl.serving import doctor, memory
from recipectl.serving.containers import Place
from recipectl.serving.fabric import Facts, Hca, Nic
from recipectl.serving.hosts import parse
from recipectl.serving.machine import Machine
from recipectl.serving.plan import Plan, compose
from recipectl.serving.runtime import Handle
from recipectl.settings import Settings
from tests.serving.test_plan import changed, order, tiny

GIB = 1 << 30
SPARK = FAMILIES["sm121"]
FIT = Machine(
    memory_total=121 * GIB, memory_available=112 * GIB, page_cache=4 * GIB, disk_free={"/models": 500 * GIB},
    open_files=1 << 20, memlock=-1, nics=(Nic("lo", "127.0.0.1", True), Nic("enp1s0f1np1", "192.168.177.11", True)),
    hcas=(Hca("rocep1s0f1", "enp1s0f1np1", True, 3),), kernel=("NVRM: NV_ERR_NO_MEMORY once",), toolkit=True,
    removes_ipc=False,
)  # fmt: skip


def spark_lane() -> Lane:
    lane = tiny().lane("cpu")
    engine = {**lane.engine.model_dump(), "name": "vllm", "version": None, "runtime": "docker"}
    container = {
        "network": "host",
        "ipc": "host",
        "memlock_unlimited": True,
        "devices": ["/dev/infiniband"],
        "gpus": "all",
    }
    return changed(lane, engine=engine, container=container, nodes=2, parallel={"tensor": 2})


def test_a_fit_machine_has_only_good_rows() -> None:
    lane = spark_lane()
    gb10 = Gpu(0, "GPU-1", "NVIDIA GB10", (12, 1), None, "580.95.05")
    rows = [*doctor.cheap(FIT, lane, SPARK), *doctor.fabric(FIT, lane), *doctor.gpu([gb10], lane, SPARK, True),
            *doctor.disk(FIT, 200 * GIB), *doctor.ipc(FIT, lane)]  # fmt: skip
    assert {r.verdict for r in rows} == {"OK"}


@pytest.mark.parametrize(
    "line",
    ["NVRM: Xid (PCI:0000:01:00): 79", "kmemsysRemoveAllAtsPeers", "PMA usage is non-zero", "RmInitAdapter failed!",
     "watchdog: BUG: soft lockup - CPU#3 stuck", "Oops: 0000 [#1]"],
)  # fmt: skip
def test_kernel_lines_that_mean_stop(line: str) -> None:
    row = doctor.kernel(replace(FIT, kernel=(line,)), spark_lane())
    assert row.verdict == "FAIL" and row.fix and "no NVIDIA calls" in row.fix
    # on a lane without GPU they are told, and do not stop it
    assert doctor.kernel(replace(FIT, kernel=(line,)), tiny().lane("cpu")).verdict == "WARN"


def test_page_cache_and_the_floor_on_unified_memory() -> None:
    full = doctor.memory(replace(FIT, page_cache=60 * GIB), spark_lane(), SPARK)
    assert full.verdict == "WARN" and "drop_caches" in (full.fix or "")
    low = replace(FIT, memory_available=6 * GIB)
    assert doctor.memory(low, spark_lane(), SPARK).verdict == "FAIL"
    assert doctor.memory(low, tiny().lane("cpu"), FAMILIES["cpu"]).verdict == "OK"


def test_the_wrong_gpu_the_missing_toolkit_and_dead_links() -> None:
    h200 = Gpu(0, "GPU-2", "NVIDIA H200", (9, 0), 141 * GIB, "570.1")
    rows = {r.what: r for r in doctor.gpu([h200], spark_lane(), SPARK, False)}
    assert rows["GPU"].verdict == "FAIL" and rows["GPU toolkit"].verdict == "FAIL"
    down = replace(FIT, hcas=(Hca("rocep1s0f0", "enp1s0f0np0", False, 1),))
    assert {r.what: r.verdict for r in doctor.fabric(down, spark_lane())} == {"network": "OK", "RDMA": "FAIL"}


def test_a_disk_that_does_not_hold_the_models() -> None:
    row = doctor.disk(replace(FIT, disk_free={"/models": 100 * GIB}), 195 * GIB)[0]
    assert row.verdict == "FAIL" and row.fix == "196.0 GiB are needed there"


def test_the_memory_floor_aborts_a_boot_only_where_it_holds() -> None:
    plan = compose(order())

    def verdict(changed: Plan) -> str | None:
        return memory.Floor(changed, (), lambda _: pytest.fail("no host is far"), pytest.fail)([Handle(0, "local")])

    assert verdict(plan) is None
    low = replace(plan, gates=plan.gates.model_copy(update={"memory_floor_gib": 1e6}))
    assert "the floor is 1000000.0 GiB" in (verdict(low) or "")
    none = plan.gates.model_copy(update={"memory_floor_gib": 0.0})
    assert verdict(replace(plan, unified_memory=True, gates=none)) is None
    assert memory.floor_gib(replace(plan, unified_memory=True)) == 8.0


def test_a_far_host_below_the_floor_is_refused_before_anything_starts(settings: Settings, console: Console) -> None:
    entry = Entry("tiny-dflash", Path("recipe.yaml"), Path("recipe.lock.yaml"), "flag")
    lane = spark_lane()
    lane = changed(lane, gates={**lane.gates.model_dump(), "memory_floor_gib": 0.001})
    chosen = Chosen(entry, tiny(), "sm121", lane, SPARK, None, None)
    on = [OnHost(parse(h), None, None, Place("i", "k", {}, "/c")) for h in ("local", "ssh://b")]  # type: ignore[arg-type]
    said = [Facts(memory_available=1, memory_total=GIB), Facts(memory_available=GIB, memory_total=GIB)]
    check_machine(settings, console, chosen, Where(places=tuple(on), facts=tuple(said)))
    with pytest.raises(EngineError, match="ssh://b is not fit: memory") as caught:
        check_machine(settings, console, chosen, Where(places=tuple(on), facts=tuple(reversed(said))))
    assert caught.value.seen == "0.0 of 1.0 GiB available"
