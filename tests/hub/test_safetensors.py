"""Safetensors headers: the real library's files pass, and every header that cannot be is refused for its reason."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from recipectl.errors import PinError
from recipectl.hub.safetensors import MAX_HEADER, check_index, header_length, parse_header, read_header


def written(tmp_path: Path, raw: bytes) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw)
    return path


def test_what_the_library_writes(tmp_path: Path) -> None:
    tensors = {"b": numpy.zeros((2, 3), "float32"), "a": numpy.ones(5, "int8"), "none": numpy.zeros((0, 4), "float16")}
    header = read_header(written(tmp_path, save(tensors, {"format": "pt"})))
    assert {n: (t.dtype, t.shape) for n, t in header.items()} == {
        "a": ("I8", (5,)), "b": ("F32", (2, 3)), "none": ("F16", (0, 4)),
    }  # fmt: skip


def entry(dtype: str = "F32", shape: tuple[int, ...] = (2,), offsets: tuple[int, int] = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    ("header", "size", "said"),
    [
        ({"x": entry("F31")}, 8, "unknown dtype"),
        ({"x": entry(shape=(3,))}, 8, "offsets that do not fit"),
        ({"x": entry(shape=(-2,))}, 8, "bad shape or offset"),
        ({"x": entry(offsets=(4, 12))}, 12, "hole or an overlap before tensor x"),
        ({"x": entry(), "y": entry(offsets=(4, 12))}, 12, "hole or an overlap before tensor y"),
        ({"x": entry()}, 7, "size that its tensors need"),
        ({"x": entry()}, 9, "size that its tensors need"),
        ({"x": {"dtype": "F32"}}, 8, "describes tensor x badly"),
        ({"x": 3}, 8, "describes tensor x badly"),
        ({"x": entry("F4", (1,), (0, 1))}, 1, "offsets that do not fit"),
    ],
)
def test_headers_that_cannot_be(header: dict[str, Any], size: int, said: str) -> None:
    with pytest.raises(PinError, match=said):
        parse_header(json.dumps(header).encode(), "x.safetensors", size)


def test_sub_byte_types_count_in_bits() -> None:
    assert parse_header(json.dumps({"x": entry("F4", (6,), (0, 3))}).encode(), "x", 3)["x"].shape == (6,)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "too short"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "too long"),
        (struct.pack("<Q", 100) + b"{}", "cut inside its"),
        (struct.pack("<Q", MAX_HEADER + 1) + b"{}", "too long"),
        (struct.pack("<Q", 3) + b"{]}", "not JSON"),
        (struct.pack("<Q", 2) + b"[]", "not an object"),
    ],
)
def test_files_that_are_none(tmp_path: Path, raw: bytes, said: str) -> None:
    with pytest.raises(PinError, match=said):
        read_header(written(tmp_path, raw))


@given(st.binary(max_size=200))
def test_noise_is_refused_not_followed(raw: bytes) -> None:
    try:
        length = header_length(raw[:8], "x", len(raw))
        parse_header(raw[8 : 8 + length], "x", len(raw) - 8 - length)
    except PinError:
        pass
    else:  # the only noise that is a file: an empty header and no data
        assert json.loads(raw[8:]) == {} or len(raw) == 8 + length


def test_index() -> None:
    header = parse_header(json.dumps({"x": entry()}).encode(), "a", 8)
    check_index({"weight_map": {"x": "a"}}, {"a": header}, "index")
    with pytest.raises(PinError) as refused:
        check_index({"weight_map": {"x": "b", "y": "a"}}, {"a": header}, "index")
    text = "\n".join(refused.value.lines())
    assert "x: the index says b" in text and "x: in a, not in the index" in text and "2 tensors in 2 files" in text
    with pytest.raises(PinError, match="no weight_map"):
        check_index([], {}, "index")
