"""Each kind of stage of a contract, executed once on the test stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from recipectl import experiment, speculative
from recipectl.bench import compare, forcing, lossless
from recipectl.bench import protocol as protocols
from recipectl.bench.result import Block, Result
from recipectl.commands.stand import Stand
from recipectl.errors import EngineError, GateError, Interrupted, RecipectlError, RecipeError
from recipectl.experiment import Outcome, Stage


def geometry(stand: Stand, stage: Stage) -> Outcome:
    """Every K rule on the locked facts, before anything is started."""
    chosen = stand.chosen(stage.arm or "")
    verdicts = speculative.check(chosen.recipe, chosen.lane_name, chosen.lane, chosen.lock)
    failed = [f"{v.code}: {v.message}" for v in verdicts if v.verdict == "FAIL"]
    counted = {v.code: v.verdict for v in verdicts}
    if failed:
        return Outcome(stage.name, "FAIL", "; ".join(failed), dict(counted))
    passed = sum(v == "PASS" for v in counted.values())
    return Outcome(stage.name, "PASS", f"{passed} of {len(counted)} rules pass, none fails", dict(counted))


def startup(stand: Stand, stage: Stage) -> Outcome:
    """Boot and gates; after a failure the contract's amendments, in their order."""
    arm = stage.arm or ""
    used: list[str] = []
    failures: list[str] = []
    for amendment in (None, *stage.amendments):
        if amendment is not None:
            stand.amended.setdefault(arm, []).append(amendment.set)
            used.append(f"{amendment.set} ({amendment.reason})")
        try:
            d = stand.serve(arm, fresh=True)
        except (EngineError, GateError, RecipeError) as err:
            failures.append(err.what)
            continue
        why = f"ready and gated at {d.url}" + (f" after {len(used)} amendment(s)" if used else "")
        return Outcome(stage.name, "PASS", why, {"failed_boots": list(failures), "boots": stand.boots}, tuple(used))
    return Outcome(stage.name, "FAIL", failures[-1], {"failed_boots": list(failures)}, tuple(used))


def acceptance(stand: Stand, stage: Stage) -> Outcome:
    """The gate, one request a block so that every request has its own counters; then its extension, if declared."""
    arm = stage.arm or ""
    k = stand.serve(arm).k or 0
    blocks: list[Block] = []
    outcome = None
    for extended, name in enumerate(n for n in (stage.protocol, stage.extension) if n):
        protocol = stand.protocol(arm, name, stage)
        prompts = max(len(p.prompts) for p in protocol.phases.values())
        protocol = protocols.with_settings(protocol, {"requests": 1, "rounds": prompts}, stand.file.parent)
        result = stand.bench(arm, protocol, f"{stage.name}-{name}")
        blocks += [b for m in result.measured for b in m.blocks]
        void = [reason for b in blocks for reason in b.void]
        outcome = experiment.judge_acceptance(
            stage, rows(blocks), k, stand.contract.confidence, extended=bool(extended), void=void
        )
        if outcome.status != "INCONCLUSIVE":
            break
    assert outcome is not None
    return outcome


def rows(blocks: Sequence[Block]) -> list[experiment.Row]:
    """Drafts and accepted tokens by prompt: a greedy server answers one prompt alike each time, which is no second
    witness."""
    found: dict[tuple[str, ...], experiment.Row] = {}
    for b in blocks:
        if b.valid and b.acceptance:
            key = tuple(sorted({r.prompt_sha256 for r in b.requests}))
            drafts, accepted = found.get(key, (0, 0))
            found[key] = drafts + b.acceptance.drafts, accepted + b.acceptance.accepted
    return list(found.values())


def speed(stand: Stand, stage: Stage) -> Outcome:
    """tok/s by phase and concurrency against what the contract asks for."""
    arm = stage.arm or ""
    result = stand.bench(arm, stand.protocol(arm, stage.protocol or "", stage), stage.name)
    seen: dict[tuple[str, int], list[float]] = {}
    for b in (b for m in result.measured for b in m.blocks):
        rounds = seen.setdefault((b.phase, b.concurrency), [])
        if b.valid and b.rates.tok_s is not None:
            rounds.append(b.rates.tok_s)
    return experiment.judge_speed(stage, seen)


def quality(stand: Stand, stage: Stage) -> Outcome:
    """Losslessness of the candidate against a control arm without speculation."""
    name = stage.protocol or experiment.QUALITY
    texts = {}
    dtype = "bfloat16"
    for arm in (stage.arm or "", stage.against or ""):
        protocol = stand.protocol(arm, name, stage)
        prompts = [p for phase in protocol.phases.values() for p in phase.prompts]
        job = stand.job(arm)
        dtype = str(stand.chosen(arm).lane.args.get("dtype") or dtype)
        texts[arm] = forcing.collect(job.target, prompts, protocol.max_tokens, stand.console)
    found = lossless.judge(texts[stage.arm or ""], texts[stage.against or ""], dtype)
    status: experiment.Status = {"LOSSLESS": "PASS", "LOSSY": "FAIL"}.get(found.verdict, "INCONCLUSIVE")  # type: ignore[assignment]
    return Outcome(stage.name, status, f"{found.verdict}: {found.why}", found.to_json())


def compared(stand: Stand, stage: Stage) -> Outcome:
    """Two arms on interleaved boots, judged pair by pair. `against` is A, the candidate is B."""
    arms = (stage.against or "", stage.arm or "")
    results: tuple[list[Result], list[Result]] = ([], [])
    for number, side in enumerate(experiment.abba(stage.boots)):
        arm = arms[side]
        stand.serve(arm, fresh=number > 0 or stand.up is None or stand.up[0] != arm)
        protocol = stand.protocol(arm, stage.protocol or "", stage)
        start = len(results[side]) * protocol.rounds
        results[side].append(stand.bench(arm, protocol, f"{stage.name}-boot{number + 1}-{arm}", start_round=start))
    a, b = (compare.join(r) for r in results)
    judged = compare.compare(a, b, min_effect={str(k): v for k, v in stage.min_effect.items()})
    return experiment.judge_comparison(stage, judged)


STAGES: dict[str, Callable[[Stand, Stage], Outcome]] = {
    "geometry": geometry, "startup": startup, "acceptance": acceptance, "speed": speed, "quality": quality,
    "compare": compared,
}  # fmt: skip


def run_all(stand: Stand) -> None:
    """The ladder, as far as it goes. What the contract does not reach is NOT_RUN.

    A stage whose server or measurement breaks says nothing about the candidate: it is INCONCLUSIVE, and the receipt of
    the others is not lost.
    """
    while (stage := experiment.next_stage(stand.contract, stand.done)) is not None:
        stand.console.notice(f"stage {stage.name} ({stage.kind})")
        try:
            outcome = STAGES[stage.kind](stand, stage)
        except Interrupted:
            raise
        except RecipectlError as err:
            outcome = Outcome(stage.name, "INCONCLUSIVE", f"{err.what}" + (f" ({err.seen})" if err.seen else ""))
        stand.done.append(outcome)
        stand.console.notice(f"stage {stage.name}: {outcome.status}, {outcome.why}")
