"""What somebody may do to the embedded default's files is caught before a boot, also by who locks anew afterwards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, Cli


def remove_the_mask(folder: Path) -> None:
    (folder / "drafter" / "mask_embedding.pt").unlink()


def another_tokenizer(folder: Path) -> None:
    file = folder / "target" / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()), indent=1))


def taps_beyond_the_layers(folder: Path) -> None:
    file = folder / "drafter" / "config.json"
    config = json.loads(file.read_text())
    config["dflash_config"]["target_layer_ids"] = [1, 3, 6]
    file.write_text(json.dumps(config))


def cut_the_weights(folder: Path) -> None:
    file = folder / "drafter" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


BAD: list[tuple[Callable[[Path], None], str]] = [
    (remove_the_mask, "mask_embedding.pt"),
    (another_tokenizer, "tokenizer.json"),
    (taps_beyond_the_layers, "taps"),
    (cut_the_weights, "model.safetensors"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy: no test writes into the checkout."""
    shutil.copytree(ROOT / "recipes" / "tiny-dflash", tmp_path / "recipes" / "tiny-dflash")
    return tmp_path / "recipes" / "tiny-dflash"


@pytest.mark.parametrize(("spoil", "named"), BAD, ids=lambda v: getattr(v, "__name__", ""))
def test_a_spoilt_pair_is_refused_by_its_lock_and_cannot_be_locked_anew(
    cli: Cli, folder: Path, spoil: Callable[[Path], None], named: str
) -> None:
    root = ("--recipes", str(folder.parent))
    spoil(folder)
    served = cli(*root, "serve", "tiny-dflash", "--sm", "cpu", "--dry-run")
    assert served.returncode == 4, served.stdout + served.stderr
    before = (folder / "recipe.lock.yaml").read_bytes()
    locked = cli(*root, "lock", "tiny-dflash", "--sm", "cpu", "--update", "all")
    assert locked.returncode in (3, 4) and named in locked.stderr, locked.stderr
    assert (folder / "recipe.lock.yaml").read_bytes() == before


def test_k_8_on_a_block_of_8_is_refused(cli: Cli) -> None:
    done = cli("serve", "tiny-dflash", "--sm", "cpu", "--k", "8", "--dry-run")
    assert done.returncode == 3 and "8 exceeds 7 (dflash: block_size 8 minus 1)" in done.stderr
