"""How `shared`, a lane and a variant become one lane. One function, used on values and on positions alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Path = tuple[str | int, ...]


def merge(base: Any, over: Any, origin: dict[Path, Path], base_at: Path, over_at: Path, at: Path = ()) -> Any:
    """`over` laid on `base`: mappings merge by key, everything else replaces, an explicit null removes.

    `origin` collects where in the file each part of the result stands, so that a finding about a merged lane points at
    the line that the author wrote. A part taken over whole has one entry, at its top; `source_of` finds what is below.
    """
    if isinstance(base, dict) and isinstance(over, dict):
        origin[at] = over_at
        out: dict[str, Any] = {}
        for key in [*base, *(k for k in over if k not in base)]:
            here = (*at, key)
            if key not in over:
                out[key] = base[key]
                origin[here] = (*base_at, key)
            elif over[key] is None and key in base:
                continue
            elif key in base:
                out[key] = merge(base[key], over[key], origin, (*base_at, key), (*over_at, key), here)
            else:
                out[key] = over[key]
                origin[here] = (*over_at, key)
        return out
    origin[at] = over_at
    return over


def source_of(origin: Mapping[Path, Path], path: Path) -> Path:
    """Where in the file a path of merged data stands: by its own entry, or by that of the nearest part above it."""
    tail: Path = ()
    while path and path not in origin:
        path, tail = path[:-1], (path[-1], *tail)
    return (*origin.get(path, ()), *tail)
