"""The rules about room for K: graphs, token budget, ranks, positions, block, files (K004 to K009). PURE."""

from __future__ import annotations

from recipectl.speculative.compose import (
    as_int,
    capture_sizes,
    engine_sizes,
    graphs_off,
    largest_size,
    max_num_seqs,
    verify_steps,
)
from recipectl.speculative.verdict import Case, RuleVerdict

# vLLM 0.32.0 gives an API server on a GPU below 70 GiB this many tokens a step; larger GPUs get more.
DEFAULT_BUDGET = 2048
# Captures above this many tokens were reported to fail on some stacks (r0b0tlab).
LARGE_CAPTURE = 32
# Arguments whose evidence shows that the sizes are what their author ran.
SIZE_ARGUMENTS = ("cudagraph_capture_sizes", "compilation_config", "max_cudagraph_capture_size")
# Budget rule as of this vLLM; before it, the drafts of all sequences were taken off the budget.
PER_REQUEST_BUDGET = (0, 32)


def k004(case: Case) -> RuleVerdict:
    """Every (K + 1) x n has a graph of its own. n above the largest size run without one, others are padded up."""
    where = ("args", "cudagraph_capture_sizes")
    if off := graphs_off(case.lane):
        return RuleVerdict("K004", "NOT_APPLICABLE", f"no full graphs: {off}", where=where)
    if case.lane.speculative.method == "none":
        return RuleVerdict("K004", "NOT_APPLICABLE", "no speculation: the engine's own sizes", where=where)
    steps, sizes, top = verify_steps(case.lane), capture_sizes(case.lane), largest_size(case.lane)
    if sizes is None and top is not None:
        sizes = engine_sizes(top)
    if not steps or sizes is None:
        return RuleVerdict("K004", "NOT_CHECKED", "max_num_seqs is not set, so the steps are not known", where=where)
    largest = max(sizes, default=0)
    without = [n for n, tokens in steps.items() if tokens > largest]
    padded = [n for n, tokens in steps.items() if tokens <= largest and tokens not in sizes]
    shown = "[" + ", ".join(map(str, sizes)) + "]"
    if without or padded:
        parts = [f"n = {_list(without)} run without a graph"] if without else []
        parts += [f"n = {_list(padded)} are padded to a larger graph, or run without one"] if padded else []
        missing = [steps[n] for n in (*padded, *without)]
        return RuleVerdict(
            "K004", "WARN", "; ".join(parts) + f" (K {case.k}, {len(steps)} sequences)", seen=shown, where=where,
            expected=f"{_list(missing)} as well",
            fix="remove cudagraph_capture_sizes to have them composed, add the sizes, or lower max_num_seqs",
            known=any(case.lane.args_evidence.get(key) for key in SIZE_ARGUMENTS),
        )  # fmt: skip
    note = f"; sizes above {LARGE_CAPTURE} are reported to fail on some stacks" if largest > LARGE_CAPTURE else ""
    return RuleVerdict("K004", "PASS", f"{shown} covers every n = 1..{len(steps)}{note}", where=where)


def k005(case: Case) -> RuleVerdict:
    """The step's token budget holds the slots that drafting adds, by the formula of the engine's version."""
    where, lane = ("args", "max_num_batched_tokens"), case.lane
    if lane.engine.name == "sglang" or lane.speculative.method == "none":
        return RuleVerdict("K005", "NOT_APPLICABLE", "no such budget", where=where)
    given = as_int(lane.args.get("max_num_batched_tokens"))
    budget = DEFAULT_BUDGET if given is None else given
    shown = f"max_num_batched_tokens {budget}" + (" (assumed: vLLM's smallest default)" if given is None else "")
    slots, seqs = _new_slots(case), max_num_seqs(lane)
    if slots == 0:
        needed, formula = 0, f"nothing more: {lane.speculative.method} adds no slots"
    elif _version(lane.engine.version) >= PER_REQUEST_BUDGET:
        needed, formula = slots, f"more than {slots}, the slots that one request drafts (vLLM 0.32)"
    elif seqs is None:
        return RuleVerdict(
            "K005", "NOT_CHECKED", f"max_num_seqs is not set, and before vLLM 0.32 the budget loses {slots} a sequence",
            seen=shown, where=where,
        )  # fmt: skip
    else:
        needed, formula = slots * seqs, f"more than {slots} x {seqs} = {slots * seqs} (before vLLM 0.32)"
    if budget <= needed:
        return RuleVerdict(
            "K005", "FAIL", f"{shown} leaves no room for prompts: {formula} is needed", seen=shown, expected=formula,
            fix=f"set args.max_num_batched_tokens to {max(DEFAULT_BUDGET, 2 * needed)}, or lower K", where=where,
        )  # fmt: skip
    step = max(verify_steps(lane).values(), default=0)
    if budget < step:
        return RuleVerdict(
            "K005", "WARN", f"one verify step of all sequences is {step} tokens: they will take turns", seen=shown,
            expected=f"at least {step}", where=where,
            fix=f"raise max_num_batched_tokens to {step}, or lower max_num_seqs",
        )  # fmt: skip
    return RuleVerdict("K005", "PASS", f"{shown}, needed: {formula}", where=where)


def k006(case: Case) -> RuleVerdict:
    """Engines refuse a drafter spread over a part of the ranks."""
    where = ("speculative", "draft_tensor_parallel")
    draft, target = case.lane.speculative.draft_tensor_parallel, case.lane.parallel.tensor
    if case.lane.drafter is None or case.lane.engine.name == "sglang":
        return RuleVerdict("K006", "NOT_APPLICABLE", "no drafter with ranks of its own", where=where)
    if draft is None:
        return RuleVerdict("K006", "PASS", f"not set: the engine takes the target's {target}", where=where)
    if draft in (1, target):
        return RuleVerdict("K006", "PASS", f"{draft} of {target}", where=where)
    return RuleVerdict(
        "K006", "FAIL", f"{draft} is neither 1 nor the target's {target}", seen=str(draft), where=where,
        expected=f"1 or {target}", fix="remove draft_tensor_parallel",
    )  # fmt: skip


def k007(case: Case) -> RuleVerdict:
    """A drafter with fewer positions than max_model_len reads past its tables on long prompts."""
    where = ("args", "max_model_len")
    if case.drafter is None:
        return RuleVerdict("K007", "NOT_APPLICABLE", "no drafter", where=where)
    name = "context_length" if case.lane.engine.name == "sglang" else "max_model_len"
    facts, target = case.drafter_facts, case.target_facts
    wanted = as_int(case.lane.args.get(name)) or (target.max_positions if target else None)
    locked = facts.max_positions if facts else None
    positions = locked or case.drafter.expect.max_positions
    if wanted is None:
        return RuleVerdict("K007", "NOT_CHECKED", f"{name} is not set and the target's is not known", where=where)
    if positions is not None and positions < wanted:
        return RuleVerdict(
            "K007", "FAIL", f"{name} {wanted} exceeds the drafter's {positions} positions", where=where,
            seen=f"{name} {wanted}", expected=f"at most {positions}",
            fix=f"set args.{name} to {positions} or less, or use another drafter",
        )  # fmt: skip
    if locked is None:
        return case.unknown("K007", "the drafter's max_position_embeddings", where)
    return RuleVerdict("K007", "PASS", f"the drafter has {locked} positions, {name} is {wanted}", where=where)


def k008(case: Case) -> RuleVerdict:
    """The block that K is held against is the one the drafter was trained with."""
    where, spec = ("speculative", "block_size"), case.lane.speculative
    if spec.method not in ("dflash", "dspark"):
        return RuleVerdict("K008", "NOT_APPLICABLE", f"{spec.method} has no block", where=where)
    facts = case.drafter_facts
    locked = facts.block_size if facts else None
    real = locked or (case.drafter.expect.block_size if case.drafter else None)
    if real is not None and spec.block_size is not None and real != spec.block_size:
        said = "its config.json" if locked else f"models.{case.lane.drafter}.expect"
        return RuleVerdict(
            "K008", "FAIL", f"the drafter's block_size is {real} by {said}, {spec.block_size} here",
            seen=str(spec.block_size), expected=str(real), fix=f"set speculative.block_size to {real}", where=where,
        )  # fmt: skip
    if locked is None:
        return case.unknown("K008", "the drafter's block_size", where)
    return RuleVerdict("K008", "PASS", f"block_size {locked}, as in the drafter's config.json", where=where)


def k009(case: Case) -> RuleVerdict:
    """Files without which the pair boots and drafts garbage (mask_embedding.pt) are among the locked ones."""
    names = [n for n in (case.lane.target, case.lane.drafter) if n and case.recipe.models[n].files.required]
    where = ("drafter",)
    if not names:
        return RuleVerdict("K009", "NOT_APPLICABLE", "the recipe requires no file by name", where=where)
    for name in names:
        locked = case.lock.models.get(name) if case.lock else None
        required = case.recipe.models[name].files.required
        if locked is None:
            return case.unknown("K009", f"which files {name} has", where)
        missing = sorted(set(required) - {f.path for f in locked.files})
        if missing:
            return RuleVerdict(
                "K009", "FAIL", f"{name} lacks {', '.join(missing)}", where=where,
                seen=f"{len(locked.files)} files in the lock", expected=", ".join(required),
                fix=f"put the file beside the weights of {name}; where the recipe names that model, check that "
                "`files.allow` takes it, then lock again",
            )  # fmt: skip
    return RuleVerdict("K009", "PASS", f"all required files of {' and '.join(names)} are locked", where=where)


def _new_slots(case: Case) -> int:
    """Slots that drafting adds to one request (vLLM 0.32.0, max_num_new_slots_for_drafting)."""
    method, k = case.lane.speculative.method, case.k
    return {"dflash": k, "dspark": k - 1, "draft_model": 1}.get(method, 0)


def _version(text: str | None) -> tuple[int, int]:
    """Major and minor of an engine version; (0, 0), the stricter reading, where none is stated or it is no version."""
    from packaging.version import InvalidVersion, Version

    try:
        version = Version(text or "0")
    except InvalidVersion:
        return (0, 0)
    return (version.major, version.minor)


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
