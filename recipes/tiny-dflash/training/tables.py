"""Seeded choice: the same key always prefers the same option, so a language made of these choices can be learned."""

import random
import zlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

# Chance of the first, second, ... preference of a key. The head is heavy enough for greedy text to be confident.
WEIGHTS = (0.62, 0.18, 0.10, 0.06, 0.04)


def scramble(*key: object) -> int:
    """A stable hash. The multiplication breaks crc32's linearity, which a network could otherwise exploit."""
    digest = zlib.crc32("|".join(map(str, key)).encode())
    return (digest * 2654435761 & 0xFFFFFFFFFFFF) >> 16


def pick(rng: random.Random, options: Sequence[T], *key: object) -> T:
    """Draw one option: which one is preferred depends on the key alone, how far down the preferences on the rng."""
    point, rank = rng.random(), 0
    while rank < len(WEIGHTS) - 1 and point >= WEIGHTS[rank]:
        point -= WEIGHTS[rank]
        rank += 1
    return options[scramble(rank, *key) % len(options)]
