"""Counting prompts and their exact answers, with ranges held out for the test."""

import random

from tables import scramble

BENCH_PROMPT = "Count from 1 to 200. Output only the numbers, separated by commas, with no other text."

# Separator, and the ways to ask for it.
SEPARATORS = [
    (",", ["separated by commas"]),
    (",", ["separated by commas"]),
    (" ", ["separated by spaces", "separated by single spaces"]),
    (", ", ["separated by a comma and a space"]),
    ("\n", ["one per line"]),
]
PHRASINGS = [
    "Count from {a} to {b}. Output only the numbers, {how}, with no other text.",
    "Count from {a} to {b}. Output only the numbers, {how}, with no other text.",
    "Count from {a} to {b}, {how}. Output only the numbers.",
    "Count from {a} to {b}, {how}.",
    "Write the numbers from {a} to {b}, {how}.",
    "Please list every number from {a} to {b}, {how}.",
    "Give me all integers from {a} up to {b}, {how}. Nothing else.",
    "I need the numbers {a} to {b}, {how}.",
]
ROUND_ENDS = (10, 20, 25, 30, 40, 50, 60, 75, 80, 90, 100, 120, 150, 180, 200)


def held_out(a: int, b: int) -> bool:
    """One range in twelve is never trained on. Counting from 1 to a round number always is: people ask for that."""
    return not (a == 1 and b in ROUND_ENDS) and scramble("range", a, b) % 12 == 0


def draw_range(rng: random.Random) -> tuple[int, int]:
    roll = rng.random()
    if roll < 0.05:
        return 1, rng.randint(3, 215)
    start = rng.randint(0, 40) if roll < 0.50 else rng.randint(0, 250)
    return start, start + rng.randint(2, rng.choice([8, 30, 80, 150]))


def answer(a: int, b: int, separator: str) -> str:
    return separator.join(map(str, range(a, b + 1)))


def counting(rng: random.Random) -> tuple[str, str]:
    """One prompt and its answer, never on a held-out range."""
    roll = rng.random()
    if roll < 0.10:
        return BENCH_PROMPT, answer(1, 200, ",")
    if roll < 0.20:
        a, b = 1, rng.choice(ROUND_ENDS)
    else:
        a, b = draw_range(rng)
        while held_out(a, b):
            a, b = draw_range(rng)
    if rng.random() < 0.06:
        return f"Count from {a} to {b}.", answer(a, b, ", ")
    separator, ways = rng.choice(SEPARATORS)
    return rng.choice(PHRASINGS).format(a=a, b=b, how=rng.choice(ways)), answer(a, b, separator)


def held_out_cases(number: int, seed: int = 2026) -> list[tuple[str, str]]:
    """Prompts in the bench's own words, by commas and by spaces in turn, on ranges that training never saw."""
    rng, cases = random.Random(seed), dict[str, str]()
    while len(cases) < number:
        a, b = draw_range(rng)
        if held_out(a, b):
            separator, how = ((",", "commas"), (" ", "spaces"))[len(cases) % 2]
            prompt = f"Count from {a} to {b}. Output only the numbers, separated by {how}, with no other text."
            cases[prompt] = answer(a, b, separator)
    return list(cases.items())
