"""`--drafter PATH`: a folder that no recipe names, held to the same rules, stamped, and in no lock."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from recipectl import receipts
from recipectl.bench.target import of_deployment
from recipectl.provenance import summary
from recipectl.serving import deployments
from recipectl.settings import load
from tests.conftest import Cli
from tests.serving.conftest import marked
from tests.serving.test_serve_cli import Shop, running


@pytest.fixture
def shop(cli: Cli, recipe_folder: Path, scripted: Path):  # type: ignore[no-untyped-def]
    made = Shop(cli, recipe_folder)
    yield made
    made("stop", "--all", "--force")
    assert not running() and not marked("nothing-of-that-name")


@pytest.fixture
def own(recipe_folder: Path, tmp_path: Path) -> Path:
    """A drafter of one's own, outside the recipe's folder."""
    folder = tmp_path / "own-drafter"
    shutil.copytree(recipe_folder / "drafter", folder)
    (folder / "README.md").write_text("---\nlicense: mit\n---\nA drafter.\n")
    return folder


def with_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    config = json.loads(file.read_text())
    config["dflash_config"] |= changes
    file.write_text(json.dumps({**config, **changes}))


def test_it_is_served_stamped_and_no_lock_changes(shop: Shop, own: Path) -> None:
    lock = (shop.folder / "recipe.lock.yaml").read_bytes()
    plain = json.loads(shop.serve("healthy", "--dry-run", "--json").stdout)
    done = shop.serve("healthy", "--drafter", str(own), "--json")
    assert done.returncode == 0, done.stderr
    file = Path(json.loads(done.stdout)["receipt"])
    receipt = receipts.load(file.read_text(), file.name)
    stamp = next(a for a in receipt.amendments if a.startswith("unqualified: drafter"))
    assert str(own) in stamp and "license MIT" in stamp and "evidence does not cover it" in stamp
    subjects = {s.name: s.sha256 for s in receipt.subjects}
    assert subjects["model:drafter"] in stamp and subjects["model:drafter"] not in plain["trees"]["drafter"]
    assert f"sha256:{subjects['lock']}" == plain["lock_digest"], "the lock is the one on disk"
    assert str(own) in json.dumps(receipt.ran["ranks"])
    assert any(str(own) in json.dumps(part) and "MIT" in json.dumps(part) for part in receipt.notes["parts"])
    assert (shop.folder / "recipe.lock.yaml").read_bytes() == lock


def test_the_block_is_the_folders_own(shop: Shop, own: Path) -> None:
    with_config(own, block_size=4)
    over = shop.serve("healthy", "--dry-run", "--drafter", str(own))
    assert over.returncode == 3 and "7 exceeds 3 (dflash: block_size 4 minus 1)" in over.stderr, over.stderr
    within = shop.serve("healthy", "--dry-run", "--drafter", str(own), "--k", "3")
    assert within.returncode == 0, within.stderr
    assert '"num_speculative_tokens":3' in within.stdout and str(own) in within.stdout


def test_taps_that_the_target_lacks(shop: Shop, own: Path) -> None:
    with_config(own, target_layer_ids=[1, 3, 40])
    done = shop.serve("healthy", "--drafter", str(own))
    assert done.returncode == 3 and "tap 40 does not exist" in done.stderr, done.stderr


def test_its_license_is_asked_for_like_any_other(shop: Shop, own: Path) -> None:
    (own / "README.md").write_text("---\nlicense: cc-by-nc-nd-4.0\n---\n")
    refused = shop.serve("healthy", "--dry-run", "--drafter", str(own))
    assert refused.returncode == 5 and "--accept-license CC-BY-NC-ND-4.0" in refused.stderr, refused.stderr
    (own / "README.md").unlink()
    unknown = shop.serve("healthy", "--dry-run", "--drafter", str(own), "--json")
    assert unknown.returncode == 0, unknown.stderr
    assert "license unknown" in " ".join(json.loads(unknown.stdout)["stamps"])


@pytest.mark.parametrize(
    ("spoil", "code", "says"),
    [
        ("absent", 2, "there is no folder of that drafter"),
        ("config.json", 4, "the model has no readable config.json"),
        ("mask_embedding.pt", 3, "K009"),
        ("model.safetensors", 4, "no weights"),
    ],
)
def test_what_is_not_a_drafter(shop: Shop, own: Path, spoil: str, code: int, says: str) -> None:
    if spoil == "absent":
        shutil.rmtree(own)
    else:
        (own / spoil).unlink()
    done = shop.serve("healthy", "--drafter", str(own))
    assert done.returncode == code and says in done.stderr, done.stderr
    assert not running() and shop.status() == []


def test_a_name_that_is_neither(shop: Shop) -> None:
    done = shop.serve("healthy", "--drafter", "nobody")
    assert done.returncode == 2 and "one of: drafter; or a folder" in done.stderr, done.stderr


def test_a_changed_file_is_seen(shop: Shop, own: Path) -> None:
    def tree() -> str:
        answer = json.loads(shop.serve("healthy", "--dry-run", "--json", "--drafter", str(own)).stdout)
        return str(answer["trees"]["drafter"])

    before = tree()
    assert tree() == before
    with (own / "model.safetensors").open("r+b") as handle:
        handle.seek(-1, 2)
        last = handle.read(1)
        handle.seek(-1, 2)
        handle.write(bytes([last[0] ^ 1]))
    assert tree() != before


def test_show_holds_it_to_the_rules_before_anything_is_locked(shop: Shop, own: Path) -> None:
    (shop.folder / "recipe.lock.yaml").unlink()
    with_config(own, block_size=4)
    done = shop("show", "tiny-dflash", "--sm", "cpu", "--drafter", str(own), "--json")
    assert done.returncode == 3, done.stderr
    lane = json.loads(done.stdout)["lanes"][0]
    rules = {r["code"]: r for r in lane["rules"]}
    assert rules["K001"]["verdict"] == "FAIL" and rules["K008"]["verdict"] == "PASS"
    assert lane["drafter"]["name"] == str(own) and lane["drafter"]["license"] == "MIT"
    assert lane["speculative_config"]["model"] == str(own) and lane["locked"] == "not locked"
    assert not (shop.folder / "recipe.lock.yaml").exists()
    text = shop("show", "tiny-dflash", "--drafter", str(own), "--k", "3")
    assert text.returncode == 0 and f"drafter  {own}" in text.stdout, text.stdout + text.stderr


def test_a_k_above_the_block_is_told_before_a_missing_lock(shop: Shop) -> None:
    (shop.folder / "recipe.lock.yaml").unlink()
    done = shop.serve("healthy", "--k", "8")
    assert done.returncode == 3 and "8 exceeds 7" in done.stderr, done.stderr
    unlocked = shop.serve("healthy", "--k", "7")
    assert unlocked.returncode == 4 and "is not locked" in unlocked.stderr and "recipectl lock" in unlocked.stderr


def test_a_bench_of_it_says_so(shop: Shop, own: Path) -> None:
    assert shop.serve("healthy", "--drafter", str(own), "--k", "5").returncode == 0
    (live,) = deployments.known(load())
    job = of_deployment(live, ())
    said = summary(job.target.notes)
    assert "departs from the recipe: k 5" in said
    assert [line for line in said if line.startswith(f"departs from the recipe: unqualified: drafter {own}")]
