"""Numbered training samples: sample number n is the same on every machine."""

import random
from dataclasses import dataclass
from pathlib import Path

import lexicon as lex
from counting import counting
from prose import prose

PROSE_PROMPTS = Path(__file__).resolve().parent.parent / "prompts-prose.txt"


@dataclass(frozen=True)
class Sample:
    kind: str  # "counting" or "prose"
    system: str | None
    prompt: str
    answer: str

    def question(self) -> str:
        return render(self.prompt, self.system)


def render(prompt: str, system: str | None = None) -> str:
    """What the chat template makes of one user turn, up to where the assistant begins."""
    opening = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    return f"{opening}<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"


def bench_prompts(path: Path = PROSE_PROMPTS) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


BENCH_PROMPTS = frozenset(bench_prompts())


def draw(kind: str, number: int) -> Sample:
    """Sample `number` of its kind. What the bench asks for prose, the model was not trained on."""
    rng = random.Random(f"{kind} {number}")
    make = counting if kind == "counting" else prose
    prompt, answer = make(rng)
    while prompt in BENCH_PROMPTS:
        prompt, answer = make(rng)
    system = rng.choice(lex.SYSTEM_MESSAGES) if rng.random() < 0.15 else None
    return Sample(kind, system, prompt, answer)
