"""The watch: what ends it, what does not, and what it costs over a day."""

from __future__ import annotations

from recipectl.bench.acceptance import parse_metrics
from recipectl.serving.observed import RankState
from recipectl.serving.watch import Look, Watch

UP = RankState(0, "a", True, ())


def look(generated: float, running: float = 1, steps: float = 0, *, health: int | None = 200, boot: float = 1.0,
         ranks: tuple[RankState, ...] = (UP,)) -> Look:  # fmt: skip
    text = (
        f"# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total {generated}\n"
        f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running {running}\n"
        f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {boot}\n"
        f'# TYPE vllm:iteration_tokens_total histogram\nvllm:iteration_tokens_total_bucket{{le="+Inf"}} {steps}\n'
        f"vllm:iteration_tokens_total_count {steps}\nvllm:iteration_tokens_total_sum {steps}\n"
    )
    return Look(ranks, health, parse_metrics(text))


def test_requests_that_run_while_nothing_is_generated_are_a_wedge() -> None:
    watch = Watch()
    assert [watch.feed(look(500)) for _ in range(6)] == [None] * 6
    trouble = watch.feed(look(500))
    assert trouble is not None and "wedged" in trouble.reason and not trouble.dead


def test_an_idle_server_and_a_long_prefill_are_none() -> None:
    idle, prefill = Watch(), Watch()
    assert all(idle.feed(look(500, running=0)) is None for _ in range(50))
    assert all(prefill.feed(look(500, steps=n)) is None for n in range(50))


def test_a_pause_shorter_than_the_limit_is_forgiven() -> None:
    watch = Watch()
    for generated in (1, 1, 1, 1, 2, 2, 2, 2, 3):
        assert watch.feed(look(generated)) is None


def test_a_dead_worker_behind_a_green_head_is_told() -> None:
    worker = RankState(1, "b", False, (), "its container ended with exit code 137")
    trouble = Watch().feed(look(5, ranks=(UP, worker)))
    assert trouble is not None and trouble.dead
    assert trouble.reason == (
        "rank 1 on b is gone behind a head that still answers /health: its container ended with exit code 137"
    )


def test_one_deaf_moment_is_forgiven_three_are_not() -> None:
    watch = Watch()
    assert watch.feed(look(1, health=None)) is None
    assert watch.feed(look(2)) is None
    for n in (3, 4):
        assert watch.feed(look(n, health=None)) is None
    trouble = watch.feed(look(5, health=None))
    assert trouble is not None and "no answer" in trouble.reason


def test_another_server_on_the_port_is_told() -> None:
    watch = Watch()
    assert watch.feed(look(5, boot=100.0)) is None
    trouble = watch.feed(look(6, boot=200.0))
    assert trouble is not None and "another server" in trouble.reason
