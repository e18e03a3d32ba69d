"""Safetensors headers read and checked without torch: what is in a file, and whether the file can be what it says.

The format: 8 bytes little-endian header length, a JSON header, then the data, which the header's offsets must cover
without hole or overlap (https://github.com/huggingface/safetensors, README "Format").
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from recipectl.errors import PinError

# The hub's own client refuses longer headers; a shard of a 169 GB checkpoint needs about 1 MB.
MAX_HEADER = 25_000_000

BITS: Mapping[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file; `start` and `end` are byte offsets into the data part."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


Header = dict[str, Tensor]


def header_length(first8: bytes, on: str, file_size: int) -> int:
    """The header's length in bytes from the first 8 bytes of a file. PinError if no file of this size can hold it."""
    if len(first8) < 8:
        raise _broken("is too short to be safetensors", on, f"{len(first8)} bytes", "at least 8")
    length = int(struct.unpack("<Q", first8)[0])
    if length > MAX_HEADER:
        raise _broken("has a safetensors header that is too long", on, length, f"at most {MAX_HEADER} bytes")
    if 8 + length > file_size:
        raise _broken("is cut inside its safetensors header", on, file_size, f"more than {8 + length} bytes")
    return length


def parse_header(raw: bytes, on: str, data_size: int) -> Header:
    """Tensors by name from the header's bytes, every one checked against the size of the data part in bytes.

    PinError names the first thing that cannot be: no JSON, an unknown dtype, a shape that does not fit its offsets,
    offsets outside the data, a hole or an overlap.
    """
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as err:
        raise _broken("has a safetensors header that is not JSON", on, err, "a JSON object") from err
    if not isinstance(data, dict):
        raise _broken("has a safetensors header that is not an object", on, type(data).__name__, "a JSON object")
    data.pop("__metadata__", None)
    header = {name: _tensor(name, value, on) for name, value in data.items()}
    at = 0
    for name, tensor in sorted(header.items(), key=lambda item: (item[1].start, item[1].end)):
        if tensor.start != at:
            raise _broken(f"has a hole or an overlap before tensor {name}", on, tensor.start, f"offset {at}")
        at = tensor.end
    if at != data_size:
        raise _broken("does not have the size that its tensors need", on, f"{data_size} data bytes", f"{at}")
    return header


def read_header(path: Path) -> Header:
    """The checked header of a local file; the data is not read. PinError as in `parse_header`."""
    size = path.stat().st_size
    with path.open("rb") as handle:
        length = header_length(handle.read(8), path.name, size)
        return parse_header(handle.read(length), path.name, size - 8 - length)


def parse_index(raw: bytes, on: str) -> object:
    """The weight index from its bytes. PinError if they are no JSON."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as err:
        raise _broken("is not JSON", on, err, "a JSON object") from err


def check_index(index: object, headers: Mapping[str, Header], on: str) -> None:
    """Hold `model.safetensors.index.json` against the files: every tensor in the file that the index names, no other.

    PinError with the first differences.
    """
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict):
        raise _broken("has no weight_map", on, "none", "tensor name -> file name")
    wrong = [f"{t}: the index says {f}" for t, f in weight_map.items() if t not in headers.get(str(f), {})]
    unknown = [f"{t}: in {f}, not in the index" for f, h in headers.items() for t in h if weight_map.get(t) != f]
    if wrong or unknown:
        count = sum(len(h) for h in headers.values())
        raise PinError(
            "the weight index and the weight files disagree",
            on=on,
            details=(wrong + unknown)[:8],
            seen=f"{count} tensors in {len(headers)} files",
            expected=f"{len(weight_map)} tensors in {len(set(map(str, weight_map.values())))} files",
        )


def count(headers: Iterable[Header], part: str) -> int:
    """How many tensors carry `part` in their name; `*` counts all."""
    return sum(1 for header in headers for name in header if part == "*" or part in name)


def _tensor(name: str, value: object, on: str) -> Tensor:
    try:
        dtype, shape, (start, end) = value["dtype"], tuple(value["shape"]), value["data_offsets"]  # type: ignore[index]
    except (TypeError, KeyError, ValueError) as err:
        raise _broken(f"describes tensor {name} badly", on, str(value)[:80], "dtype, shape, data_offsets") from err
    if dtype not in BITS:
        raise _broken(f"gives tensor {name} an unknown dtype", on, dtype, ", ".join(BITS))
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in (*shape, start, end)):
        raise _broken(f"gives tensor {name} a bad shape or offset", on, str(value)[:80], "whole numbers from 0")
    needed = math.prod(shape) * BITS[dtype]
    if needed % 8 or needed // 8 != end - start:
        raise _broken(f"gives tensor {name} offsets that do not fit", on, end - start, f"{needed / 8:g} bytes")
    return Tensor(dtype, shape, start, end)


def _broken(what: str, on: str, seen: object, expected: object) -> PinError:
    return PinError(f"{on} {what}", on=on, seen=seen, expected=expected, next_step="get it anew, or do not use it")
