"""Hosts as written, and what is concluded from what they say: pinned, the only choice, or refused with the choices."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from recipectl.errors import PinError, UsageError
from recipectl.serving import far_probe
from recipectl.serving.fabric import Facts, Hca, Nic, facts, join, parity, require_parity
from recipectl.serving.hosts import Host, parse, parse_all
from tests.recipes import yardstick

TREES = {"target": "sha256:t"}
# Two GB10 as NVIDIA's playbook shows them: four RDMA devices, two of them down (field report 9).
SPARK = Facts(
    nics=(Nic("lo", "127.0.0.1", True), Nic("enP7s7", "10.0.0.5", True), Nic("enp1s0f1np1", "192.168.177.11", True)),
    hcas=(
        Hca("rocep1s0f0", "enp1s0f0np0", False, 1), Hca("rocep1s0f1", "enp1s0f1np1", True, 3),
        Hca("roceP2p1s0f0", "enP2p1s0f0np0", False, 1), Hca("roceP2p1s0f1", "enP2p1s0f1np1", True, 3),
    ),
    models=TREES, driver="580.95.05",
)  # fmt: skip
LAB = Facts(nics=(Nic("lo", "127.0.0.1", True), Nic("fab0", "10.77.0.1", True)), models=TREES)


def test_the_forms_of_a_host() -> None:
    assert parse("local") == Host("local", None)
    assert parse("unix:///run/a.sock").engine == "unix:///run/a.sock"
    far = parse("ssh://me@spark2:2222#address=192.168.177.12,interface=enp1s0f1np1")
    assert (far.name, far.address, far.interface, far.here) == (
        "ssh://me@spark2:2222", "192.168.177.12", "enp1s0f1np1", False,
    )  # fmt: skip


def test_commas_separate_hosts_and_facts() -> None:
    found = parse_all("local#interface=a,hca=b,ssh://w#address=10.0.0.2", (), 2)
    assert [(h.name, h.interface, h.hca, h.address) for h in found] == [
        ("local", "a", "b", None), ("ssh://w", None, None, "10.0.0.2"),
    ]  # fmt: skip


def test_a_docker_context_is_looked_up(tmp_path: Path) -> None:
    meta = tmp_path / "meta" / hashlib.sha256(b"spark2").hexdigest() / "meta.json"
    meta.parent.mkdir(parents=True)
    meta.write_text(json.dumps({"Name": "spark2", "Endpoints": {"docker": {"Host": "ssh://me@spark2"}}}))
    assert parse("spark2", tmp_path).engine == "ssh://me@spark2"
    with pytest.raises(UsageError, match="no such host"):
        parse("spark3", tmp_path)


@pytest.mark.parametrize("text", ["tcp://10.0.0.2:2375", "ssh://me:secret@h", "local#speed=9", "nowhere"])
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, Path("/nonexistent"))
    assert "secret" not in "\n".join(caught.value.lines())


def test_the_number_of_hosts_must_fit_and_none_twice() -> None:
    assert [h.name for h in parse_all(None, (), 1)] == ["local"]
    with pytest.raises(UsageError, match="runs on 2"):
        parse_all(None, (), 2)
    with pytest.raises(UsageError, match="named twice"):
        parse_all("local,local", (), 2)


def test_one_interface_each_is_taken_and_shown() -> None:
    other = Facts(nics=(Nic("fab1", "10.77.0.2", True),), models=TREES)
    found = join([Host("a", None), Host("b", "ssh://b")], [LAB, other], ["VLLM_HOST_IP", "GLOO_SOCKET_IFNAME"])
    assert found.master == "10.77.0.1"
    assert found.env[1] == {"VLLM_HOST_IP": "10.77.0.2", "GLOO_SOCKET_IFNAME": "fab1"}
    assert found.shown[1] == "b: VLLM_HOST_IP=10.77.0.2, GLOO_SOCKET_IFNAME=fab1"


def test_several_interfaces_are_never_guessed() -> None:
    with pytest.raises(UsageError) as caught:
        join([Host("a", None), Host("b", "ssh://b")], [SPARK, SPARK], ["VLLM_HOST_IP"])
    assert "which interface of a" in caught.value.what and "enP7s7 10.0.0.5 up" in (caught.value.seen or "")
    assert "#interface=" in (caught.value.next_step or "")


def test_a_pinned_interface_brings_its_hca_and_gid() -> None:
    wanted = ["VLLM_HOST_IP", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX"]
    pinned = [Host("a", None, interface="enp1s0f1np1"), Host("b", "ssh://b", address="192.168.177.11", gid_index="5")]
    found = join(pinned, [SPARK, SPARK], wanted)
    assert found.env[0] == {
        "VLLM_HOST_IP": "192.168.177.11", "NCCL_SOCKET_IFNAME": "enp1s0f1np1", "NCCL_IB_HCA": "rocep1s0f1",
        "NCCL_IB_GID_INDEX": "3",
    }  # fmt: skip
    assert found.env[1]["NCCL_IB_GID_INDEX"] == "5"


def test_every_variable_that_a_recipe_of_ours_leaves_to_us_is_found_out() -> None:
    pinned = [Host(name, None, interface="enp1s0f1np1") for name in ("a", "b")]
    wanted = {
        variable for file in (yardstick.ROOT / "recipes").glob("*/recipe.yaml")
        for _, lane in yardstick.load(file.parent.name).all_lanes() for variable in lane.per_rank_env
    }  # fmt: skip
    found = join(pinned, [SPARK, SPARK], sorted(wanted)).env[0]
    assert found["SGLANG_HOST_IP"] == "192.168.177.11" and found["NCCL_IB_ADDR_RANGE"] == "192.168.177.11/32"
    assert found.keys() == wanted


def test_a_variable_that_nobody_knows_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UsageError, match="no fact about a host gives NCCL_ALGO") as caught:
        join([Host("a", None), Host("b", "ssh://b")], [LAB, LAB], ["VLLM_HOST_IP", "NCCL_ALGO"])
    assert "GLOO_SOCKET_IFNAME" in (caught.value.expected or "")


def test_a_pinned_port_that_is_down_is_refused() -> None:
    down = [Host("a", None, interface="enp1s0f1np1", hca="rocep1s0f0"), Host("b", "ssh://b", interface="enp1s0f1np1")]
    with pytest.raises(UsageError, match="NCCL_IB_HCA cannot be found out on a"):
        join(down, [SPARK, SPARK], ["NCCL_IB_HCA"])
    with pytest.raises(UsageError, match="no such interface that is up"):
        join([Host("a", None, interface="ib9"), Host("b", "ssh://b")], [SPARK, LAB], ["VLLM_HOST_IP"])


def test_what_must_be_equal_on_all_machines() -> None:
    hosts = [Host("a", None), Host("b", "ssh://b")]
    assert parity(hosts, [LAB, LAB], TREES) == []
    other = Facts(models={"target": "sha256:x"})
    assert parity(hosts, [LAB, other], TREES) == ["b: the target is sha256:x, the lock says sha256:t"]
    assert "drivers differ" in parity(hosts, [LAB, SPARK], TREES)[0]
    with pytest.raises(PinError, match="must not form one server"):
        require_parity(["b: target/model.safetensors is missing"])


def test_the_probe_says_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "m"
    model.mkdir()
    (model / "a.bin").write_bytes(b"abc")
    sha = hashlib.sha256(b"abc").hexdigest()
    order = {"models": {"target": {"folder": str(model), "files": {"a.bin": sha, "b.bin": sha}}},
             "cache": str(tmp_path / "hashes.json")}  # fmt: skip
    monkeypatch.setattr("sys.argv", ["probe", json.dumps(order)])
    far_probe.main()
    found = facts(json.loads(capsys.readouterr().out))
    assert found.problems == ("target/b.bin is missing",)
    assert any(n.address == "127.0.0.1" for n in found.nics)
    (model / "a.bin").write_bytes(b"abd")  # same size: only the identity tells
    far_probe.main()
    again = facts(json.loads(capsys.readouterr().out))
    assert any("a.bin has sha256" in p for p in again.problems)
