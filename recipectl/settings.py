"""Environment, settings file and flags become one frozen Settings. Read once, passed down, never global."""

from __future__ import annotations

import contextlib
import math
import os
import pwd
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from recipectl.errors import UsageError

HUB = "https://huggingface.co"
_TEXTS = ("use", "hub_endpoint", "default_recipe", "engine_python", "docker_host", "cache_dir", "state_dir")
_LISTS = ("hosts", "accept_licenses", "recipes_dirs")
_KEYS = {*_TEXTS, *_LISTS, "hub_timeout_s", "hub_retries"}


@dataclass(frozen=True)
class Settings:
    """Everything that is not the recipe: where files live, which hub, which hosts, which use is permitted.

    `token_file` and the variable HF_TOKEN are read by `pull` and `lock` alone, through `hub_token()`; the value is
    never part of this object, so it cannot end up in a receipt. `hub_timeout_s` is how long a silent hub is waited for;
    `hub_retries` how often in a row it may fail before pull gives up.
    """

    cache_dir: Path
    state_dir: Path
    data_dir: Path
    file: Path
    hub_endpoint: str = HUB
    use: Literal["research", "commercial"] = "research"
    default_recipe: str | None = None
    hosts: tuple[str, ...] = ()
    engine_python: Path | None = None
    docker_host: str | None = None
    recipes_dirs: tuple[Path, ...] = ()
    accept_licenses: tuple[str, ...] = ()
    hub_timeout_s: float = 30.0
    hub_retries: int = 5
    json: bool = False
    quiet: bool = False
    environ: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def hashes(self) -> Path:
        """Where the sha256 of model files are remembered by their identity."""
        return self.state_dir / "hashes.json"

    def hub_token(self) -> str | None:
        """The hub token from HF_TOKEN, or from the file that HF_TOKEN_PATH or HF_HOME names. For hub verbs alone."""
        if token := self.environ.get("HF_TOKEN"):
            return token.strip()
        home = Path(self.environ.get("HF_HOME") or _home(self.environ) / ".cache/huggingface")
        path = Path(self.environ.get("HF_TOKEN_PATH") or home / "token")
        try:
            return path.read_text().strip() or None
        except OSError:
            return None

    def with_flags(self, **flags: Any) -> Settings:
        """A copy with the flags that were given (None means not given)."""
        return replace(self, **{k: v for k, v in flags.items() if v is not None})


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from the environment and from `settings.toml`. UsageError names the file and the key that is wrong."""
    env = dict(os.environ if environ is None else environ)
    home = _home(env)

    def folder(variable: str, xdg: str, fallback: str, set_to: str | None = None) -> Path:
        base = Path(env.get(xdg) or home / fallback)
        return _absolute(env.get(variable) or set_to or base / "recipectl")

    file = _absolute(env.get("RECIPECTL_SETTINGS") or folder("", "XDG_CONFIG_HOME", ".config") / "settings.toml")
    given = _read(file)
    use = env.get("RECIPECTL_USE") or given.get("use", "research")
    if use not in ("research", "commercial"):
        raise UsageError("the setting `use` is not known", on=str(file), seen=use, expected="research or commercial")
    python = env.get("RECIPECTL_ENGINE_PYTHON") or given.get("engine_python")
    hosts = env["RECIPECTL_HOSTS"].split(",") if env.get("RECIPECTL_HOSTS") else given.get("hosts", [])
    timeout, retries = _number(env, given, file, "hub_timeout_s", 30.0), _number(env, given, file, "hub_retries", 5)
    return Settings(
        cache_dir=folder("RECIPECTL_CACHE", "XDG_CACHE_HOME", ".cache", given.get("cache_dir")),
        state_dir=folder("RECIPECTL_STATE", "XDG_STATE_HOME", ".local/state", given.get("state_dir")),
        data_dir=folder("RECIPECTL_DATA", "XDG_DATA_HOME", ".local/share"),
        file=file,
        hub_endpoint=(env.get("HF_ENDPOINT") or str(given.get("hub_endpoint", HUB))).rstrip("/"),
        use=cast(Literal["research", "commercial"], use),
        default_recipe=env.get("RECIPECTL_RECIPE") or given.get("default_recipe"),
        hosts=tuple(h.strip() for h in hosts if h.strip()),
        engine_python=Path(python).expanduser() if python else None,
        docker_host=env.get("RECIPECTL_DOCKER_HOST") or env.get("DOCKER_HOST") or given.get("docker_host"),
        recipes_dirs=tuple(Path(p).expanduser() for p in given.get("recipes_dirs", [])),
        accept_licenses=tuple(given.get("accept_licenses", [])),
        hub_timeout_s=timeout,
        hub_retries=max(1, int(retries)),
        environ=env,
    )


def _home(env: Mapping[str, str]) -> Path:
    """HOME, or where it is unset or empty (a unit of systemd, cron, env -i) the user's own, or / for nobody's."""
    if home := env.get("HOME"):
        return Path(home)
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path("/")


def _absolute(path: str | Path) -> Path:
    """`~` expanded, and absolute: folders are mounted into containers and written down for later runs elsewhere."""
    with contextlib.suppress(RuntimeError):  # nobody's home
        path = Path(path).expanduser()
    return Path(path).absolute()


def _number(env: Mapping[str, str], given: Mapping[str, Any], file: Path, key: str, default: float) -> float:
    """A positive number from RECIPECTL_<KEY> or the settings file."""
    value = env.get(f"RECIPECTL_{key.upper()}") or given.get(key, default)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not (math.isfinite(number) and number > 0):
        raise UsageError(
            f"the setting `{key}` is no positive number", on=str(file), seen=value, expected=f"like {default}"
        )
    return number


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as handle:
            data = tomllib.load(handle)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as err:
        raise UsageError(
            "the settings file cannot be read", on=str(file), seen=err, next_step=f"mend or remove {file}"
        ) from err
    unknown = sorted(set(data) - _KEYS)
    if unknown:
        raise UsageError(
            "unknown settings", on=str(file), seen=", ".join(unknown), expected="one of " + ", ".join(sorted(_KEYS))
        )
    for key, value in data.items():
        texts = value if key in _LISTS and isinstance(value, list) else [value]
        if (key in _LISTS and texts is not value) or (key in (*_TEXTS, *_LISTS) and not _all_text(texts)):
            expected = "a list of texts" if key in _LISTS else "a text"
            raise UsageError(f"the setting `{key}` has the wrong type", on=str(file), seen=value, expected=expected)
    return data


def _all_text(values: list[Any]) -> bool:
    return all(isinstance(v, str) for v in values)
