"""`.pt` files read by allowlist, without torch: one small tensor, or a dict of tensors and numbers.

`torch.load(weights_only=True)` has had holes (CVE-2025-32434, CVE-2026-24747), can be switched off by a variable, and
scanners that list what is bad miss what is new. This reader knows what torch writes for a tensor and refuses the rest:
every zip member, every pickle opcode and every global that is not on its lists.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from recipectl.errors import PinError

MAX_SIZE = 64 << 20
MAX_PICKLE = 1 << 20
_OPCODES = {
    "PROTO", "STOP", "MARK", "EMPTY_DICT", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "SETITEM", "SETITEMS",
    "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT",
    "NEWTRUE", "NEWFALSE", "NONE", "GLOBAL", "REDUCE", "BINPERSID",
}  # fmt: skip
_STORAGES = {"BFloat16Storage": 2, "HalfStorage": 2, "FloatStorage": 4, "LongStorage": 8}
_MEMBER = re.compile(
    r"[^/]+/(data\.pkl|version|byteorder|\.format_version|\.storage_alignment|\.data/serialization_id|data/\d+)"
)


@dataclass(frozen=True)
class PtTensor:
    """A tensor by its description; the values stay in the file."""

    storage: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class _Storage:
    kind: str
    count: int


def read_pt(raw: bytes, on: str) -> PtTensor | dict[str, PtTensor | int | float | bool | None]:
    """What a .pt file holds. PinError, naming the first thing that is not on the lists, for everything else."""
    if len(raw) > MAX_SIZE:
        raise _refused(on, f"{len(raw)} bytes", f"at most {MAX_SIZE}")
    try:
        code, sizes = _unpacked(raw, on)
    # what zipfile raises on archives that are damaged or use what torch never does
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, UnicodeError) as err:
        raise _refused(on, err, "a whole zip file") from err
    _check_opcodes(code, on)
    try:
        value = _Unpickler(code, sizes, on).load()
    except PinError:
        raise
    # pickle's own errors, and what its opcodes raise on operands of the wrong kind
    except (pickle.UnpicklingError, ValueError, TypeError, KeyError, IndexError, EOFError, AttributeError) as err:
        raise _refused(on, f"{type(err).__name__}: {err}", "a pickle as torch writes it") from err
    return _checked(value, on)


def _unpacked(raw: bytes, on: str) -> tuple[bytes, dict[str, int]]:
    """The pickle, and the size of each storage by its key."""
    if not raw.startswith(b"PK\x03\x04") or raw[-22:-18] != b"PK\x05\x06":
        raise _refused(
            on, "no zip from its first byte to its last", "the zip format of torch.save (not the legacy one)"
        )
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        root = _check_members(archive, raw, on)
        data = {m.filename: m.file_size for m in archive.infolist() if m.filename.startswith(f"{root}/data/")}
        return archive.read(f"{root}/data.pkl"), {n.removeprefix(f"{root}/data/"): size for n, size in data.items()}


def _check_members(archive: zipfile.ZipFile, raw: bytes, on: str) -> str:
    """The archive's one root folder, once nothing in it is hidden, doubled, packed or unknown."""
    members = archive.infolist()
    names = [m.filename for m in members]
    if unknown := [n for n in names if not _MEMBER.fullmatch(n)]:
        raise _refused(on, f"member {unknown[0]!r}", "only what torch.save writes for tensors")
    roots = {n.split("/", 1)[0] for n in names}
    if len(names) != len(set(names)) or len(roots) != 1 or sum(n.endswith("/data.pkl") for n in names) != 1:
        raise _refused(on, ", ".join(names[:8]), "one root with one data.pkl, no name twice")
    for member in members:
        if (
            member.compress_type != zipfile.ZIP_STORED
            or member.flag_bits & 1
            or member.file_size != member.compress_size
        ):
            raise _refused(on, f"{member.filename} packed or encrypted", "stored as it is")
        # Another reader may go by the local header: both must tell the same name.
        local = raw[member.header_offset + 30 : member.header_offset + 30 + len(member.filename.encode())]
        if local != member.filename.encode():
            raise _refused(on, f"{local!r} behind the name {member.filename}", "one name for each member")
    if min(m.header_offset for m in members) != 0 or archive.comment:
        raise _refused(on, "bytes before the first member or a comment", "a zip and nothing else")
    if archive.getinfo(f"{next(iter(roots))}/data.pkl").file_size > MAX_PICKLE:
        raise _refused(on, "a pickle that is too long", f"at most {MAX_PICKLE} bytes")
    if (bad := archive.testzip()) is not None:
        raise _refused(on, f"{bad} fails its checksum", "whole members")
    return roots.pop()


def _check_opcodes(code: bytes, on: str) -> None:
    try:
        for opcode, argument, position in pickletools.genops(code):
            if opcode.name not in _OPCODES or (opcode.name == "PROTO" and argument != 2):
                raise _refused(on, f"opcode {opcode.name} {argument or ''} at {position}", "protocol 2, tensors only")
            at = position or 0
            if opcode.name == "STOP" and at + 1 != len(code):
                raise _refused(on, f"{len(code) - at - 1} bytes behind the pickle", "nothing")
    except (ValueError, IndexError) as err:
        raise _refused(on, err, "a whole pickle") from err


class _Unpickler(pickle.Unpickler):
    """Runs a pickle whose opcodes were checked. Its globals are stand-ins that only describe."""

    def __init__(self, code: bytes, sizes: dict[str, int], on: str) -> None:
        super().__init__(io.BytesIO(code))
        self._sizes, self._on = sizes, on

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _STORAGES:
            return _Storage(name, 0)
        known = {
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
            ("torch._utils", "_rebuild_parameter"): _parameter,
            ("collections", "OrderedDict"): OrderedDict,
        }
        if (module, name) not in known:
            raise _refused(self._on, f"global {module}.{name}", "tensors only")
        return known[(module, name)]

    def persistent_load(self, pid: Any) -> _Storage:
        kind, storage, key, location, count = pid
        size = self._sizes.get(key)
        if kind != "storage" or not isinstance(storage, _Storage) or not re.fullmatch(r"cpu|cuda:\d+", location):
            raise _refused(self._on, f"storage {pid!r}"[:120], "a storage of this archive")
        if size != count * _STORAGES[storage.kind]:
            raise _refused(self._on, f"data/{key} of {size} bytes", f"{count} values of {storage.kind}")
        return _Storage(storage.kind, count)


def _tensor(
    storage: _Storage, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], grad: bool, hooks: Any
) -> PtTensor:
    end = offset + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) + 1 if math.prod(shape) else offset
    if min((offset, *shape, *stride), default=0) < 0 or end > storage.count or hooks:
        raise ValueError(f"a tensor of shape {shape} outside its storage of {storage.count}, or with hooks")
    return PtTensor(storage.kind, tuple(shape))


def _parameter(data: PtTensor, grad: bool, hooks: Any) -> PtTensor:
    if not isinstance(data, PtTensor) or hooks:
        raise ValueError("a parameter that is no tensor, or has hooks")
    return data


def _checked(value: Any, on: str) -> PtTensor | dict[str, PtTensor | int | float | bool | None]:
    if isinstance(value, PtTensor):
        return value
    if type(value) is dict and all(isinstance(k, str) for k in value):
        allowed = (PtTensor, int, float, bool, type(None))
        if all(isinstance(v, allowed) for v in value.values()):
            return value
    raise _refused(on, type(value).__name__, "a tensor, or a dict of tensors and numbers")


def _refused(on: str, seen: object, expected: str) -> PinError:
    return PinError(
        f"{on} is not a plain tensor file", on=on, seen=seen, expected=expected,
        next_step="do not load it: ask its author for a file written by torch.save from tensors alone",
    )  # fmt: skip
