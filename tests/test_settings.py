"""Environment and file become one frozen object; wrong keys and values are named."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from recipectl.errors import UsageError
from recipectl.settings import load


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(tmp_path), "RECIPECTL_SETTINGS": str(tmp_path / "settings.toml"), **more}


def test_defaults_follow_the_xdg_folders(tmp_path: Path) -> None:
    settings = load({"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "st")})
    assert settings.state_dir == tmp_path / "st" / "recipectl"
    assert settings.cache_dir == tmp_path / ".cache" / "recipectl"
    assert settings.use == "research"


@pytest.mark.parametrize("home", [{}, {"HOME": ""}], ids=["unset", "empty"])
def test_without_home_the_users_own_is_meant(home: dict[str, str], tmp_path: Path) -> None:
    """As under cron, systemd and `env -i`: neither / nor the working folder gets our files."""
    own = Path(pwd.getpwuid(os.getuid()).pw_dir)
    settings = load({**home, "RECIPECTL_SETTINGS": str(tmp_path / "settings.toml")})
    assert settings.state_dir == own / ".local/state/recipectl"
    assert settings.cache_dir == own / ".cache/recipectl"
    assert settings.data_dir == own / ".local/share/recipectl"


def test_a_user_without_a_home_has_settings_that_name_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)  # as in `docker run --user`
    settings = load({"RECIPECTL_CACHE": str(tmp_path), "RECIPECTL_SETTINGS": str(tmp_path / "settings.toml")})
    assert (settings.cache_dir, settings.state_dir) == (tmp_path, Path("/.local/state/recipectl"))
    assert settings.hub_token() is None


def test_folders_are_absolute_and_know_the_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine takes a relative source of a mount for the name of a volume."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "settings.toml").write_text('cache_dir = "here"\n')
    settings = load({"RECIPECTL_SETTINGS": "settings.toml", "RECIPECTL_STATE": "st", "RECIPECTL_DATA": "~/data"})
    assert settings.file == tmp_path / "settings.toml"
    assert settings.cache_dir == tmp_path / "here"
    assert settings.state_dir == tmp_path / "st"
    assert settings.data_dir == tmp_path / "home" / "data"


def test_the_file_sets_and_the_environment_wins(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text('use = "commercial"\nhosts = ["ssh://a", "ssh://b"]\nstate_dir = "/x"\n')
    settings = load(environment(tmp_path, RECIPECTL_STATE=str(tmp_path / "mine")))
    assert settings.use == "commercial"
    assert settings.hosts == ("ssh://a", "ssh://b")
    assert settings.state_dir == tmp_path / "mine"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ('use = "military"', "military"),
        ("us = 1", "us"),
        ("use = ", "Invalid value"),
        ("cache_dir = 5", "5"),
        ("state_dir = {}", "{}"),
        ('hosts = "ssh://a"', "ssh://a"),
        ("hosts = [1]", "[1]"),
        ("accept_licenses = 5", "5"),
        ("engine_python = 5", "5"),
        ("hub_retries = inf", "inf"),
        ("hub_timeout_s = nan", "nan"),
    ],
)
def test_a_wrong_file_is_a_usage_error_that_names_it(tmp_path: Path, text: str, seen: str) -> None:
    (tmp_path / "settings.toml").write_text(text)
    with pytest.raises(UsageError) as wrong:
        load(environment(tmp_path))
    assert wrong.value.exit_code == 2
    assert wrong.value.on == str(tmp_path / "settings.toml")
    assert seen in (wrong.value.seen or "")


def test_a_settings_file_that_is_no_text_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        load(environment(tmp_path))


def test_the_token_is_read_on_demand_and_never_kept(tmp_path: Path) -> None:
    token = tmp_path / ".cache" / "huggingface" / "token"
    token.parent.mkdir(parents=True)
    token.write_text("hf_fromfile12345\n")
    settings = load(environment(tmp_path))
    assert settings.hub_token() == "hf_fromfile12345"
    assert load(environment(tmp_path, HF_TOKEN="hf_fromenv12345")).hub_token() == "hf_fromenv12345"
    assert "hf_from" not in repr(load(environment(tmp_path, HF_TOKEN="hf_fromenv12345")))
