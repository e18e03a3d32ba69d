"""The gates against a scripted server: each fault fails its own gate, and nothing green stands on a fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from recipectl.bench.acceptance import Scrape, parse_metrics
from recipectl.recipe.lane import Gates
from recipectl.serving.checks import GATES
from recipectl.serving.gates import Context, Result, run, set_verdicts
from recipectl.serving.observed import RankState, Reply
from recipectl.serving.plan import Plan, compose
from tests.serving.logs import read
from tests.serving.test_plan import order

TAPS = (5, 14, 24)  # the recorded server logs (6, 15, 25)


@dataclass
class Fake:
    """A server as the gates see it. `accept` gives accepted draft tokens a draft from prompt and temperature."""

    log: list[str] = field(default_factory=lambda: read("cpu-dflash-k7")[:-60])
    k: int = 7
    accept: Callable[[str, float], int] = lambda prompt, heat: 7 if prompt == "Count." else 3
    text: str = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11"
    alive: bool = True
    dies: bool = False
    frozen: bool = False
    name: str = "tiny-dflash"
    healthy: int | None = 200
    error: str | None = None
    keyless: int = 200
    asked: list[tuple[str, int, float]] = field(default_factory=list)
    drafts: int = 0
    accepted: int = 0
    generated: int = 0

    def ranks(self) -> list[RankState]:
        return [RankState(0, "local", self.alive, self.log, None if self.alive else "exit code 1")]

    def health(self) -> int | None:
        return self.healthy

    def models(self) -> list[str]:
        return [self.name]

    def status_without_key(self) -> int:
        return self.keyless

    def scrape(self) -> Scrape:
        rows = {"vllm:generation_tokens_total": self.generated, "vllm:spec_decode_num_drafts_total": self.drafts,
                "vllm:spec_decode_num_draft_tokens_total": self.drafts * self.k,
                "vllm:spec_decode_num_accepted_tokens_total": self.accepted}  # fmt: skip
        text = "".join(f"# TYPE {n.removesuffix('_total')} counter\n{n} {float(v)}\n" for n, v in rows.items())
        return parse_metrics(text)

    def generate(self, prompts: Sequence[str], max_tokens: int, temperature: float = 0.0) -> list[Reply]:
        replies = []
        for prompt in prompts:
            self.asked.append((prompt, max_tokens, temperature))
            if self.dies:
                self.alive = False
                self.log = read("cpu-healthy-then-dies")
                return [Reply(error="HTTP 500: EngineCore encountered an issue")] * len(prompts)
            if self.error:
                return [Reply(error=self.error)] * len(prompts)
            per_draft = self.accept(prompt, temperature)
            drafts = -(-max_tokens // (per_draft + 1))
            self.drafts += drafts
            self.accepted += drafts * per_draft
            self.generated += 0 if self.frozen else max_tokens
            replies.append(Reply(self.text if prompt == "Count." else "A story.", "length", max_tokens, 0.1))
        return replies


def plan(**changes: object) -> Plan:
    base = compose(order(taps=TAPS))
    return replace(base, **changes)  # type: ignore[arg-type]


def gated(fake: Fake, plan_: Plan | None = None, *, exposed: bool = False) -> dict[str, Result]:
    results = run(Context(plan_ or plan(), fake, exposed=exposed), GATES)
    return {r.gate: r for r in results}


def gates(**values: object) -> Plan:
    base = plan()
    return replace(base, gates=Gates.model_validate({**base.gates.model_dump(), **values}))


def test_a_true_server_passes_every_gate() -> None:
    found = gated(Fake())
    assert {g: r.verdict for g, r in found.items() if r.verdict != "PASS"} == {
        "unauthorized": "SKIPPED", "v2-runner": "SKIPPED", "graphs": "SKIPPED", "needle": "SKIPPED",
    }  # fmt: skip
    assert found["k-metrics"].message.startswith("7.00 draft tokens a draft")
    assert found["kv-pool"].message == "43648 tokens, 1024 needed"


def test_dead_process_blocks_everything_with_its_cause() -> None:
    found = gated(Fake(log=read("h200-boot-fails-kernel-missing"), alive=False))
    assert found["alive"].verdict == "FAIL" and "not compiled into this build" in found["alive"].message
    assert {r.verdict for g, r in found.items() if g != "alive"} == {"NOT_RUN"}
    assert found["health"].message == "blocked by alive"


def test_green_health_and_death_on_the_first_request() -> None:
    found = gated(Fake(dies=True))
    assert found["health"].verdict == "PASS"
    assert found["generation-c1"].verdict == "FAIL"
    assert "rejection_sample_method synthetic boots on the CPU and dies" in found["generation-c1"].message
    assert found["k-metrics"].verdict == "NOT_RUN"


FAULTS = {
    "required-log": Fake(log=[line for line in read("cpu-dflash-k7")[:-60] if "mask embedding" not in line]),
    "forbidden-log": Fake(log=[*read("cpu-dflash-k7")[:-60], "RuntimeError: Model does not support EAGLE3 interface"]),
    "health": Fake(healthy=503),
    "model": Fake(name="another"),
    "generation-c1": Fake(error="no answer within 300 s"),
    "counting": Fake(text="1, 2, 3, 5, 6"),
    "counters": Fake(frozen=True),
    "k-metrics": Fake(k=5),
    "acceptance": Fake(accept=lambda prompt, heat: 0),
    "prose-acceptance": Fake(accept=lambda prompt, heat: 7),
}


@pytest.mark.parametrize("gate", FAULTS)
def test_each_fault_fails_its_own_gate(gate: str) -> None:
    assert gated(FAULTS[gate])[gate].verdict == "FAIL"


def test_another_k_fails_from_the_log_and_from_the_metrics() -> None:
    found = gated(Fake(), plan(k=5))
    assert (found["k-log"].seen, found["k-log"].expected) == ("K 7", "K 5")
    assert found["k-metrics"].verdict == "FAIL"


def test_corrupted_tokens_fail() -> None:
    found = gated(Fake(text="1, 2, 3 \ufffd 4"))
    assert found["generation-c1"].verdict == "FAIL" and "U+FFFD" in found["generation-c1"].message
    # a character that max_tokens cut in half is no corruption
    assert gated(Fake(text="1, 2, 3, 4\ufffd"))["generation-c1"].verdict == "PASS"


def test_a_small_pool_a_missing_runner_and_missing_graphs_fail() -> None:
    small = gated(Fake(), gates(kv_pool_tokens_min=50_000))
    assert (small["kv-pool"].seen, small["kv-pool"].expected) == ("43648 tokens", "at least 50000 tokens")
    asked = gated(Fake(), gates(graphs=True, v2_runner=True))
    assert asked["graphs"].verdict == "FAIL" and asked["v2-runner"].verdict == "FAIL"


def test_graphs_and_runner_pass_on_the_server_that_has_them() -> None:
    log = read("h200-dflash2-k7-graphs")[:-40]
    base = gates(graphs=True, v2_runner=True, required_log=[])
    found = gated(Fake(log=log), replace(base, taps=(1, 8, 15, 22, 29)))
    assert [found[g].verdict for g in ("graphs", "v2-runner", "taps", "kv-pool")] == ["PASS"] * 4


def test_other_taps_fail() -> None:
    assert gated(Fake(), plan(taps=(1, 2, 3)))["taps"].verdict == "FAIL"


def test_random_weights_skip_what_they_cannot_pass_and_nothing_else() -> None:
    found = gated(Fake(text="\x03\ufffd\x03", accept=lambda p, t: 0), plan(random_weights=True))
    skipped = {g for g, r in found.items() if r.message == "random weights"}
    assert skipped == {"counting", "acceptance", "prose-acceptance", "temperature"}
    assert found["generation-c1"].verdict == "PASS" and found["k-metrics"].verdict == "PASS"


def hot(prompt: str, heat: float) -> int:
    return 0 if heat > 0 else 7 if prompt == "Count." else 3


def test_the_known_fault_of_the_engine_is_named_and_does_not_fail() -> None:
    found = gated(Fake(accept=hot))["temperature"]
    assert found.verdict == "KNOWN_FAULT" and found.message.startswith("speculation-at-temperature: ")
    assert found.seen == "0 of 840 draft tokens accepted at 0.8, over 120 drafts"


def test_the_same_fault_undeclared_or_on_another_version_fails() -> None:
    assert gated(Fake(accept=hot), gates(known_faults=[]))["temperature"].verdict == "FAIL"
    assert gated(Fake(accept=hot), plan(engine_version="0.33.0"))["temperature"].verdict == "FAIL"


def test_a_declared_fault_that_is_gone_is_said() -> None:
    assert "is not there" in gated(Fake())["temperature"].message


def test_prose_stops_asking_at_the_first_refused_draft_and_asks_on_while_pinned() -> None:
    honest = Fake()
    gated(honest)
    assert sum(1 for p, tokens, _ in honest.asked if p == "Tell." and tokens == 200) == 1
    pinned = Fake(accept=lambda prompt, heat: 7)
    found = gated(pinned)["prose-acceptance"]
    # 200 tokens are 25 drafts of 8, so 200 drafts take 8 answers
    assert sum(1 for p, tokens, _ in pinned.asked if p == "Tell." and tokens == 200) == 8
    assert found.seen == "1400 of 1400 over 200 drafts"


def test_exposed_without_a_key_fails() -> None:
    assert gated(Fake(), exposed=True)["unauthorized"].verdict == "FAIL"
    assert gated(Fake(keyless=401), exposed=True)["unauthorized"].verdict == "PASS"


def test_the_needle_must_be_found() -> None:
    found = gated(Fake(), gates(needle_tokens=2000))["needle"]
    assert found.verdict == "FAIL" and found.expected == "47-BRAVO-19"


def test_a_named_set_takes_the_verdict_of_its_weakest_member() -> None:
    results = run(Context(plan(), Fake()), GATES)
    sets = {"production": ["kv-pool", "generation", "required-log"], "graphs": ["graphs"], "odd": ["no-such-gate"]}
    assert set_verdicts(results, sets) == {"production": "PASS", "graphs": "SKIPPED", "odd": "NOT_RUN"}
