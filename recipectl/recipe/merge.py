"""How `shared`, a lane and a variant become one lane. One function, used on values and on positions alike."""

from __future__ import annotations

from typing import Any

Path = tuple[str | int, ...]


def merge(base: Any, over: Any, origin: dict[Path, Path], base_at: Path, over_at: Path, at: Path = ()) -> Any:
    """`over` laid on `base`: mappings merge by key, everything else replaces, an explicit null removes.

    `origin` collects, for each path of the result, where in the file it stands, so that a finding about a merged lane
    points at the line that the author wrote.
    """
    if isinstance(base, dict) and isinstance(over, dict):
        origin[at] = over_at
        out: dict[str, Any] = {}
        for key in [*base, *(k for k in over if k not in base)]:
            here = (*at, key)
            if key not in over:
                out[key] = base[key]
                _trace(base[key], origin, (*base_at, key), here)
            elif over[key] is None and key in base:
                continue
            elif key in base:
                out[key] = merge(base[key], over[key], origin, (*base_at, key), (*over_at, key), here)
            else:
                out[key] = over[key]
                _trace(over[key], origin, (*over_at, key), here)
        return out
    _trace(over, origin, over_at, at)
    return over


def _trace(value: Any, origin: dict[Path, Path], source: Path, at: Path) -> None:
    origin[at] = source
    if isinstance(value, dict):
        for key, inner in value.items():
            _trace(inner, origin, (*source, key), (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _trace(inner, origin, (*source, index), (*at, index))
