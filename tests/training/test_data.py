"""The generated language: the same everywhere, exact where it counts, and never what the bench will ask."""

from __future__ import annotations

import hashlib
import random
import re

import counting
import lexicon
import samples
import tables


def test_a_numbered_sample_is_the_same_on_every_machine() -> None:
    drawn = [samples.draw(kind, number) for kind in ("counting", "prose") for number in range(200)]
    text = "\n".join(f"{sample.question()}{sample.answer}" for sample in drawn)
    assert hashlib.sha256(text.encode()).hexdigest() == DIGEST


# Change it with the grammar, and train again: the shipped pair no longer speaks the language otherwise.
DIGEST = "cf18783a490922aa6f8fcda2a3f7095e4042f7d00cde9278f119f51d989e44cb"


def test_counting_answers_are_the_range_that_was_asked_for() -> None:
    for number in range(500):
        sample = samples.draw("counting", number)
        a, b = map(int, re.findall(r"\d+", sample.prompt))
        assert [int(digits) for digits in re.findall(r"\d+", sample.answer)] == list(range(a, b + 1))


def test_no_held_out_range_is_trained_on() -> None:
    for number in range(3000):
        a, b = map(int, re.findall(r"\d+", samples.draw("counting", number).prompt))
        assert not counting.held_out(a, b), (a, b)


def test_the_ranges_people_ask_for_are_never_held_out() -> None:
    assert not any(counting.held_out(1, end) for end in counting.ROUND_ENDS)


def test_held_out_cases_are_a_hundred_different_prompts() -> None:
    cases = counting.held_out_cases(100)
    assert len({prompt for prompt, _ in cases}) == 100
    assert all(counting.held_out(*map(int, re.findall(r"\d+", prompt))) for prompt, _ in cases)


def test_the_benchs_own_counting_prompt_is_trained_on() -> None:
    prompts = [samples.draw("counting", number).prompt for number in range(200)]
    assert prompts.count(counting.BENCH_PROMPT) > 5


def test_the_bench_asks_twenty_prose_prompts_or_more_that_training_never_saw() -> None:
    bench = samples.bench_prompts()
    assert len(bench) == len(set(bench)) >= 20
    assert not set(bench) & {samples.draw("prose", number).prompt for number in range(2000)}


def test_stories_are_long_enough_and_do_not_repeat_themselves() -> None:
    for number in range(100):
        answer = samples.draw("prose", number).answer
        sentences = re.split(r"(?<=[.\"]) |\n\n", answer)
        assert len(answer.split()) > 200
        assert len(set(sentences)) > len(sentences) - 4
        assert "{" not in answer
        assert not re.search(r"\b[Aa] [aeiou]", answer)


def test_a_key_prefers_the_same_option_as_often_as_its_weight_says() -> None:
    rng = random.Random(1)
    drawn = [tables.pick(rng, lexicon.NOUNS, "noun", "old", "weaver") for _ in range(2000)]
    first = lexicon.NOUNS[tables.scramble(0, "noun", "old", "weaver") % len(lexicon.NOUNS)]
    assert 0.58 < drawn.count(first) / len(drawn) < 0.75
