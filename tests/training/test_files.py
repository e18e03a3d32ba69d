"""The shipped pair: what its record says it is, readable without PyTorch, and small."""

from __future__ import annotations

import json
import math
import pickletools
import struct
import zipfile
from pathlib import Path
from typing import Any

import provenance
import pytest

from .conftest import RECIPE

TARGET, DRAFTER = RECIPE / "target", RECIPE / "drafter"


def header(path: Path) -> dict[str, Any]:
    """The tensor table of a safetensors file, after checking that the file is as long as the table says."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    table: dict[str, Any] = json.loads(content[8 : 8 + length])
    table.pop("__metadata__", None)
    assert max(entry["data_offsets"][1] for entry in table.values()) == len(content) - 8 - length
    return table


def config(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return loaded


@pytest.mark.parametrize("folder", [TARGET, DRAFTER], ids=["target", "drafter"])
def test_the_record_names_every_file_with_its_sha256(folder: Path) -> None:
    record = provenance.read(folder / provenance.NAME)
    assert record["FILES"] == provenance.hashes(RECIPE)
    assert record["TRAINING"]


def test_both_folders_carry_the_same_record() -> None:
    assert (TARGET / provenance.NAME).read_bytes() == (DRAFTER / provenance.NAME).read_bytes()


def test_the_pair_is_at_most_16_mb() -> None:
    files = [path for folder in (TARGET, DRAFTER) for path in folder.iterdir()]
    assert sum(path.stat().st_size for path in files) <= 16_000_000


@pytest.mark.parametrize("folder", [TARGET, DRAFTER], ids=["target", "drafter"])
def test_weights_are_bf16_and_lie_without_gaps(folder: Path) -> None:
    at = 0
    for entry in sorted(header(folder / "model.safetensors").values(), key=lambda entry: entry["data_offsets"]):
        assert entry["dtype"] == "BF16"
        begin, end = entry["data_offsets"]
        assert (begin, end - begin) == (at, 2 * math.prod(entry["shape"]))
        at = end


def test_the_drafter_borrows_embedding_and_head() -> None:
    assert not any("embed_tokens" in name or "lm_head" in name for name in header(DRAFTER / "model.safetensors"))


def test_taps_block_and_mask_fit_the_target() -> None:
    target, drafter = config(TARGET), config(DRAFTER)
    dflash = drafter["dflash_config"]
    assert drafter["block_size"] == dflash["block_size"] == 8
    assert max(dflash["target_layer_ids"]) < target["num_hidden_layers"] - 1
    shape = header(DRAFTER / "model.safetensors")["fc.weight"]["shape"]
    assert shape == [drafter["hidden_size"], len(dflash["target_layer_ids"]) * target["hidden_size"]]
    for name in ("vocab_size", "hidden_size", "max_position_embeddings"):
        assert target[name] == drafter[name]


def test_the_mask_embedding_is_a_plain_dictionary_for_the_mask_token() -> None:
    with zipfile.ZipFile(DRAFTER / "mask_embedding.pt") as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
        operations = list(pickletools.genops(archive.read(name)))
    words = [argument for _, argument, _ in operations if isinstance(argument, str)]
    assert "mask_token_id" in words
    assert "embedding" in words
    called = {argument for operation, argument, _ in operations if operation.name == "GLOBAL"}
    assert called <= {"torch._utils _rebuild_tensor_v2", "torch BFloat16Storage", "collections OrderedDict"}


def test_every_digit_is_a_token_of_its_own() -> None:
    tokenizer = json.loads((TARGET / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    assert all(digit in vocabulary for digit in "0123456789")
    assert not [token for token in vocabulary if any(letter.isdigit() for letter in token) and len(token) > 1]
    assert len(vocabulary) == config(TARGET)["vocab_size"]


def test_special_tokens_have_the_ids_that_the_configs_name() -> None:
    tokenizer = json.loads((TARGET / "tokenizer.json").read_text(encoding="utf-8"))
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    target = config(TARGET)
    assert ids["<|im_end|>"] == target["eos_token_id"]
    assert ids["<|endoftext|>"] == target["pad_token_id"]
    assert ids["<|mask|>"] == config(DRAFTER)["dflash_config"]["mask_token_id"]


@pytest.mark.parametrize("folder", [TARGET, DRAFTER], ids=["target", "drafter"])
def test_model_cards_open_with_the_license(folder: Path) -> None:
    assert (folder / "README.md").read_text(encoding="utf-8").startswith("---\nlicense: apache-2.0\n")
