"""The strict .pt reader. tests/data/pt holds files written by torch 2.13: see the names."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipectl.errors import PinError
from recipectl.hub.ptfile import PtTensor, read_pt

FILES = Path(__file__).parents[1] / "data" / "pt"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tensor", PtTensor("HalfStorage", (8,))),
        ("param", PtTensor("FloatStorage", (8,))),
        ("dict", {"mask_token_id": 3, "embedding": PtTensor("BFloat16Storage", (8,))}),
        ("dictparam", {"mask_token_id": 154856, "embedding": PtTensor("FloatStorage", (1, 8))}),
    ],
)
def test_what_torch_writes(name: str, value: object) -> None:
    assert read_pt((FILES / f"{name}.pt").read_bytes(), name) == value


def repacked(change: Callable[[dict[str, bytes]], None], compression: int = zipfile.ZIP_STORED) -> bytes:
    """dict.pt with its members changed."""
    with zipfile.ZipFile(FILES / "dict.pt") as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    change(members)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, body in members.items():
            archive.writestr(name, body)
    return out.getvalue()


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("touch /nowhere/owned",))


def pickled(value: object, protocol: int = 2) -> Callable[[dict[str, bytes]], None]:
    return lambda members: members.update({"dict/data.pkl": pickle.dumps(value, protocol)})


def edited(old: bytes, new: bytes) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        assert old in members["dict/data.pkl"]
        members["dict/data.pkl"] = members["dict/data.pkl"].replace(old, new)

    return change


def test_repacking_alone_changes_nothing() -> None:
    assert read_pt(repacked(lambda m: None), "x") == read_pt((FILES / "dict.pt").read_bytes(), "x")


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ((FILES / "legacy.pt").read_bytes(), "no zip"),
        ((FILES / "p4.pt").read_bytes(), "PROTO 4"),
        (repacked(pickled(Evil())), "system"),
        (repacked(pickled(print)), "print"),
        (repacked(pickled({"a": "text"})), "dict"),
        (repacked(pickled({1: 2})), "dict"),
        (repacked(pickled([1, 2])), "EMPTY_LIST"),
        (repacked(edited(b"torch\nBFloat16Storage", b"torch\nUntypedStorage")), "torch.UntypedStorage"),
        (repacked(edited(b"_utils\n_rebuild_tensor_v2", b"_utils\n_rebuild_wrapper_subclass")), "_rebuild_wrapper"),
        (repacked(edited(b"storageq", b"modulesq")), "storage"),
        (repacked(edited(b"K\x08tq", b"K\x09tq")), "9 values"),
        (repacked(edited(b"K\x08\x85q", b"K\x09\x85q")), "outside its storage"),
        (repacked(lambda m: m.update({"dict/data.pkl": m["dict/data.pkl"] + b"."})), "behind the pickle"),
        (repacked(lambda m: m.update({"dict/data.pkl": m["dict/data.pkl"][:-9]})), "pickle"),
        (repacked(lambda m: m.update({"dict/code/run.py": b"1"})), "code/run.py"),
        (repacked(lambda m: m.update({"other/data.pkl": b"."})), "one root"),
        (repacked(lambda m: m.pop("dict/data.pkl")), "data.pkl"),
        (repacked(lambda m: m.update({"dict/data/0": b"\0" * 15})), "15 bytes"),
        (repacked(lambda m: None, zipfile.ZIP_DEFLATED), "packed"),
        (b"\x80\x02." + (FILES / "dict.pt").read_bytes(), "no zip"),
        ((FILES / "dict.pt").read_bytes() + b"junk", "no zip"),
        ((FILES / "dict.pt").read_bytes().replace(b"dict/version", b"dict/versiom", 1), "version"),
        (b"", "no zip"),
    ],
)  # fmt: skip
def test_everything_else_is_refused(raw: bytes, said: str) -> None:
    with pytest.raises(PinError) as refused:
        read_pt(raw, "mask_embedding.pt")
    assert said in "\n".join(refused.value.lines())


def test_a_member_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "twice.pt"
    shutil.copy(FILES / "dict.pt", path)
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("dict/data.pkl", pickle.dumps(1, 2))
    with pytest.raises(PinError):
        read_pt(path.read_bytes(), "x")


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1619), st.integers(1, 255))
def test_a_flipped_byte_never_escapes_the_reader(at: int, flip: int) -> None:
    """Either the reader refuses, or what it returns is still a plain description."""
    raw = bytearray((FILES / "dict.pt").read_bytes())
    raw[at] ^= flip
    try:
        value = read_pt(bytes(raw), "x")
    except PinError:
        return
    assert isinstance(value, PtTensor | dict)
