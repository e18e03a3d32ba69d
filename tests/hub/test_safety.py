"""What may lie in a model folder beside a recipe, and the facts that are read from it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from recipectl.errors import LicenseError, PinError
from recipectl.fsio import HashCache
from recipectl.hub.card import card_license
from recipectl.hub.inspect import facts
from recipectl.hub.locking import lock_folder
from recipectl.hub.safetensors import parse_header
from recipectl.hub.store import local_dir
from recipectl.recipe.model import Model
from tests.hub import models

PT = Path(__file__).parents[1] / "data" / "pt"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A drafter in a folder, with the mask embedding that torch wrote for token 3."""
    path = tmp_path / "drafter"
    path.mkdir()
    for name, body in models.drafter().items():
        (path / name).write_bytes(body)
    (path / "mask_embedding.pt").write_bytes((PT / "dict.pt").read_bytes())
    return path


def locked(folder: Path, **model: object) -> list[str]:
    wanted = Model.model_validate({"role": "drafter", "path": "drafter", **model})
    return [f.path for f in lock_folder("drafter", wanted, folder, HashCache(folder.parent / "hashes.json")).files]


def refused(folder: Path, **model: object) -> str:
    with pytest.raises(PinError) as error:
        locked(folder, **model)
    return "\n".join(error.value.lines())


def test_every_file_of_a_local_folder_is_locked(folder: Path) -> None:
    (folder / "notes.xyz").write_text("the engine sees it too")
    assert locked(folder) == ["README.md", "config.json", "mask_embedding.pt", "model.safetensors", "notes.xyz"]


def test_a_mask_for_another_token(folder: Path) -> None:
    (folder / "mask_embedding.pt").write_bytes((PT / "dictparam.pt").read_bytes())
    text = refused(folder)
    assert "mask embedding is for another token" in text and "154856" in text and "3 (config.json)" in text


def test_links(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (folder / "LICENSE").symlink_to(tmp_path / "secret")
    assert "leads out of the model's folder" in refused(folder)
    (folder / "LICENSE").unlink()
    (folder / "LICENSE").symlink_to("README.md")
    assert "a symlink lies in the model's folder" in refused(folder)


def test_a_pipe_is_refused_and_not_read(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert "pipe" in refused(folder)


def test_an_index_that_is_no_json(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("{")
    assert "model.safetensors.index.json is not JSON" in refused(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"architectures": 5},
        {"architectures": [{}]},
        {"dtype": ["x"]},
        {"dflash_config": {"block_size": "x"}},
        {"dflash_config": {"block_size": float("inf")}},
        {"dflash_config": {"target_layer_ids": [1.5, None]}},
    ],
)
def test_a_config_with_something_else_where_facts_stand(change: dict[str, object]) -> None:
    with pytest.raises(PinError, match=r"config\.json does not say"):
        facts(change, {})


def test_json_nested_without_end(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000)
    assert "config.json is not JSON" in refused(folder)
    with pytest.raises(PinError, match="header that is not JSON"):
        parse_header(b"[" * 100_000, "m", 0)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "x.pkl", "model.gguf", "x.ckpt", "x.PTH"])
def test_formats_that_cannot_be_checked(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"x")
    assert name in refused(folder)
    assert name in locked(folder, files={"roles": {name: "for a test"}})


def test_code(folder: Path) -> None:
    (folder / "modeling.py").write_text("import os")
    assert "modeling.py: sha256" in refused(folder)


def test_no_weights_no_config_no_folder(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "no weights" in refused(folder)
    (folder / "config.json").write_text("[]")
    assert "not a JSON object" in refused(folder)
    (folder / "config.json").unlink()
    assert "no readable config.json" in refused(folder)
    assert "is not there" in refused(folder.parent / "nowhere")


def test_a_path_that_leads_out_of_the_recipe(tmp_path: Path) -> None:
    class Entry:
        file = tmp_path / "recipe.yaml"

    assert local_dir(Entry(), "drafter") == tmp_path / "drafter"
    (tmp_path / "link").symlink_to("/etc")
    for path in ("../x", "/etc", "link"):
        with pytest.raises(PinError, match="leads out"):
            local_dir(Entry(), path)


def test_everything_that_was_expected_and_is_not(folder: Path) -> None:
    text = refused(folder, expect={"layers": 8, "taps": [1, 2], "attention": "sliding", "tensors": {"conv": 33}})
    for line in (
        "layers: the recipe expects 8, the model says 1",
        "taps: the recipe expects [1, 2], the model says [1, 3, 4]",
        "attention: the recipe expects sliding, the model says full",
        "tensors named *conv*: the recipe expects 33, found 32",
    ):
        assert line in text


# Keys as published drafters write them (docs/recipes.md names the sources).
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"block_size": 16, "dflash_config": {"block_size": 8, "mask_token_id": 154856}, "mask_token_id": 1},
         {"block_size": 8, "mask_token_id": 154856, "attention": "full", "sliding_window": None}),
        ({"block_size": 8, "sample_from_anchor": True, "dspark_target_layer_ids": [2, 20, 39]},
         {"block_size": 8, "sample_from_anchor": True, "taps": (2, 20, 39), "attention": None}),
        ({"dflash_config": {"target_layer_ids": [5, 14], "use_swa": True, "swa_window_size": 2048}},
         {"taps": (5, 14), "attention": "sliding", "sliding_window": 2048}),
        ({"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4096, "dflash_config": {}},
         {"attention": "sliding", "sliding_window": 4096}),
        ({"text_config": {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3}},
         {"hidden_size": 64, "head_dim": 16, "layers": 3}),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}},
         {"quantization": "modelopt NVFP4"}),
        ({"torch_dtype": "bfloat16"}, {"dtype": "bfloat16"}),
    ],
)  # fmt: skip
def test_facts(config: dict[str, object], expected: dict[str, object]) -> None:
    found = facts(config, {})
    assert {key: getattr(found, key) for key in expected} == expected


def test_facts_from_headers() -> None:
    raw = {"model.fc.weight": {"dtype": "BF16", "shape": [4, 36], "data_offsets": [0, 288]},
           "selector.a": {"dtype": "F32", "shape": [1], "data_offsets": [288, 292]}}  # fmt: skip
    found = facts({}, {"m": parse_header(json.dumps(raw).encode(), "m", 292)}, ["selector", "conv"])
    assert (found.fc_inputs, found.dtype, found.tensors) == (36, "bfloat16", {"*": 2, "selector": 1, "conv": 0})


@pytest.mark.parametrize(
    ("card", "license"),
    [
        ("---\nlicense: cc-by-nc-nd-4.0\n---\ntext", "CC-BY-NC-ND-4.0"),
        ("\ufeff---\nlicense: mit\n---\n", "MIT"),
        ("---\nlicense: other\nlicense_name: glm-license\nlicense_link: LICENSE\n---\n", "LicenseRef-glm-license"),
        ("---\nlicense: [mit, apache-2.0]\n---\n", "MIT AND Apache-2.0"),
        ("---\nlicense: other\nlicense_name: 7\n---\n", "LicenseRef-7"),
        ("---\ntags: [x]\n---\n", None),
        ("# no front matter\nlicense: mit\n", None),
        ("---\nlicense: mit\n", None),
        ("", None),
    ],
)
def test_cards(card: str, license: str | None) -> None:
    assert card_license(card, "card") == license


@pytest.mark.parametrize(
    "card", ["---\nlicense: other\n---\n", "---\n- a\n---\n", "---\na: [\n---\n", "---\nd: 2026-13-01\n---\n"]
)
def test_cards_that_cannot_be_read(card: str) -> None:
    with pytest.raises(LicenseError):
        card_license(card, "card")
