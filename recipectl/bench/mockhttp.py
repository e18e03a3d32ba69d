"""The mock server's HTTP/1.1, written by hand: a web framework would be the bottleneck at 256 streams."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any, cast

from recipectl.bench.mock import Config, Engine, Stream, sse


class Http(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, by hand: just what the client needs."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.buffer = b""
        self.open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, _, rest = self.buffer.partition(b"\r\n\r\n")
            length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n")
                           if line.lower().startswith(b"content-length:")), 0)  # fmt: skip
            if len(rest) < length:
                return
            self.buffer = rest[length:]
            method, path, _ = head.split(b"\r\n")[0].decode().split(" ", 2)
            self._route(method, path, rest[:length])

    def _route(self, method: str, path: str, body: bytes) -> None:
        config = self.engine.config
        if method == "POST" and path in ("/v1/chat/completions", "/v1/completions"):
            self._generate(json.loads(body))
        elif path == "/v1/models":
            self.answer(200, {"object": "list", "data": [{"id": config.model, "object": "model"}]})
        elif path == "/metrics" and config.metrics:
            self.reply(200, self.engine.exposition().encode(), "text/plain; version=0.0.4")
        elif path == "/truth":
            self.answer(200, {"streams": [vars(t) for t in self.engine.truth], "cpu_s": time.process_time()})
        elif path == "/version":
            self.answer(200, {"version": "mock"})
        elif path == "/health":
            self.reply(200, b"", "text/plain")
        else:
            self.answer(404, {"error": {"message": f"no {path}"}})

    def _generate(self, body: dict[str, Any]) -> None:
        refused = next((f for f in self.engine.config.refuses if f in json.dumps(body)), None)
        if refused:
            self.answer(400, {"error": {"message": f"unknown field {refused}"}})
            return
        if body.get("model") != self.engine.config.model:
            self.answer(404, {"error": {"message": f"The model `{body.get('model')}` does not exist."}})
            return
        stream = Stream(self.engine, self, body)
        if "http500" in stream.faults:
            self.answer(500, {"error": {"message": "asked for"}})
            return
        if stream.whole is None:
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
        self.engine.live.append(stream)

    def event(self, value: dict[str, Any]) -> None:
        """One server-sent event."""
        self.chunk(sse(value))

    def chunk(self, data: bytes) -> None:
        """One HTTP chunk in one write."""
        if self.open:
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def finish(self, data: bytes = b"", *, done: bool) -> None:
        """The last data, `[DONE]` if wished, and the end of the response, in one write."""
        data += b"data: [DONE]\n\n" if done else b""
        if self.open:
            self.transport.write((b"%x\r\n%b\r\n" % (len(data), data) if data else b"") + b"0\r\n\r\n")

    def drop(self) -> None:
        """Break the connection in the middle of the response."""
        self.transport.abort()

    def answer(self, status: int, value: object) -> None:
        """A JSON response."""
        self.reply(status, json.dumps(value).encode(), "application/json")

    def reply(self, status: int, data: bytes, kind: str) -> None:
        """A whole response."""
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
        self.transport.write(head.encode() + data)


async def serve(config: Config, port: int = 0) -> tuple[asyncio.Server, Engine, int]:
    """Start on a loopback port; the server, its engine and the port."""
    engine = Engine(config)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Http(engine), "127.0.0.1", port, backlog=1024)
    engine.task = loop.create_task(engine.run())  # type: ignore[attr-defined]
    return server, engine, server.sockets[0].getsockname()[1]


async def _main(config: Config, port: int) -> None:
    server, _, port = await serve(config, port)
    print(port, flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="the mock server of `recipectl bench --selftest`")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--config", default="{}", help="fields of Config as JSON")
    arguments = parser.parse_args()
    asyncio.run(_main(Config(**json.loads(arguments.config)), arguments.port))
