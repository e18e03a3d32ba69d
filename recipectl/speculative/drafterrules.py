"""The rules about drafter, engine, silicon and image (K010, K011, K012, K014). PURE."""

from __future__ import annotations

from recipectl.recipe.families import FAMILIES
from recipectl.speculative.verdict import Case, RuleVerdict

# Drafter architectures whose selector exists only on vLLM's V2 model runner.
V2_ONLY = ("DFlash2DraftModel",)
# Part of an architecture's name -> the method it is drafted with.
METHOD_OF = {"DSpark": "dspark", "DFlash": "dflash", "MuseGlimmerAssistant": "dflash"}
# Arguments that choose a kernel stack for the target.
BACKEND_ARGUMENTS = ("moe_backend", "linear_backend", "attention_backend")


def k010(case: Case) -> RuleVerdict:
    """Each tap is a layer of the target, and as many taps as the drafter's fc was trained to read."""
    where = ("drafter",)
    if case.lane.speculative.method not in ("dflash", "dspark"):
        return RuleVerdict("K010", "NOT_APPLICABLE", "no taps", where=where)
    drafter, target = case.drafter_facts, case.target_facts
    expected = case.drafter.expect.taps if case.drafter else None
    if expected is not None and drafter and drafter.taps is not None and tuple(expected) != drafter.taps:
        return RuleVerdict(
            "K010", "FAIL", f"taps {list(drafter.taps)} are not the expected {expected}", where=where,
            seen=str(list(drafter.taps)), expected=str(expected),
            fix="this is another drafter: check repo and revision",
        )  # fmt: skip
    taps = (drafter.taps if drafter else None) or (tuple(expected) if expected else None)
    layers = (target.layers if target else None) or case.target.expect.layers
    if taps and layers and max(taps) >= layers:
        return RuleVerdict(
            "K010", "FAIL", f"tap {max(taps)} does not exist: the target has layers 0..{layers - 1}",
            seen=str(list(taps)), expected=f"taps below {layers}", where=where,
            fix="drafter and target do not belong together: name the target that the drafter was trained on",
        )  # fmt: skip
    if drafter is None or target is None or taps is None or drafter.fc_inputs is None or target.hidden_size is None:
        return case.unknown("K010", "taps, fc width or target hidden size", where)
    width = len(taps) * target.hidden_size
    if drafter.fc_inputs != width:
        return RuleVerdict(
            "K010", "FAIL", f"the drafter's fc reads {drafter.fc_inputs} numbers, not {width}", where=where,
            seen=f"fc input {drafter.fc_inputs}", expected=f"{len(taps)} taps x {target.hidden_size} = {width}",
            fix="drafter and target do not belong together",
        )  # fmt: skip
    return RuleVerdict("K010", "PASS", f"{len(taps)} taps x {target.hidden_size} = fc input {width}", where=where)


def k011(case: Case) -> RuleVerdict:
    """The engine, and its model runner, know the drafter's architecture, and draft it by the method that is asked."""
    where = ("engine", "runner")
    if case.drafter is None:
        return RuleVerdict("K011", "NOT_APPLICABLE", "no drafter", where=where)
    facts = case.drafter_facts
    locked = facts.architecture if facts else None
    name = locked or case.drafter.expect.architecture
    unknown = case.unknown("K011", "the drafter's architecture", where)
    if name is None:
        return unknown
    if misfit := _misfit(case, name):
        return misfit
    engine = case.lane.engine
    if engine.name == "sglang":
        return RuleVerdict("K011", "NOT_CHECKED", f"no evidence about {name} on SGLang's runner", where=where)
    if name in V2_ONLY and engine.runner is None:
        return RuleVerdict(
            "K011", "NOT_CHECKED", f"{name} needs the V2 runner; the recipe does not say which one runs", where=where,
            fix="state engine.runner: v2 once the boot log shows it",
        )  # fmt: skip
    passed = RuleVerdict("K011", "PASS", f"{name} on {engine.name}, runner {engine.runner or 'any'}", where=where)
    return passed if locked else unknown


def _misfit(case: Case, name: str) -> RuleVerdict | None:
    """The FAIL of a drafter architecture that this method or this engine cannot draft with."""
    engine, asked = case.lane.engine, case.lane.speculative.method
    method = next((m for part, m in METHOD_OF.items() if part in name), None)
    if method is not None and method != asked:
        return RuleVerdict(
            "K011", "FAIL", f"{name} is drafted with method {method}", seen=asked, expected=method,
            fix=f"set speculative.method to {method}", where=("speculative", "method"),
        )  # fmt: skip
    if name in V2_ONLY and (engine.name == "vllm-cpu" or engine.runner == "v1"):
        return RuleVerdict(
            "K011", "FAIL", f"{name} needs vLLM's V2 model runner, this lane has {engine.runner or 'v1'}",
            expected="vllm with runner v2", seen=f"{engine.name}, runner {engine.runner or 'v1'}",
            where=("engine", "runner"),
            fix="use a DFlash (not DFlash2) drafter on this engine, or an engine whose V2 runner is on",
        )  # fmt: skip
    return None


def k012(case: Case) -> RuleVerdict:
    """Kernels are compiled for SM families: B12X exists for SM12x alone."""
    where = ("drafter",)
    if FAMILIES[case.lane_name].b12x:
        return RuleVerdict("K012", "PASS", f"{case.lane_name} runs B12X kernels", where=where)
    for name in filter(None, (case.lane.drafter, case.lane.target)):
        if "b12x" in case.recipe.models[name].kernels:
            role = case.recipe.models[name].role
            return RuleVerdict(
                "K012", "FAIL", f"{name} needs B12X kernels: they run on SM12x (GB10), not on {case.lane_name}",
                seen=case.lane_name, expected="sm121", fix=_without_b12x(case, role), where=(role,),
            )  # fmt: skip
    for argument in BACKEND_ARGUMENTS:
        if "b12x" in str(case.lane.args.get(argument, "")).lower():
            return RuleVerdict(
                "K012", "FAIL", f"{argument} b12x runs on SM12x (GB10), not on {case.lane_name}",
                seen=case.lane_name, expected="sm121",
                fix=f"remove args.{argument}, or take the backend that this family's evidence names",
                where=("args", argument),
            )  # fmt: skip
    return RuleVerdict("K012", "PASS", "no model needs B12X", where=where)


def _without_b12x(case: Case, role: str) -> str:
    """The BF16 model that does the same work, by name where the recipe has one."""
    others = [n for n, m in case.recipe.models.items() if m.role == role and not m.kernels]
    bf16 = [n for n in others if (case.recipe.models[n].quantization or "").upper() == "BF16"]
    if bf16:
        return f"use the BF16 {role}: `{role}: {bf16[0]}`"
    return f"use `{role}: {others[0]}`" if others else f"use the BF16 {role}"


def k014(case: Case) -> RuleVerdict:
    """An image boots only the drafter attention kinds that it was built for."""
    where, engine = ("engine", "image", "drafter_attention"), case.lane.engine
    if case.drafter is None or case.lane.speculative.method not in ("dflash", "dspark"):
        return RuleVerdict("K014", "NOT_APPLICABLE", "no DFlash or DSpark drafter", where=where)
    if engine.image is None and engine.overlay is None:
        return RuleVerdict("K014", "NOT_APPLICABLE", "no image: the engine of this machine", where=where)
    supported = engine.image.drafter_attention if engine.image else None
    if supported is None:
        what = engine.image.ref if engine.image else f"overlay {engine.overlay}"
        return RuleVerdict("K014", "NOT_CHECKED", f"nobody stated which drafter attention {what} boots", where=where)
    facts = case.drafter_facts
    locked = facts.attention if facts else None
    kind = locked or case.drafter.expect.attention
    if kind is not None and kind not in supported:
        return RuleVerdict(
            "K014", "FAIL", f"the drafter has {kind} attention, which this image does not boot", seen=kind, where=where,
            expected=" or ".join(supported), fix="use an overlay or image that supports it, or another drafter",
        )  # fmt: skip
    if locked is None:
        return case.unknown("K014", "the drafter's attention", where)
    return RuleVerdict("K014", "PASS", f"{kind} attention, supported by this image", where=where)
