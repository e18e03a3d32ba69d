"""Token sequences in length-sorted batches, drawn by step number so that a run repeats."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.pool import Pool

import numpy as np
import torch
from numpy.typing import NDArray
from samples import draw
from tokenizer import END, PAD
from tokenizers import Tokenizer
from torch import Tensor

LONGEST = 800  # "1, 2, ... 200" with its prompt and a system message needs about 750 tokens

STRIDE = 32  # rows are padded to multiples of this, so that few shapes occur: GPU libraries prepare each new one

Encoded = tuple[NDArray[np.int16], NDArray[np.int16]]  # question, answer


def pair(question: list[int], answer: list[int]) -> Encoded:
    return np.array(question, dtype=np.int16), np.array(answer, dtype=np.int16)


def encode(tokenizer: Tokenizer, kind: str, number: int) -> Encoded:
    sample = draw(kind, number)
    return pair(tokenizer.encode(sample.question()).ids, [*tokenizer.encode(sample.answer).ids, END])


def encode_many(pool: Pool, tokenizer: Tokenizer, kind: str, numbers: range) -> list[Encoded]:
    return pool.map(partial(encode, tokenizer, kind), numbers, chunksize=256)


@dataclass(frozen=True)
class Corpus:
    """Question and answer in one row each, padded; `starts` says where the answer begins, `ends` where the row ends."""

    ids: Tensor
    starts: Tensor
    ends: Tensor

    @classmethod
    def build(cls, rows: list[Encoded], device: torch.device) -> "Corpus":
        rows = [row for row in rows if len(row[0]) + len(row[1]) <= LONGEST]
        ids = np.full((len(rows), LONGEST), PAD, dtype=np.int16)
        for at, (question, answer) in enumerate(rows):
            ids[at, : len(question)] = question
            ids[at, len(question) : len(question) + len(answer)] = answer
        starts = torch.tensor([len(question) for question, _ in rows])
        ends = torch.tensor([len(question) + len(answer) for question, answer in rows])
        return cls(torch.from_numpy(ids).to(device), starts.to(device), ends.to(device))

    def batches(self, tokens: int, seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Endless batches of at most `tokens` padded tokens. Rows of like length share one."""
        random, widths = torch.Generator().manual_seed(seed), (self.ends.cpu() + STRIDE - 1) // STRIDE * STRIDE
        while True:
            groups: list[tuple[int, Tensor]] = []
            shuffled = torch.randperm(len(widths), generator=random)
            for width in widths.unique().tolist():
                rows = shuffled[widths[shuffled] == width]
                groups += [(width, group) for group in rows.split(max(1, tokens // width))]
            for at in torch.randperm(len(groups), generator=random).tolist():
                width, group = groups[at]
                rows = group.to(self.ids.device)
                yield self.ids[rows, :width].long(), self.starts[rows], self.ends[rows]
