"""check, show, list, use, new as a user meets them: findings with their lines, verdicts with their sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recipectl import lockfile
from recipectl.checking import check_entry
from recipectl.lockfile import Facts, Lock, LockedFile, LockedModel, tree_digest
from recipectl.recipe import catalog
from recipectl.settings import Settings

from .conftest import DATA, ROOT, Cli

GOOD = (DATA / "good" / "minimal.yaml").read_text()


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A recipe `mine` in ./recipes of an empty folder; returns that folder."""
    folder = tmp_path / "work"
    (folder / "recipes" / "mine").mkdir(parents=True)
    (folder / "recipes" / "mine" / "recipe.yaml").write_text(GOOD.replace("name: minimal", "name: mine"))
    return folder


def edit(folder: Path, old: str, new: str) -> None:
    file = folder / "recipes" / "mine" / "recipe.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def locked(folder: Path, settings: Settings, facts: Facts, *names: str) -> None:
    entry = catalog.find(settings, str(folder / "recipes" / "mine"))
    recipe = catalog.load(entry)
    sums = dict.fromkeys(names, "0" * 64)
    files = tuple(LockedFile(path=p, size=1, sha256=s) for p, s in sums.items())
    models = {
        role: LockedModel(
            role=role, path=role, tree=tree_digest(sums), files=files, facts=facts, license=recipe.models[role].license
        )
        for role in ("target", "drafter")
    }
    lock = Lock(recipe="mine", resolution={"cpu": lockfile.resolution_digest(recipe, "cpu")}, models=models)
    entry.lock_file.write_text(lockfile.dump(lock))


def test_every_recipe_of_this_repository_is_free_of_errors(settings: Settings) -> None:
    """The recipes' own tests hold them to more; this one says which recipe broke a rule of the format."""
    broken = {
        entry.name: [line for f in check_entry(entry).findings if f.level == "error" for line in f.lines()]
        for entry in catalog.entries(settings)
    }
    assert {name: lines for name, lines in broken.items() if lines} == {}


def test_check_is_quiet_about_a_good_recipe(cli: Cli, mine: Path) -> None:
    done = cli("check", "mine", cwd=mine)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 recipe: 0 errors, 0 warnings; ")


def test_k_8_on_a_block_of_8_ends_with_exit_code_3(cli: Cli, mine: Path) -> None:
    edit(mine, "k: 7", "k: 8")
    done = cli("check", "mine", cwd=mine)
    assert done.returncode == 3
    place = "recipes/mine/recipe.yaml:26:35: error[K001] lanes.cpu.speculative.k"
    assert done.stdout.splitlines()[:2] == [
        f"{place}: 8 exceeds 7 (dflash: block_size 8 minus 1)",
        "  fix: set K to 7 or less",
    ]


def test_strict_turns_warnings_into_an_exit_code(cli: Cli, mine: Path) -> None:
    edit(mine, "    path: drafter\n    license: Apache-2.0\n", "    path: drafter\n")
    assert cli("check", "mine", cwd=mine).returncode == 0
    done = cli("check", "mine", "--strict", cwd=mine)
    assert done.returncode == 3 and "1 warning (errors with --strict)" in done.stdout


def test_a_warning_that_the_author_states_is_a_note(cli: Cli, mine: Path) -> None:
    edit(mine, "    path: drafter\n", "    repo: org/drafter\n    evidence: [{source: a card, status: unresolved}]\n")
    done = cli("check", "mine", "--strict", cwd=mine)
    assert done.returncode == 0 and "note[R003]" in done.stdout


def test_check_json_is_one_document_with_findings_and_rules(cli: Cli, mine: Path) -> None:
    edit(mine, "k: 7", "k: 8")
    done = cli("check", "mine", "--json", cwd=mine)
    document = json.loads(done.stdout)
    assert done.returncode == 3 and document["ok"] is False
    (one,) = document["recipes"]
    assert one["errors"] == 1
    assert {"code": "K001", "line": 26, "column": 35, "level": "error"}.items() <= one["findings"][0].items()
    k001 = next(r for r in one["rules"]["cpu"] if r["code"] == "K001")
    assert k001["verdict"] == "FAIL" and k001["evidence"]


def test_check_goes_on_after_a_broken_recipe(cli: Cli, mine: Path) -> None:
    done = cli("check", "mine", str(DATA / "bad" / "yaml-tab.yaml"), str(DATA / "bad" / "k-0.yaml"), cwd=mine)
    assert done.returncode == 3
    assert "error[P001]" in done.stdout and "error[K001]" in done.stdout and "3 recipes: 2 errors" in done.stdout


def test_check_prints_the_schema(cli: Cli) -> None:
    done = cli("check", "--schema")
    assert json.loads(done.stdout) == json.loads((ROOT / "docs/schema/recipe.schema.json").read_text())


def test_lock_facts_decide_what_a_recipe_alone_cannot(mine: Path, settings: Settings) -> None:
    entry = catalog.find(settings, str(mine / "recipes" / "mine"))
    before = {v.code: v.verdict for v in check_entry(entry).verdicts["cpu"]}
    assert before["K008"] == "NOT_CHECKED"
    locked(mine, settings, Facts(block_size=8, architecture="DFlashDraftModel", max_positions=4096), "a.safetensors")
    after = {v.code: v.verdict for v in check_entry(entry).verdicts["cpu"]}
    assert (after["K007"], after["K008"], after["K011"]) == ("PASS", "PASS", "PASS")


def test_a_stale_lock_warns_and_a_damaged_one_is_an_error(cli: Cli, mine: Path, settings: Settings) -> None:
    locked(mine, settings, Facts(), "a.safetensors")
    assert cli("check", "mine", "--strict", cwd=mine).returncode == 0
    edit(mine, "    path: drafter\n", "    path: other\n")
    done = cli("check", "mine", cwd=mine)
    assert done.returncode == 0 and "warning[L002] lane cpu: model drafter: recipe says other@None" in done.stdout
    lock = mine / "recipes" / "mine" / "recipe.lock.yaml"
    lock.write_text(lock.read_text().replace("0000", "0001", 1))
    done = cli("check", "mine", cwd=mine)
    assert done.returncode == 3 and "error[L001]" in done.stdout


def test_a_moving_revision_is_told_with_the_commit_to_paste(mine: Path, settings: Settings) -> None:
    edit(mine, "    path: drafter\n", "    repo: org/drafter\n    revision: main\n")
    entry = catalog.find(settings, str(mine / "recipes" / "mine"))
    model = LockedModel(role="drafter", repo="org/drafter", ref="main", commit="c" * 40, tree=tree_digest({}), files=())
    entry.lock_file.write_text(lockfile.dump(Lock(recipe="mine", resolution={}, models={"drafter": model})))
    found = next(f for f in check_entry(entry).findings if f.code == "R003")
    assert found.fix == f"write `revision: {'c' * 40}`, as locked"


def test_the_folder_gives_the_name(cli: Cli, mine: Path) -> None:
    edit(mine, "name: mine", "name: other")
    done = cli("check", "mine", cwd=mine)
    assert done.returncode == 3 and "error[R014] name: the recipe is named other, its folder mine" in done.stdout


def test_show_prints_the_exact_config_captures_and_every_rule(cli: Cli, mine: Path) -> None:
    done = cli("show", "mine", "--sm", "cpu", cwd=mine)
    folder = (mine / "recipes" / "mine" / "drafter").resolve()
    assert done.returncode == 0
    config = f'--speculative-config {{"method":"dflash","model":"{folder}","num_speculative_tokens":7}}'
    assert config in done.stdout
    for code in (f"K{n:03}" for n in range(1, 15)):
        assert f"\n{code}  " in done.stdout
    assert "vLLM 0.32.0 config/speculative.py" in done.stdout


def test_show_with_another_k_is_held_to_the_rules(cli: Cli, mine: Path) -> None:
    done = cli("show", "mine", "--sm", "cpu", "--k", "8", cwd=mine)
    assert done.returncode == 3
    assert "K001  FAIL" in done.stdout and "K001 fix: set K to 7 or less" in done.stdout


def test_files_that_differ_are_mended_where_they_came_from(cli: Cli, mine: Path, settings: Settings) -> None:
    """No pull can fetch what lies beside the recipe."""
    locked(mine, settings, Facts(), "config.json")
    done = cli("verify", "mine", cwd=mine)
    assert done.returncode == 4 and "recipectl pull" not in done.stderr
    assert "restore target, drafter as locked, or pin the files that are there: `recipectl lock mine" in done.stderr


def test_a_hub_model_is_mended_by_pull(cli: Cli, mine: Path, settings: Settings) -> None:
    edit(mine, "path: drafter", f"repo: org/drafter\n    revision: {'a' * 40}")
    locked(mine, settings, Facts(), "config.json")
    file = mine / "recipes/mine/recipe.lock.yaml"
    file.write_text(file.read_text().replace("path: drafter", f"repo: org/drafter\n    commit: {'a' * 40}"))
    done = cli("verify", "mine", cwd=mine)
    assert done.returncode == 4 and "`recipectl pull mine --sm cpu` fetches what is missing" in done.stderr
    assert "restore target as locked" in done.stderr


def test_show_json_holds_config_and_verdicts(cli: Cli, mine: Path) -> None:
    done = cli(
        "show", "mine", "--sm", "cpu", "--k", "5", "--set", "args.max_num_seqs=2", "--json", "--evidence", cwd=mine
    )
    (lane,) = json.loads(done.stdout)["lanes"]
    assert lane["speculative_config"]["num_speculative_tokens"] == 5
    assert lane["args"]["max_num_seqs"] == 2
    assert [r["code"] for r in lane["rules"]] == [f"K{n:03}" for n in range(1, 15)]


def test_show_argv_is_what_would_run(cli: Cli, mine: Path) -> None:
    (shown,) = json.loads(cli("show", "tiny-dflash", "--sm", "cpu", "--argv", "--json").stdout)["argv"]
    (run,) = json.loads(cli("serve", "tiny-dflash", "--sm", "cpu", "--dry-run", "--json").stdout)["ranks"]
    port = run["argv"].index("--port") + 1
    shown["argv"][port] = run["argv"][port]  # `serve` chooses a free one
    assert shown == run
    assert shown["argv"][1:4] == ["-m", "vllm.entrypoints.cli.main", "serve"]


def test_show_argv_sees_models_and_assets_as_the_engine_does(cli: Cli, mine: Path) -> None:
    """A process by the files of this machine, a container by its mounts; a bridged one listens for its port."""
    recipe = mine / "recipes/mine/recipe.yaml"
    (recipe.parent / "chat.jinja").write_text("")
    recipe.write_text(recipe.read_text() + "    assets: [{path: chat.jinja, argument: chat_template}]\n")

    def argv() -> str:
        done = cli("show", "mine", "--sm", "cpu", "--argv", cwd=mine)
        return next(line for line in done.stdout.splitlines() if " serve " in line and "--port" in line)

    folder = recipe.parent.resolve()
    assert f"serve {folder}/target " in argv() and f"--chat-template {folder}/chat.jinja" in argv()
    assert f'"model":"{folder}/drafter"' in argv() and "--host 127.0.0.1" in argv()
    recipe.write_text(recipe.read_text().replace("runtime: process", "runtime: docker, image: {ref: 'a:1'}"))
    assert argv().startswith("  vllm serve /models/target ") and "--chat-template /assets/chat.jinja" in argv()
    assert '"model":"/models/drafter"' in argv() and "--host 0.0.0.0" in argv()


def test_show_without_a_lane_shows_all_of_them(cli: Cli) -> None:
    done = cli("show", "glm53-flash-dflash2")
    assert "lane sm121" in done.stdout and "lane sm100" in done.stdout


def test_list_says_what_runs_here_and_why_not(cli: Cli) -> None:
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for one in json.loads(cli("list", "--json").stdout)["recipes"]:
        rows |= {(one["name"], lane["lane"]): lane for lane in one["lanes"]}
    tiny = rows["tiny-dflash", "cpu"]
    assert all("beside the recipe" not in row["here"] for row in rows.values())
    assert tiny["runnable"] and tiny["k"] == 7 and tiny["licenses"] == ["Apache-2.0"]
    assert "glm53-flash-dflash2" in cli("list").stdout


def test_list_says_that_the_models_are_not_there(cli: Cli, mine: Path) -> None:
    found = {r["name"]: r for r in json.loads(cli("list", "--json", cwd=mine).stdout)["recipes"]}
    assert found["mine"]["lanes"][0]["here"] == "no: put the models into target, drafter beside the recipe"


def test_list_under_commercial_use_names_the_license(cli: Cli) -> None:
    done = cli("list", env={"RECIPECTL_USE": "commercial"})
    row = next(line for line in done.stdout.splitlines() if line.startswith("glm53-flash-dflash2 "))
    assert "permits no commercial use" in row


def test_list_names_a_broken_recipe(cli: Cli, mine: Path) -> None:
    edit(mine, "k: 7", 'k: "7"')
    done = cli("list", cwd=mine)
    assert done.returncode == 0 and "no: the recipe has 1 error, see `recipectl check mine`" in done.stdout


def test_use_sets_the_recipe_that_is_meant(cli: Cli, mine: Path) -> None:
    assert cli("use", "mine", cwd=mine).returncode == 0
    done = cli("show", "--sm", "cpu", cwd=mine)
    assert done.returncode == 0 and "recipe: mine (set by `recipectl use`)" in done.stderr
    done = cli("use", "mien", cwd=mine)
    assert done.returncode == 2 and "mine" in done.stderr


def test_use_of_a_path_holds_from_every_folder(cli: Cli, mine: Path, tmp_path: Path) -> None:
    assert cli("use", "recipes/mine", cwd=mine).returncode == 0
    assert cli("show", "--sm", "cpu", cwd=tmp_path).returncode == 0


def test_new_starts_an_author_off(cli: Cli, mine: Path, settings: Settings) -> None:
    locked(mine, settings, Facts(), "a.safetensors")
    (mine / "recipes/mine/drafter").mkdir()
    (mine / "recipes/mine/chat.jinja").write_text("{{ messages }}")
    done = cli("new", "yours", "--from", "mine", cwd=mine)
    assert done.returncode == 0 and "not copied: the models in drafter, target" in done.stdout
    made = mine / "recipes" / "yours"
    assert sorted(p.name for p in made.iterdir()) == ["chat.jinja", "recipe.yaml"]  # no lock, no weights
    assert cli("check", "yours", cwd=mine).returncode == 0
    assert cli("new", "yours", "--from", "mine", cwd=mine).returncode == 2
    assert cli("new", "Not a name", "--from", "mine", cwd=mine).returncode == 2
