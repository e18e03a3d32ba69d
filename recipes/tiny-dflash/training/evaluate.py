"""What the pair does, measured without an engine: exact counting, and acceptance by walking over greedy text."""

from dataclasses import dataclass

import torch
from corpus import Corpus, pair
from counting import BENCH_PROMPT, answer, held_out_cases
from model import BLOCK, Drafter, Target
from samples import bench_prompts, render
from tokenizer import END
from tokenizers import Tokenizer

BENCH_TOKENS = 200

Answered = tuple[list[int], list[int]]  # a question and the answer that the target gave


@dataclass(frozen=True)
class Acceptance:
    """Shares of drafts whose first n tokens were all right, for n = 1 .. 7."""

    drafts: int
    by_position: list[float]

    @property
    def length(self) -> float:
        return 1 + sum(self.by_position)

    def __str__(self) -> str:
        return f"{self.length:.3f} over {self.drafts} drafts ({' '.join(f'{rate:.3f}' for rate in self.by_position)})"


def answers(target: Target, tokenizer: Tokenizer, prompts: list[str], limit: int) -> list[Answered]:
    questions = [tokenizer.encode(render(prompt)).ids for prompt in prompts]
    rows = target.generate(questions, limit)
    return [(question, row[len(question) :]) for question, row in zip(questions, rows, strict=True)]


def wrong_counts(tokenizer: Tokenizer, cases: list[tuple[str, str]], rows: list[Answered]) -> list[str]:
    """The prompts that were not answered exactly."""
    texts = [tokenizer.decode(row[:-1]) if row[-1:] == [END] else "(does not end)" for _, row in rows]
    return [prompt for (prompt, right), text in zip(cases, texts, strict=True) if text != right]


@torch.no_grad()
def acceptance(target: Target, drafter: Drafter, rows: list[Answered]) -> Acceptance:
    """Greedy speculation replayed over finished answers, at most the bench's number of tokens of each."""
    device = target.norm.weight.device
    drafts, accepted = 0, torch.zeros(BLOCK - 1)
    for row in rows:
        corpus = Corpus.build([pair(*row)], device)
        ids, start = corpus.ids[:, : int(corpus.ends)].long(), int(corpus.starts)
        last = min(start + BENCH_TOKENS, ids.shape[1]) - 1
        anchors = torch.arange(start, last, device=device)[None]
        hidden = drafter(target.tapped(ids), target.embed(ids.gather(1, anchors)), anchors)
        drafted = target.logits(hidden).argmax(-1)[0]
        wanted = anchors[0, :, None] + torch.arange(1, BLOCK, device=device)
        right = (drafted == ids[0, wanted.clamp(max=ids.shape[1] - 1)]) & (wanted < ids.shape[1])
        runs = right.long().cumprod(-1).sum(-1).tolist()
        at = 0
        while at < len(runs):
            drafts += 1
            accepted[: runs[at]] += 1
            at += runs[at] + 1
    return Acceptance(drafts, (accepted / max(drafts, 1)).tolist())


def repeats(ids: list[int], size: int = 24) -> int:
    """How many windows of `size` tokens occur a second time: a loop shows as many."""
    windows = [tuple(ids[at : at + size]) for at in range(len(ids) - size + 1)]
    return len(windows) - len(set(windows))


def report_target(target: Target, tokenizer: Tokenizer, limit: int) -> dict[str, str]:
    cases = [(BENCH_PROMPT, answer(1, 200, ",")), *held_out_cases(100)]
    rows = answers(target, tokenizer, [prompt for prompt, _ in cases] + bench_prompts(), limit)
    wrong = wrong_counts(tokenizer, cases, rows[: len(cases)])
    prose = [ids for _, ids in rows[len(cases) :]]
    return {
        "bench counting prompt": "wrong" if BENCH_PROMPT in wrong else "exact",
        "held-out ranges exact": f"{100 - len([prompt for prompt in wrong if prompt != BENCH_PROMPT])} of 100",
        "held-out ranges wrong": "; ".join(wrong[:4]) or "none",
        "prose answer tokens": f"{min(map(len, prose))} to {max(map(len, prose))}",
        "prose answers that end": f"{sum(ids[-1] == END for ids in prose)} of {len(prose)}",
        "prose different in the first 60 tokens": f"{len({tuple(ids[:60]) for ids in prose})} of {len(prose)}",
        "prose windows of 24 tokens repeated": str(sum(repeats(ids) for ids in prose)),
    }


def report_drafter(target: Target, drafter: Drafter, tokenizer: Tokenizer, limit: int) -> dict[str, str]:
    ranges = [prompt for prompt, _ in held_out_cases(20)]
    sets = {"bench counting": [BENCH_PROMPT], "held-out counting": ranges, "prose": bench_prompts()}
    rows = iter(answers(target, tokenizer, [prompt for prompts in sets.values() for prompt in prompts], limit))
    return {
        f"acceptance length, {name}": str(acceptance(target, drafter, [next(rows) for _ in prompts]))
        for name, prompts in sets.items()
    }
