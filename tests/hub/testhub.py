"""A model hub over real HTTP, small and with faults: what the Hugging Face hub answers on the endpoints that pull and
lock use, and every way in which hubs, mirrors and lines have been reported to fail.

Two servers: the hub itself, and a second origin that bodies of LFS files are redirected to, as a CDN is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

FaultKind = Literal[
    "cut",
    "stall",
    "flip",
    "commit",
    "drop-headers",
    "ignore-range",
    "wrong-range",
    "status",
    "size",
    "slow",
    "pause",
    "garbage",
]


@dataclass
class Fault:
    """What to do wrong with requests whose path matches. `times` is how often (None: always).

    cut, stall: after `at` body bytes. flip: one byte at `at`. status: answer `status` with X-Error-Code `code`.
    commit: name another commit. size: claim `at` bytes more. slow: `at` bytes a second. pause: wait for `gate`.
    """

    kind: FaultKind
    path: str = ".*"
    at: int = 0
    status: int = 0
    code: str | None = None
    retry_after: str | None = None
    times: int | None = None
    gate: threading.Event = field(default_factory=threading.Event)
    body_only: bool = True

    def applies(self, path: str) -> bool:
        if self.times == 0 or not re.search(self.path, path):
            return False
        if self.times is not None:
            self.times -= 1
        return True


@dataclass
class Seen:
    """One request as it arrived."""

    origin: Literal["hub", "cdn"]
    method: str
    path: str
    headers: dict[str, str]
    sent: int = 0


@dataclass
class Repo:
    """A repository: every commit with its files; LFS for weights, tensors and anything named so."""

    name: str
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    card: dict[str, Any] = field(default_factory=dict)
    lfs_suffixes: tuple[str, ...] = (".safetensors", ".pt", ".bin", ".gguf", ".pkl")

    def commit(self, files: dict[str, bytes], ref: str = "main") -> str:
        """Add a commit and move the ref to it; returns its 40 hex digits."""
        digest = hashlib.sha1(usedforsecurity=False)
        for path, body in sorted(files.items()):
            digest.update(f"{path}\0{hashlib.sha256(body).hexdigest()}\n".encode())
        sha = digest.hexdigest()
        self.commits[sha], self.refs[ref] = files, sha
        return sha

    def find(self, ref: str) -> str | None:
        if ref in self.refs:
            return self.refs[ref]
        known = [sha for sha in self.commits if sha.startswith(ref)] if len(ref) >= 4 else []
        return known[0] if len(known) == 1 else None


def git_blob(body: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(body) + body, usedforsecurity=False).hexdigest()


class TestHub:
    """The two servers and their state. Use as a context manager."""

    __test__ = False  # pytest: this is no test class

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.page = 1000
        self.readers = {"hf_reader_token_1234"}
        self._lock = threading.Lock()
        self._servers = [self._server("hub"), self._server("cdn")]
        self.endpoint, self.cdn = (f"http://127.0.0.1:{s.server_address[1]}" for s in self._servers)

    def __enter__(self) -> TestHub:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for fault in self.faults:
            fault.gate.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def repo(self, name: str, **kwargs: Any) -> Repo:
        self.repos[name] = Repo(name, **kwargs)
        return self.repos[name]

    def fault(self, kind: FaultKind, path: str = ".*", **kwargs: Any) -> Fault:
        self.faults.append(Fault(kind, path, **kwargs))
        return self.faults[-1]

    def requests(self, pattern: str = ".*", method: str = "GET") -> list[Seen]:
        return [s for s in self.seen if s.method == method and re.search(pattern, s.path)]

    def match(self, *kinds: FaultKind, path: str) -> Fault | None:
        with self._lock:
            return next((f for f in self.faults if f.kind in kinds and f.applies(path)), None)

    def record(self, seen: Seen) -> Seen:
        with self._lock:
            self.seen.append(seen)
        return seen

    def _server(self, origin: Literal["hub", "cdn"]) -> ThreadingHTTPServer:
        hub = self

        class Handler(_Handler):
            state, side = hub, origin

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        return server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    state: TestHub
    side: Literal["hub", "cdn"]

    def handle(self) -> None:
        with contextlib.suppress(ConnectionResetError):  # a client that was killed
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path)
        self.request_seen = self.state.record(Seen(self.side, self.command, self.path, dict(self.headers)))
        if fault := self.state.match("status", path=path):
            self._refuse(fault.status, fault.code, retry_after=fault.retry_after)
        elif self.state.match("garbage", path=path):
            self._json(["this", "is", "no", "hub"])
        else:
            try:
                self._route(path, url.query, body)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

    def _route(self, path: str, query: str, body: bool) -> None:
        if self.side == "cdn":
            self._cdn(path, body)
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            self._info(found[1], found[2] or "main")
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)(?:/.*)?", path):
            self._tree(found[1], found[2], parse_qs(query))
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(found[1], found[2], found[3], body)
        else:
            self._refuse(404, None)

    def _open(self, name: str, ref: str, *, listing: bool = True) -> tuple[Repo, str] | None:
        """The repository and commit, or None after an answer that says why not."""
        repo = self.state.repos.get(name)
        if repo is None:
            self._refuse(401 if self._token() is None else 404, "RepoNotFound", "Repository not found")
            return None
        if repo.gated and listing and self._token() not in self.state.readers:
            self._refuse(401 if self._token() is None else 403, "GatedRepo", f"Access to model {name} is restricted.")
            return None
        commit = repo.find(ref)
        if commit is None:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {ref}")
            return None
        return repo, commit

    def _info(self, name: str, ref: str) -> None:
        if (opened := self._open(name, ref, listing=False)) is None:
            return
        repo, commit = opened
        self._json({
            "_id": "0", "id": name, "sha": commit, "private": False, "gated": "manual" if repo.gated else False,
            "disabled": False, "downloads": 0, "likes": 0, "tags": [], "cardData": repo.card,
            "siblings": [{"rfilename": p} for p in repo.commits[commit]],
        })  # fmt: skip

    def _tree(self, name: str, ref: str, query: dict[str, list[str]]) -> None:
        if (opened := self._open(name, ref)) is None:
            return
        repo, commit = opened
        entries: list[dict[str, Any]] = []
        for path, content in repo.commits[commit].items():
            if path.endswith(repo.lfs_suffixes):
                lfs = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
                entries.append({"type": "file", "path": path, "size": len(content), "oid": "0" * 40, "lfs": lfs})
            else:
                entries.append({"type": "file", "path": path, "size": len(content), "oid": git_blob(content)})
        folders = {p.rsplit("/", 1)[0] for p in repo.commits[commit] if "/" in p}
        entries += [{"type": "directory", "path": f, "size": 0, "oid": "1" * 40} for f in sorted(folders)]
        start = int(query.get("cursor", ["0"])[0])
        page = entries[start : start + self.state.page]
        more = {}
        if start + self.state.page < len(entries):
            path = f"{self.state.endpoint}/api/models/{name}/tree/{ref}"
            more = {"Link": f'<{path}?recursive=true&expand=false&cursor={start + self.state.page}>; rel="next"'}
        self._json(page, more)

    def _resolve(self, name: str, ref: str, path: str, body: bool) -> None:
        if (opened := self._open(name, ref)) is None:
            return
        repo, commit = opened
        content = repo.commits[commit].get(path)
        if content is None:
            return self._refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
        headers = {"X-Repo-Commit": commit, "ETag": f'"{git_blob(content)}"', "Accept-Ranges": "bytes"}
        if self.state.match("commit", path=self.path):
            headers["X-Repo-Commit"] = "f" * 40
        if self.state.match("drop-headers", path=self.path):
            headers = {}
        if not path.endswith(repo.lfs_suffixes):
            return self._send(content, headers, body)
        sha = hashlib.sha256(content).hexdigest()
        linked = {"X-Linked-Etag": f'"{sha}"', "X-Linked-Size": str(len(content))} if headers else {}
        self._headers(302, {**headers, **linked, "Location": f"{self.state.cdn}/{name}/{commit}/{path}"}, 0)

    def _cdn(self, path: str, body: bool) -> None:
        _, owner, name, commit, file = path.split("/", 4)
        self._send(self.state.repos[f"{owner}/{name}"].commits[commit][file], {"ETag": '"x"'}, body)

    def _send(self, content: bytes, headers: dict[str, str], body: bool) -> None:
        state, start, end, status = self.state, 0, len(content), 200
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked and not state.match("ignore-range", path=self.path):
            start, status = int(asked[1]), 206
            end = min(int(asked[2]) + 1 if asked[2] else end, end)
            if start >= len(content) > 0:
                return self._refuse(416, None, None, {"Content-Range": f"bytes */{len(content)}"})
            shown = start + 1 if state.match("wrong-range", path=self.path) else start
            headers = {**headers, "Content-Range": f"bytes {shown}-{end - 1}/{len(content)}"}
        if flip := state.match("flip", path=self.path):
            at = min(flip.at, len(content) - 1)
            content = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        claim = end - start
        if fault := state.match("size", path=self.path):
            claim += fault.at
        self._headers(status, headers, claim)
        if body:
            self._body(memoryview(content)[start:end])

    def _body(self, content: memoryview) -> None:
        limit = self.state.match("cut", "stall", "pause", path=self.path)
        slow = self.state.match("slow", path=self.path)
        piece = max(1, slow.at // 20) if slow else 1 << 20
        sent = 0
        while sent < len(content):
            if limit is not None and sent >= limit.at:
                self.wfile.flush()
                if limit.kind == "cut":
                    self.close_connection = True
                    self.connection.close()
                    return
                limit.gate.wait(60)
                limit = None
            room = limit.at - sent if limit is not None else piece
            block = content[sent : sent + min(piece, room)]
            self.wfile.write(block)
            sent += len(block)
            self.request_seen.sent = sent
            if slow:
                self.wfile.flush()
                time.sleep(0.05)

    def _token(self) -> str | None:
        value = self.headers.get("Authorization")
        return value.removeprefix("Bearer ") if value else None

    def _json(self, value: Any, headers: dict[str, str] | None = None) -> None:
        raw = json.dumps(value).encode()
        self._headers(200, {"Content-Type": "application/json", **(headers or {})}, len(raw))
        self.wfile.write(raw)

    def _refuse(
        self,
        status: int,
        code: str | None,
        message: str | None = None,
        headers: dict[str, str] | None = None,
        retry_after: str | None = None,
    ) -> None:
        extra = {"X-Error-Code": code, "X-Error-Message": message, "Retry-After": retry_after}
        self._headers(status, {**(headers or {}), **{k: v for k, v in extra.items() if v}}, 0)

    def _headers(self, status: int, headers: dict[str, str], length: int) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
