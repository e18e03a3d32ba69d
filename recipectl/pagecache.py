"""What of a file lies in the page cache, asked of the kernel (cachestat, Linux 6.5)."""

from __future__ import annotations

import ctypes
import os

_SYS_CACHESTAT = 451  # the same on every architecture


class _Range(ctypes.Structure):
    _fields_ = (("off", ctypes.c_uint64), ("len", ctypes.c_uint64))


class _Stat(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recent"))


def holds_whole(fd: int, size: int) -> bool:
    """Whether every page of a file is in the page cache. False, too, where the kernel does not tell: it is older, or
    the file belongs to another user."""
    stat = _Stat()
    span = _Range(0, size)
    libc = ctypes.CDLL(None)
    failed: int = libc.syscall(_SYS_CACHESTAT, fd, ctypes.byref(span), ctypes.byref(stat), 0)
    page = os.sysconf("SC_PAGESIZE")
    return failed == 0 and int(stat.cached) >= -(-size // page)
