"""Signatures against logs of real servers, and against the strings that the field reports."""

from __future__ import annotations

import pytest

from recipectl.serving.signature_table import SIGNATURES
from recipectl.serving.signatures import classify, diagnose, parse
from tests.serving.logs import read

HEALTHY = ["cpu-dflash-k7", "h200-dflash2-k7-graphs", "cpu-2-nodes-tp2-rank0", "cpu-2-nodes-tp2-rank1"]
# The causes, read by hand from the logs: name, a part of the cause line.
BROKEN = {
    "cpu-dflash2-refused": ("v1-runner-no-dflash2", "DFlash candidate-head drafts"),
    "cpu-2-nodes-no-compiler": ("no-compiler-in-image", "No working C++ compiler"),
    "cpu-healthy-then-dies": ("cpu-synthetic-acceptance", "AssertionError: Synthetic acceptance"),
    "h200-boot-fails-kernel-missing": ("kernel-missing-in-build", "'_vllm_fa2_C' object has no attribute 'varlen_fwd'"),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_has_no_cause(name: str) -> None:
    assert diagnose(read(name)) is None


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_log_gives_its_root_cause_not_its_last_traceback_line(name: str) -> None:
    lines = read(name)
    found = diagnose(lines)
    assert found is not None
    signature, part = BROKEN[name]
    assert found.name == signature
    assert part in found.line
    assert found.fix and found.meaning
    last_raise = max(i for i, line in enumerate(lines, 1) if "Error" in line)
    assert found.number < last_raise or name == "cpu-dflash2-refused"  # there the cause is the last one


def test_a_symptom_alone_is_still_told() -> None:
    found = diagnose(["(EngineCore pid=1) ERROR 11-29 16:02:05 [core.py:1510] EngineCore failed to start."])
    assert found is not None and found.name == "engine-failed-to-start"


def test_an_unknown_exception_outranks_the_messengers() -> None:
    found = diagnose([
        "(EngineCore pid=1) ERROR 11-29 16:02:05 [core.py:1510] EngineCore failed to start.",
        "(EngineCore pid=1) ERROR 11-29 16:02:05 [core.py:1510] ZeroDivisionError: division by zero",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ])  # fmt: skip
    assert found is not None and found.line == "ZeroDivisionError: division by zero"


def test_an_exception_without_words_is_an_exception() -> None:
    found = diagnose(["RuntimeError: ", "RuntimeError: Engine core initialization failed. See root cause above."])
    assert found is not None and found.name == "exception" and found.number == 1


def test_warnings_and_quoted_source_are_not_causes() -> None:
    assert diagnose([
        "(EngineCore pid=1) WARNING 11-29 16:04:06 [import_utils.py:417] AssertionError: Expected one file, found 0",
        "    raise RuntimeError('Model does not support EAGLE3 interface')",
    ]) is None  # fmt: skip


# Field report 4b to 4d, exact substrings, with the kind that the field gives them.
FIELD = [
    ("good", "Application startup complete"),
    ("good", "GPU KV cache size: 372,877 tokens, Maximum concurrency for 327,680 tokens per request: 1.14x"),
    ("good", "Using Eagle3 auxiliary layers from config: (6, 15, 25, 34, 43)"),
    ("good", "Using V2 Model Runner"),
    ("good", "Loaded DFlash mask embedding for mask_token_id 154856 from mask_embedding.pt"),
    ("good", "Graph capturing finished in 11 secs, took 0.59 GiB"),
    ("good", "SpecDecoding metrics: Mean acceptance length: 3.72, Accepted throughput: 1 tokens/s"),
    ("normal", "No available shared memory broadcast block found in 60 seconds"),
    ("normal", "Draft model does not support external multimodal embeddings; using text-only draft inputs"),
    ("normal", "Your GPU does not have native support for FP4 computation"),
    ("normal", "Enforce eager set, disabling torch.compile and CUDAGraphs"),
    ("normal", "max_num_scheduled_tokens is set to 2048 based on the speculative decoding settings"),
    ("normal", "NV_ERR_NO_MEMORY"),
    ("fatal", "ValueError: Free memory on device cuda:0 (104.46/121.69 GiB) on startup is less than desired GPU memory "
              "utilization"),
    ("fatal", "To serve at least one request with the model's max seq len (327680), estimated maximum model length is "
              "566784"),
    ("fatal", "RuntimeError: Model does not support EAGLE3 interface"),
    ("fatal", "pe_dim must be 64 for fp8_ds_mla"),
    ("fatal", "Failed to run MLA, error: invalid argument"),
    ("fatal", "page size is not divisible"),
    ("fatal", "No common block size for 64"),
    ("fatal", "no kernel image is available for execution on the device"),
    ("fatal", "cudaErrorNotPermitted"),
    ("fatal", "cudaErrorStreamCaptureUnsupported"),
    ("fatal", "NCCL: unhandled system error"),
    ("fatal", "Call to ibv_modify_qp failed with errno 61"),
    ("fatal", "Unsupported TP style 'mla_kv_a_proj'"),
    ("fatal", "'qwen3_asr' is already used by a Transformers config"),
    ("fatal", "glm5_next but Transformers does not recognize this architecture"),
    ("fatal", "TllmGenFmhaRunner: Unsupported arch"),
    ("fatal", "requires a bfloat16 KV cache"),
    ("fatal", "buildNdTmaDescriptor"),
    ("fatal", "FlashAttention v3 Backend requires SM>=80 and SM<=90"),
    ("fatal", "Available KV cache memory: -0.69 GiB"),
    ("symptom", "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."),
    ("symptom", "RuntimeError: cancelled"),
    ("symptom", "RPC call to sample_tokens timed out"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), FIELD, ids=[t[:40] for _, t in FIELD])
def test_the_field_s_strings_have_their_kind(kind: str, text: str) -> None:
    found = classify(text)
    assert found is not None, text
    assert found.kind == kind


def test_every_cause_says_what_it_means_and_what_to_do() -> None:
    for signature in SIGNATURES:
        assert signature.meaning
        if signature.kind == "fatal":
            assert signature.fix and signature.source, signature.name
    names = [s.name for s in SIGNATURES if s.kind != "phase"]
    assert len(names) == len(set(names))


def test_a_line_is_split_into_process_level_and_text() -> None:
    line = parse("(Worker_TP1 pid=30401) INFO 11-29 16:16:46 [base_loader.py:82] Initializing model took 0.36 seconds")
    assert (line.process, line.level, line.text) == ("Worker_TP1", "INFO", "Initializing model took 0.36 seconds")
    assert parse("Traceback (most recent call last):").level is None
