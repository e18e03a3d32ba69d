"""Foreign patches: from a folder, or downloaded from where the manifest says. Verified by sha256 either way."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path

from recipectl.errors import HubError, PinError, RecipeError
from recipectl.images.manifest import Foreign, Patch
from recipectl.images.overlay import sha256
from recipectl.images.overlay_files import foreign_key

LIMIT = 4 << 20  # no source patch is larger
TIMEOUT_S = 30.0


def raw_url(foreign: Foreign) -> str:
    """Where the file's bytes are served. GitHub has a host for raw files; others serve them below /raw/."""
    repository = foreign.repository.rstrip("/").removesuffix(".git")
    if repository.startswith("https://github.com/"):
        name = repository.removeprefix("https://github.com/")
        return f"https://raw.githubusercontent.com/{name}/{foreign.commit}/{foreign.path}"
    return f"{repository}/raw/{foreign.commit}/{foreign.path}"


def from_folder(patches: Iterable[Patch], folder: Path) -> dict[str, str]:
    """Foreign files out of a folder, found by their path in the repository or by their bare name.

    PinError for a file that is not what the manifest names; one that is absent is left out.
    """
    out = {}
    for patch in patches:
        foreign = patch.foreign
        if foreign is None:
            continue
        found = [p for p in (folder / foreign.path, folder / Path(foreign.path).name) if p.is_file()]
        if found:
            out[foreign_key(patch)] = _verified(foreign, found[0].read_bytes(), str(found[0]))
    return out


def download(patches: Iterable[Patch]) -> dict[str, str]:
    """Foreign files from their repositories at their commits. HubError if one cannot be had, PinError if it differs."""
    out = {}
    for patch in patches:
        if (foreign := patch.foreign) is None:
            continue
        if foreign.commit is None or foreign.sha256 is None:
            raise RecipeError(
                "a foreign patch without commit and sha256 is not downloaded: nothing could be verified",
                on=f"{foreign.repository} {foreign.path}", next_step="give both in overlay.yaml, or use --patches DIR",
            )  # fmt: skip
        out[foreign_key(patch)] = _verified(foreign, _get(raw_url(foreign)), raw_url(foreign))
    return out


def _get(url: str) -> bytes:
    if not url.startswith(("https://", "http://127.0.0.1:")):
        raise RecipeError("foreign patches are only fetched over https", seen=url)
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            data = bytes(answer.read(LIMIT + 1))
    except (urllib.error.URLError, OSError, ValueError) as err:
        raise HubError(
            "a foreign patch cannot be downloaded", on=url, seen=err,
            next_step="get the file some other way, then recipectl build --patches DIR",
        ) from err  # fmt: skip
    if len(data) > LIMIT:
        raise PinError("a foreign patch is larger than any patch is", on=url, expected=f"at most {LIMIT} B")
    return data


def _verified(foreign: Foreign, data: bytes, where: str) -> str:
    if foreign.sha256 is not None and sha256(data) != foreign.sha256:
        raise PinError(
            "a foreign patch is not what the overlay names", on=where, seen=sha256(data), expected=foreign.sha256,
            next_step="nothing was used; compare the file with its repository at the commit",
        )  # fmt: skip
    return data.decode("utf-8", "surrogateescape")


def license_lines(patches: Iterable[Patch]) -> list[str]:
    """What is about to be downloaded, from whom, under which license: shown before anything is fetched."""
    lines = []
    for patch in patches:
        if f := patch.foreign:
            lines.append(f"{f.path}  {f.repository} @ {f.commit or 'no commit'}  license: {f.license or 'NONE STATED'}")
    return sorted(set(lines))
