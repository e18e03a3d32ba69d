"""Gates over what a server does: generations, counters, K and acceptance as measured, temperature, needle. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from recipectl.bench import counting
from recipectl.bench.acceptance import Acceptance, delta
from recipectl.bench.validity import DEAD_ACCEPTANCE
from recipectl.serving.gates import Context, Result, passed, skipped
from recipectl.serving.observed import Reply

RANDOM = "random weights"
COUNT_TOKENS = 120
HEAT = 0.8
PROSE_TOKENS = 200
# Below this many drafts a rate says nothing; counting legitimately shows .99, so only prose may call it pinned.
FEW_DRAFTS = 20
PINNED_DRAFTS = 200


def generation(c: Context) -> Sequence[Result]:
    """Real generations at each concurrency of the recipe; then counting must be exact. The counters are read around."""
    c.before = c.probes.scrape()
    out: list[Result] = []
    for index, n in enumerate(c.plan.gates.concurrency):
        prompts = [c.prompts.counting, *c.prompts.prose][: max(1, n)]
        prompts += [prompts[-1]] * (n - len(prompts))
        replies = c.probes.generate(prompts, COUNT_TOKENS)
        c.tokens += sum(r.tokens for r in replies)
        out.append(_generated(c, f"generation-c{n}", replies))
        if out[-1].failed:
            return out
        if index == 0:
            out.append(_counted(c, replies[0]))
            c.counting = delta(c.before, c.probes.scrape()).acceptance
    c.after = c.probes.scrape()
    c.greedy = delta(c.before, c.after).acceptance
    return out


def _generated(c: Context, gate: str, replies: Sequence[Reply]) -> Result:
    for reply in replies:
        if reply.error:
            cause = c.dead()
            return Result(gate, "FAIL", cause or f"a generation failed: {reply.error}", seen=reply.error,
                          expected=f"{len(replies)} answer(s)", fix="recipectl logs")  # fmt: skip
        if reply.tokens < 1 or reply.finish is None:
            return Result(gate, "FAIL", "an answer has no tokens or no finish reason", seen=repr(reply.text[:60]))
        broken = _replacement(reply)
        if broken and not c.plan.random_weights:
            return Result(gate, "FAIL", "the text holds U+FFFD: tokens are corrupted", seen=repr(reply.text[:120]),
                          fix="verify the checkpoint: recipectl verify --full")  # fmt: skip
    tokens = sum(r.tokens for r in replies)
    return passed(gate, f"{len(replies)} answer(s), {tokens} tokens in {max(r.seconds for r in replies):.2f} s")


def _replacement(reply: Reply) -> bool:
    # A cut at max_tokens may split the last character; only what stands before it is judged.
    text = reply.text.rstrip("\ufffd") if reply.finish == "length" else reply.text
    return "\ufffd" in text


def _counted(c: Context, reply: Reply) -> Result:
    if c.plan.random_weights:
        return skipped("counting", RANDOM)
    check = counting.check(reply.text, c.prompts.count_to, truncated=reply.finish == "length")
    if check.exact:
        return passed("counting", f"exact as far as {check.reached}")
    return Result(
        "counting",
        "FAIL",
        f"counting goes wrong at {check.wrong_at}",
        seen=str(check.seen),
        expected=str(check.wrong_at),
        fix="wrong weights, scales or kernels: recipectl verify --full",
    )


def counters(c: Context) -> Sequence[Result]:
    """The server's own counters moved by what we received: another server behind the port would not."""
    assert c.before is not None and c.after is not None
    moved = delta(c.before, c.after)
    if moved.problems:
        return [Result("counters", "FAIL", moved.problems[0])]
    if moved.generated is None:
        return [skipped("counters", "the server exports no generation counter")]
    if moved.generated < c.tokens:
        return [Result("counters", "FAIL", "the generation counter did not move by what was generated",
                       seen=f"{moved.generated} tokens", expected=f"at least {c.tokens} tokens")]  # fmt: skip
    return [passed("counters", f"{moved.generated} tokens generated, {c.tokens} received")]


def k_in_metrics(c: Context) -> Sequence[Result]:
    """Drafted tokens per draft is the K that really runs."""
    if c.plan.k is None:
        return [skipped("k-metrics", "no speculation")]
    a = c.greedy
    if a is None or a.k_seen is None:
        if c.plan.engine == "sglang":
            return [skipped("k-metrics", "SGLang exports no draft counters")]
        return [Result("k-metrics", "FAIL", "no draft was made", expected=f"K {c.plan.k}")]
    ks = [t[2] for t in c.plan.schedule] or [c.plan.k]
    # ngram drafts only what it finds, so it may draft less than K but never more.
    low = 0.0 if c.plan.method == "ngram" else min(ks) - 0.5
    seen = f"{a.k_seen:.2f} draft tokens a draft"
    if low <= a.k_seen <= max(ks) + 1e-9:
        return [passed("k-metrics", f"{seen} over {a.drafts} drafts")]
    return [Result("k-metrics", "FAIL", "the server drafts with another K", seen=seen, expected=f"K {c.plan.k}")]


def acceptance(c: Context) -> Sequence[Result]:
    """Counting drafts are accepted at a plausible rate: never none, and within the recipe's range."""
    if reason := _no_acceptance(c):
        return [skipped("acceptance", reason)]
    return [_in_range(c, "acceptance", "counting", c.counting)]


def _in_range(c: Context, gate: str, workload: str, a: Acceptance | None) -> Result:
    if a is None or a.length is None:
        return skipped(gate, f"the server exports no acceptance for {workload}")
    seen = f"length {a.length:.2f} over {a.drafts} drafts of {workload}"
    if a.accepted == 0 and a.drafts >= FEW_DRAFTS:
        return Result(gate, "FAIL", "no draft token was accepted: the draft path is broken", seen=seen,
                      fix="check mask embedding, taps and drafter revision")  # fmt: skip
    wanted = {str(k): v for k, v in c.plan.gates.acceptance.items()}.get(workload)
    if wanted and wanted.min is not None and a.length < wanted.min and a.drafts >= FEW_DRAFTS:
        return Result(gate, "FAIL", "drafts are accepted too rarely", seen=seen, expected=f"at least {wanted.min}")
    if wanted and wanted.max is not None and a.length > wanted.max:
        return Result(gate, "FAIL", "drafts are accepted too often", seen=seen, expected=f"at most {wanted.max}")
    return passed(gate, seen)


def prose(c: Context) -> Sequence[Result]:
    """Acceptance on prose; pinned (all positions at 1.00 over 200 drafts) means that nothing is verified (vllm#53030).

    One prompt is enough where a single draft token was refused; only while all are accepted does it ask on.
    """
    if reason := _no_acceptance(c):
        return [skipped("prose-acceptance", reason)]
    total = Acceptance(0, 0, 0)
    for prompt in [*c.prompts.prose] * 40:
        one = _asked(c, "prose-acceptance", prompt, PROSE_TOKENS, 0.0)
        if isinstance(one, Result):
            return [one]
        total += one
        if total.accepted < total.proposed and total.drafts >= FEW_DRAFTS:
            return [_in_range(c, "prose-acceptance", "prose", total)]
        if total.drafts >= PINNED_DRAFTS:
            seen = f"{total.accepted} of {total.proposed} over {total.drafts} drafts"
            pinned = "acceptance is pinned: every draft token of prose is accepted, so nothing is verified"
            return [Result("prose-acceptance", "FAIL", pinned, seen=seen, expected="some refused",
                           fix="serve the eager variant and compare: vllm#53030")]  # fmt: skip
    return [skipped("prose-acceptance", f"only {total.drafts} drafts")]


def _no_acceptance(c: Context) -> str | None:
    """Why acceptance says nothing on this server, or None."""
    if c.plan.k is None:
        return "no speculation"
    return RANDOM if c.plan.random_weights else None


def _asked(c: Context, gate: str, prompt: str, tokens: int, heat: float) -> Acceptance | Result:
    """The acceptance of one generation, or the result that ends the gate."""
    before = c.probes.scrape()
    reply = c.probes.generate([prompt], tokens, heat)[0]
    if reply.error:
        return Result(gate, "FAIL", c.dead() or f"a generation failed: {reply.error}")
    found = delta(before, c.probes.scrape()).acceptance
    return found if found and found.drafts else skipped(gate, "the server exports no acceptance")


def temperature(c: Context) -> Sequence[Result]:
    """Speculation at temperature > 0: drafts that are accepted greedily must not all be refused when sampling."""
    if reason := _no_acceptance(c):
        return [skipped("temperature", reason)]
    a = _asked(c, "temperature", c.prompts.counting, COUNT_TOKENS, HEAT)
    return [a if isinstance(a, Result) else _sampled(c, a)]


def _sampled(c: Context, a: Acceptance) -> Result:
    seen = f"{a.accepted} of {a.proposed} draft tokens accepted at {HEAT}, over {a.drafts} drafts"
    fault = next((f for f in c.plan.gates.known_faults if f.gate == "temperature" and f.engine == c.plan.engine
                  and c.plan.engine_version in f.versions), None)  # fmt: skip
    if a.accepted > DEAD_ACCEPTANCE * a.proposed:  # a stray hit among hundreds is chance
        return passed("temperature", seen + (f"; the declared fault {fault.name} is not there" if fault else ""))
    if a.drafts < FEW_DRAFTS:
        return skipped("temperature", f"only {a.drafts} drafts")
    if fault:
        return Result("temperature", "KNOWN_FAULT", f"{fault.name}: {fault.meaning}", seen=seen, fix=fault.fix)
    return Result("temperature", "FAIL", "speculation is broken at temperature > 0", seen=seen,
                  expected=f"more than {DEAD_ACCEPTANCE:.0%} accepted",
                  fix="serve it greedily, or declare the fault in the recipe")  # fmt: skip


def needle(c: Context) -> Sequence[Result]:
    """A pinned KV cache skips the engine's memory profiling, so a long prompt must prove the activations fit."""
    tokens = c.plan.gates.needle_tokens
    if tokens is None:
        return [skipped("needle", "no needle asked for")]
    if c.plan.random_weights:
        return [skipped("needle", RANDOM)]
    secret = "47-BRAVO-19"
    filler = "The tide tables of the harbour were copied out again, line by line, in a careful hand. "
    # About 20 tokens a sentence in common vocabularies; more than asked for is harmless.
    half = filler * (tokens // 36)
    prompt = f"{half}The vault code is {secret}. {half}\nWhat is the vault code? Answer with the code only."
    reply = c.probes.generate([prompt], 40)[0]
    if reply.error:
        return [Result("needle", "FAIL", c.dead() or f"a prompt of {tokens} tokens failed: {reply.error}")]
    if secret in reply.text:
        return [passed("needle", f"found in a prompt of at least {tokens} tokens")]
    return [Result("needle", "FAIL", "the needle was not found", seen=repr(reply.text[:80]), expected=secret)]
