"""The far side of `pull --hosts`: this file's text is fed to `python3` on another machine over ssh. Standard library
only, Python 3.8 or newer, nothing is installed there.

It reads from standard input and answers on standard output, one JSON object a line:

    <- {"folder", "parts", "aside", "receipts", "files": [{"path", "size", "sha256"}]}
    -> {"needs": [{"path", "have"}], "aside": [...]}          after hashing what is there
    <- {"path", "from"} and then exactly size - from bytes     for each file, in the order of `needs`
    -> {"got": path} or {"bad": path, "sha256": ...}           after each
    -> {"problems": [...], "files": n, "bytes": n}             at the end, from the disk

Anything that fails ends with {"error": ...}. A copy that stops half way leaves a part under the sha256 it is to have;
it is hashed again before the next copy goes on behind it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

BLOCK = 1 << 20
FLUSH = 256 << 20


class Receipts:
    """Remembered hashes by file identity: device, inode, size, mtime, ctime."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.known = dict(json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            self.known = {}

    @staticmethod
    def key(path: Path) -> str:
        st = path.stat()
        return ":".join(map(str, (st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns)))

    def sha256(self, path: Path) -> str:
        """The hash of a file, remembered or computed."""
        key = self.key(path)
        if key not in self.known:
            self.known[key] = hashed(path).hexdigest()
        return str(self.known[key])

    def save(self) -> None:
        """Whole or not at all."""
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        temporary.write_text(json.dumps(self.known))
        temporary.replace(self.path)


class Order:
    """What is to be in the folder, and where everything else goes."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.folder, self.parts, self.aside = Path(data["folder"]), Path(data["parts"]), Path(data["aside"])
        self.files: list[dict[str, Any]] = data["files"]
        self.receipts = Receipts(Path(data["receipts"]))
        self.parts.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)

    def part(self, file: dict[str, Any]) -> Path:
        return self.parts / f"{file['sha256']}.part"

    def problem(self, file: dict[str, Any]) -> str | None:
        """What is wrong with one file. A link is wrong even where it leads to the right bytes."""
        path = self.folder / file["path"]
        above = list(Path(file["path"]).parents)[:-1]  # the model's folder itself may lie on another disk
        if path.is_symlink() or any((self.folder / way).is_symlink() for way in above):
            return "symlink"
        if not path.exists():
            return "missing"
        if not path.is_file():
            return "unreadable"
        if path.stat().st_size != file["size"]:
            return "size"
        return None if self.receipts.sha256(path) == file["sha256"] else "changed"

    def wrong(self) -> list[tuple[dict[str, Any], str]]:
        """Every file that is not as ordered, and why. Two at a time: a flooded page cache has wedged such hosts."""
        with ThreadPoolExecutor(2) as pool:
            return [(f, why) for f, why in pool.map(lambda f: (f, self.problem(f)), self.files) if why]

    def extra(self) -> list[str]:
        """Files that were not ordered."""
        names, out = {f["path"] for f in self.files}, []
        for root, folders, files in os.walk(self.folder):
            links = [d for d in folders if (Path(root) / d).is_symlink()]
            out += [(Path(root) / name).relative_to(self.folder).as_posix() for name in (*files, *links)]
        return sorted(set(out) - names)

    def put_aside(self, path: str) -> None:
        """Move a wrong or unknown file out of the way, beside whatever was moved earlier, unless it has gone along with
        the folder that it lay in."""
        number = 1
        while os.path.lexists(self.folder / path):
            root = self.aside if number == 1 else self.aside.with_name(f"{self.aside.name}-{number}")
            target, number = root / path, number + 1
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):  # a file was moved here, and now a folder of its name
                continue
            if not os.path.lexists(target):
                (self.folder / path).replace(target)

    def place(self, file: dict[str, Any], sha256: str) -> None:
        """A whole and right part becomes the file."""
        target = self.folder / file["path"]
        target.parent.mkdir(parents=True, exist_ok=True)
        self.part(file).replace(target)
        self.receipts.known[Receipts.key(target)] = sha256


def hashed(path: Path) -> Any:
    """The sha256 object over a file; what was read is dropped from the page cache."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as handle:
        while block := handle.read(BLOCK):
            digest.update(block)
        os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return digest


def receive(source: IO[bytes], size: int, start: int, part: Path) -> str:
    """Append bytes `start` to `size` to a part; returns the sha256 of the whole."""
    with part.open("ab") as out:
        out.truncate(start)
    digest = hashed(part)
    flushed = at = start
    with part.open("ab", buffering=0) as out:
        while at < size:
            block = source.read(min(BLOCK, size - at))
            if not block:
                raise EOFError(f"the copy ended {size - at} bytes too early")
            out.write(block)
            digest.update(block)
            at += len(block)
            if at - flushed >= FLUSH or at == size:
                os.fsync(out.fileno())
                os.posix_fadvise(out.fileno(), flushed, at - flushed, os.POSIX_FADV_DONTNEED)
                flushed = at
    return str(digest.hexdigest())


def serve(source: IO[bytes], say: Callable[[dict[str, Any]], None]) -> None:
    """The whole conversation."""
    order = Order(json.loads(source.readline()))
    alone = (order.parts / f"{order.folder.parent.name}--{order.folder.name}.lock").open("a")
    fcntl.flock(alone, fcntl.LOCK_EX)  # two copies at once: the second finds everything there
    wrong, aside = order.wrong(), order.extra()
    for path in sorted({*aside, *(f["path"] for f, why in wrong if why != "missing")}):  # a folder before its files
        order.put_aside(path)
    have = {f["path"]: order.part(f).stat().st_size if order.part(f).is_file() else 0 for f, _ in wrong}
    needs = [{"path": f["path"], "have": n if (n := have[f["path"]]) <= f["size"] else 0} for f, _ in wrong]
    say({"needs": needs, "aside": aside})
    by_path = {f["path"]: f for f in order.files}
    for _ in needs:
        header = json.loads(source.readline())
        file = by_path[header["path"]]
        seen = receive(source, file["size"], header["from"], order.part(file))
        if seen == file["sha256"]:
            order.place(file, seen)
            say({"got": file["path"]})
        else:
            order.part(file).unlink()
            say({"bad": file["path"], "sha256": seen})
    problems = [f"{why} {f['path']}" for f, why in order.wrong()] + [f"extra {path}" for path in order.extra()]
    order.receipts.save()
    say({"problems": problems, "files": len(order.files), "bytes": sum(f["size"] for f in order.files)})


def main() -> None:
    """Serve one copy; every failure is an answer, not a traceback."""

    def say(value: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()

    try:
        serve(sys.stdin.buffer, say)
    except (OSError, EOFError, ValueError, KeyError) as err:
        say({"error": f"{type(err).__name__}: {err}"})
        sys.exit(1)


if __name__ == "__main__":
    main()
