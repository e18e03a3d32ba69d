"""The API key of an exposed server: made once, kept in a 0600 file, never in argv, plan, log or receipt."""

from __future__ import annotations

import secrets
import stat
from pathlib import Path

from recipectl.errors import UsageError
from recipectl.fsio import write_atomic

VARIABLE = "VLLM_API_KEY"
BYTES = 32
# vLLM's key guards /v1 only (vllm#29922, its security notes); these answer anybody who reaches the port.
OPEN_PATHS = ("/health", "/ping", "/metrics", "/version", "/tokenize", "/detokenize", "/invocations", "/load")


def path_of(state_dir: Path, name: str) -> Path:
    """Where the key of a deployment name is kept."""
    return state_dir / "keys" / f"{name}.key"


def take(state_dir: Path, name: str, given: str | None = None) -> str:
    """The key of a deployment: the given one, else the one on file, else a new one; on file afterwards.

    UsageError for a key file that others can read, and for a key that is too short to be one.
    """
    path = path_of(state_dir, name)
    key = given or read(path) or secrets.token_urlsafe(BYTES)
    if len(key) < 16:
        raise UsageError("the API key is too short", seen=f"{len(key)} characters", expected="at least 16")
    if key != read(path):
        write_atomic(path, key + "\n", mode=0o600)
    return key


def read(path: Path) -> str | None:
    """The key on file, or None."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text().strip()
    except FileNotFoundError:
        return None
    if mode & 0o077:
        raise UsageError("the API key file can be read by others", on=str(path), seen=oct(mode), expected="0o600",
                         next_step=f"chmod 600 {path}, or remove it for a new key")  # fmt: skip
    return text or None
