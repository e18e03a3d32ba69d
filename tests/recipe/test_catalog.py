"""Where recipes are found, and where their locks go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recipectl.errors import PinError, RecipeError, UsageError
from recipectl.recipe import catalog
from recipectl.settings import Settings

GOOD = (Path(__file__).parents[1] / "data" / "good" / "minimal.yaml").read_text()


def put(folder: Path, name: str, text: str | None = None) -> Path:
    file = folder / name / "recipe.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text or GOOD.replace("name: minimal", f"name: {name}"))
    return file


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


def test_the_search_path_first_match_counts(settings: Settings, tmp_path: Path) -> None:
    put(tmp_path / "flag", "a")
    put(Path("recipes"), "a")
    put(Path("recipes"), "b")
    put(settings.data_dir / "recipes", "b")
    put(settings.data_dir / "recipes", "c")
    found = {e.name: e.source for e in catalog.entries(settings.with_flags(recipes_dirs=(tmp_path / "flag",)))}
    assert {name: found[name] for name in "abc"} == {"a": "flag", "b": "cwd", "c": "user"}
    assert found["tiny-dflash"] == "wheel"  # the checkout's recipes stand in for the wheel's


def test_a_recipe_is_found_by_name_file_and_folder(settings: Settings) -> None:
    file = put(Path("recipes"), "mine")
    for given in ("mine", "recipes/mine", "recipes/mine/recipe.yaml", str(file.resolve())):
        assert catalog.find(settings, given).name == "mine"
    loose = Path("loose.yaml")
    loose.write_text(GOOD)
    entry = catalog.find(settings, "loose.yaml")
    assert (entry.name, entry.lock_file) == ("loose", Path("loose.lock.yaml"))


def test_an_unknown_name_offers_the_nearest(settings: Settings) -> None:
    put(Path("recipes"), "mine")
    with pytest.raises(UsageError) as refused:
        catalog.find(settings, "mien")
    assert refused.value.expected == "mine" and refused.value.next_step == "`recipectl show mine`"
    assert "looked in recipes" in refused.value.details


@pytest.mark.parametrize("given", ["no/such", "no.yaml", "."])
def test_a_path_without_a_recipe_is_a_usage_error(settings: Settings, given: str) -> None:
    with pytest.raises(UsageError, match="no recipe at this path"):
        catalog.find(settings, given)


def test_a_missing_recipes_folder_is_a_usage_error(settings: Settings) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        catalog.entries(settings.with_flags(recipes_dirs=(Path("nowhere"),)))


def test_a_lock_is_written_beside_its_recipe_where_that_is_writable(settings: Settings) -> None:
    file = put(Path("recipes"), "mine")
    assert catalog.find(settings, "mine").lock_file == file.with_name("recipe.lock.yaml")


def test_the_locks_of_a_wheel_go_to_the_users_folder(settings: Settings, tmp_path: Path) -> None:
    file = put(tmp_path / "site-packages" / "recipectl" / "_data" / "recipes", "mine")
    entry = catalog.find(settings, str(file))
    assert entry.lock_file == settings.data_dir / "locks" / "mine.lock.yaml"
    assert catalog.load_lock(entry) is None
    lock = "schema: 1\nrecipe: mine\nresolution: {}\n"
    file.with_name("recipe.lock.yaml").write_text(lock)
    shipped = catalog.load_lock(entry)
    assert shipped is not None and shipped.recipe == "mine"  # one that travels in the wheel holds until there is an own


def test_the_lock_of_a_read_only_folder_goes_to_the_users_folder(settings: Settings) -> None:
    file = put(Path("recipes"), "mine")
    file.parent.chmod(0o555)
    if os.getuid() == 0:  # root may write everywhere: ask as somebody else (access(2) goes by the real uid)
        os.setresuid(65534, 0, 0)
    try:
        entry = catalog.find(settings, "mine")
    finally:
        if os.geteuid() == 0:
            os.setresuid(0, 0, 0)
        file.parent.chmod(0o755)
    assert entry.lock_file == settings.data_dir / "locks" / "mine.lock.yaml"


def test_load_carries_every_error_with_its_fix(settings: Settings) -> None:
    put(
        Path("recipes"), "mine", GOOD.replace("name: minimal", "name: mine").replace("k: 7", 'k: "7"') + "    nods: 2\n"
    )
    with pytest.raises(RecipeError) as refused:
        catalog.load(catalog.find(settings, "mine"))
    error = refused.value
    assert error.exit_code == 3 and error.what == "the recipe has 2 errors"
    place = "recipes/mine/recipe.yaml:26:35: error[P004] lanes.cpu.speculative.k"
    assert error.details == (
        f'{place}: expected a whole number, got the text "7"',
        "  fix: write 7 without quotes",
        "recipes/mine/recipe.yaml:28:5: error[P003] lanes.cpu.nods: unknown key `nods`",
        "  fix: write `nodes`",
    )
    assert error.next_step == "mend the file, then `recipectl check recipes/mine/recipe.yaml`"


def test_a_file_that_is_no_text_is_a_recipe_error(settings: Settings) -> None:
    file = put(Path("recipes"), "mine")
    file.write_bytes(b"schema: 1\nname: \xff\xfe\n")
    with pytest.raises(RecipeError) as refused:
        catalog.load(catalog.find(settings, "mine"))
    assert refused.value.details[0].startswith("recipes/mine/recipe.yaml:2:1: error[P001] not UTF-8 text")


def test_a_damaged_lock_is_a_pin_error(settings: Settings) -> None:
    file = put(Path("recipes"), "mine")
    file.with_name("recipe.lock.yaml").write_text("schema: 1\n")
    with pytest.raises(PinError):
        catalog.load_lock(catalog.find(settings, "mine"))
