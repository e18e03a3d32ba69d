"""Plans: exact argv, the dialects of engines, what a recipe may not say, and the way to disk and back."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import pytest

from recipectl.errors import RecipeError
from recipectl.recipe.lane import Lane
from recipectl.recipe.parse import parse_text
from recipectl.recipe.schema import Recipe
from recipectl.serving import dialects
from recipectl.serving.plan import Order, Plan, Prompts, compose
from tests.conftest import ROOT

PROMPTS = Prompts("Count.", 200, ("Tell.",))
MODELS = {"target": PurePosixPath("/m/target"), "drafter": PurePosixPath("/m/drafter")}


def tiny() -> Recipe:
    text = (ROOT / "recipes" / "tiny-dflash" / "recipe.yaml").read_text()
    recipe, findings = parse_text(text, "recipe.yaml")
    assert recipe is not None, findings
    return recipe


def changed(lane: Lane, **values: object) -> Lane:
    return Lane.model_validate({**lane.model_dump(), **values})


def order(lane: Lane | None = None, **values: object) -> Order:
    recipe = tiny()
    base: dict[str, object] = {
        "id": "tiny-dflash-cpu-1", "recipe": recipe, "lane_name": "cpu", "lane": lane or recipe.lane("cpu"),
        "variant": None, "models": MODELS, "program": ("python", "-m", "vllm.entrypoints.cli.main"), "port": 8012,
        "prompts": PROMPTS, "recipe_digest": "sha256:r", "lock_digest": "sha256:l", "taps": (1, 3, 4),
    }  # fmt: skip
    return Order(**{**base, **values})  # type: ignore[arg-type]


def test_the_exact_argv_of_the_embedded_default() -> None:
    plan = compose(order())
    assert plan.ranks[0].argv == (
        "python", "-m", "vllm.entrypoints.cli.main", "serve", "/m/target", "--dtype", "float32", "--enforce-eager",
        "--host", "127.0.0.1", "--max-model-len", "1024", "--max-num-seqs", "4",
        "--per-request-spec-decode-metrics", "summary", "--port", "8012", "--served-model-name", "tiny-dflash",
        "--speculative-config", '{"method":"dflash","model":"/m/drafter","num_speculative_tokens":7}',
    )  # fmt: skip
    assert plan.ranks[0].env["HF_HUB_OFFLINE"] == "1" and plan.ranks[0].env["TRANSFORMERS_OFFLINE"] == "1"
    assert (plan.k, plan.url, plan.name) == (7, "http://127.0.0.1:8012", "tiny-dflash-cpu")


def test_a_plan_survives_its_file() -> None:
    plan = compose(order(stamps=("k 5",)))
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_two_nodes_get_ranks_with_a_headless_worker() -> None:
    lane = changed(tiny().lane("cpu"), nodes=2, parallel={"tensor": 2})
    plan = compose(order(lane, hosts=("a", "b"), master="10.77.0.1"))
    head, worker = plan.ranks
    # fixtures: `--tensor-parallel-size 2 --distributed-executor-backend mp --nnodes 2 --node-rank 1 --headless`
    for rank in (head, worker):
        words = " ".join(rank.argv)
        assert "--tensor-parallel-size 2" in words and "--distributed-executor-backend mp" in words
        assert "--nnodes 2" in words and f"--node-rank {rank.rank}" in words
        assert "--master-addr 10.77.0.1" in words and "--master-port 29521" in words
    assert "--headless" in worker.argv and "--port" not in worker.argv
    assert "--headless" not in head.argv and "--port" in head.argv
    with pytest.raises(RecipeError, match=r"runs on 2 machine"):
        compose(order(lane))


def test_the_kv_flag_by_engine_version() -> None:
    args = {"kv_cache_memory_bytes": 4445787956}
    launch = dialects.Launch("/m", None, "m", "127.0.0.1", 1)
    fork = dialects.argv("vllm", "0.1.dev20051+g487ecf187", args, None, launch)
    upstream = dialects.argv("vllm", "0.32.0", {"kv_cache_memory": 4445787956}, None, launch)
    assert fork[fork.index("--kv-cache-memory") + 1] == "4445787956" and "--kv-cache-memory-bytes" not in fork
    assert upstream[upstream.index("--kv-cache-memory-bytes") + 1] == "4445787956"


def test_sglang_counts_the_whole_block() -> None:
    lane = tiny().lane("cpu")
    engine = {**lane.engine.model_dump(), "name": "sglang", "version": None, "runner": None}
    plan = compose(order(changed(lane, engine=engine, args={}), program=("python3", "-m", "sglang.launch_server")))
    words = plan.ranks[0].argv
    # 8 draft tokens = vLLM's K 7 (field report 3a)
    assert words[words.index("--speculative-num-draft-tokens") + 1] == "8"
    assert words[words.index("--speculative-algorithm") + 1] == "DFLASH"
    assert words[words.index("--model-path") + 1] == "/m/target"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ["--a-b"]), (False, ["--no-a-b"]), (None, []), (3, ["--a-b", "3"]),
        ([1, 2, 4], ["--a-b", "1", "2", "4"]),
        ({"x": True}, ["--a-b", '{"x":true}']), ([[1, 2, 3]], ["--a-b", "[[1,2,3]]"]), ("s p", ["--a-b", "s p"]),
    ],
)  # fmt: skip
def test_arguments_become_words(value: object, words: list[str]) -> None:
    assert dialects.render({"a_b": value}) == words  # type: ignore[dict-item]


def test_a_recipe_cannot_say_what_recipectl_composes() -> None:
    launch = dialects.Launch("/m", None, "m", "127.0.0.1", 1)
    with pytest.raises(RecipeError) as caught:
        dialects.argv("vllm", "0.32.0", {"host": "0.0.0.0", "headless": True}, None, launch)
    assert caught.value.seen == "headless, host"


def test_a_recipe_carries_no_token_into_the_engine() -> None:
    lane = changed(tiny().lane("cpu"), env={"HF_TOKEN": "hf_x"})
    with pytest.raises(RecipeError, match="no secrets"):
        compose(order(lane))
