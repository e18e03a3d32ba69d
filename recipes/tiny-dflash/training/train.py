"""Train the tiny pair from nothing: tokenizer, target, the target's own generations, drafter.

    python3 train.py --out DIR            a few minutes on an H200, a day or more on a laptop
    python3 train.py --out DIR --quick    a minute on a laptop; proves that the code runs, the models are useless

Everything is counted in steps and seeded. Two runs on the same GPU agree within noise, not to the bit: sums on a GPU
have no fixed order.
"""

import argparse
import hashlib
import math
import multiprocessing
import os
import shutil
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import evaluate
import export
import provenance
import torch
import torch._dynamo
import torch.nn.functional as F
from corpus import LONGEST, Corpus, Encoded, encode_many, pair
from model import BLOCK, DRAFT_INTERMEDIATE, DRAFT_LAYERS, Drafter, Target
from tokenizer import save_tokenizer, train_tokenizer
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

SEED = 20261129
FIRST_PROMPT = 10_000_000  # prompts for the target's own generations: numbers that training never drew


@dataclass(frozen=True)
class Plan:
    tokenizer_samples: int = 6000
    counting_samples: int = 64_000
    prose_samples: int = 96_000
    target_steps: int = 4500
    target_tokens: int = 32_768  # of each kind in a step
    counting_prompts: int = 5000
    prose_prompts: int = 14_000
    generation_batch: int = 4096
    generation_limit: int = LONGEST
    drafter_steps: int = 2000
    drafter_tokens: int = 24_576  # of each kind in a step
    anchors: int = 64  # blocks drafted in each row
    peak_rate: float = 2e-3


QUICK = Plan(
    tokenizer_samples=500,
    counting_samples=200,
    prose_samples=200,
    target_steps=6,
    target_tokens=2048,
    counting_prompts=12,
    prose_prompts=12,
    generation_batch=8,
    generation_limit=96,
    drafter_steps=6,
    drafter_tokens=2048,
    anchors=4,
)

KINDS = ("counting", "prose")
# Counting is right or wrong while prose is a matter of taste: its rare mistakes must not drown in the noise of prose.
WEIGHTS = {"counting": 2.0, "prose": 1.0}
UNSCORED = -100  # the label that cross entropy skips


class Log:
    """Prints with the time, and keeps what belongs into the provenance record."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.kept: list[str] = []

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:6.1f} s] {text}", flush=True)

    def keep(self, name: str, value: object) -> None:
        self.kept.append(f"{name}: {value}")
        self.say(self.kept[-1])


def rate_factor(step: int, steps: int) -> float:
    """A short warm-up, then a cosine down to two hundredths."""
    done = (step + 1) / steps
    return min(1.0, done / 0.03) * (0.02 + 0.49 * (1 + math.cos(math.pi * done)))


def optimizer(model: nn.Module, plan: Plan, decay: float, steps: int) -> tuple[AdamW, LambdaLR]:
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    vectors = [weight for weight in model.parameters() if weight.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    adam = AdamW(groups, lr=plan.peak_rate, betas=(0.9, 0.95), fused=True)
    return adam, LambdaLR(adam, lambda step: rate_factor(step, steps))


def round_weights(model: nn.Module) -> None:
    """To what the files will hold, so that everything measured from here on is measured on what is shipped."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.to(torch.bfloat16))


def answer_loss(target: Target, ids: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    """Cross entropy over the answer alone. Masked and not indexed: an index would make the host wait for the GPU."""
    at = torch.arange(1, ids.shape[1], device=ids.device)
    truth = ids[:, 1:].masked_fill((at < starts[:, None]) | (at >= ends[:, None]), UNSCORED)
    hidden = target(ids)[:, :-1]
    return F.cross_entropy(target.logits(hidden).flatten(0, 1), truth.flatten(), ignore_index=UNSCORED)


def block_loss(target: Target, drafter: Drafter, ids: Tensor, starts: Tensor, ends: Tensor, anchors: int) -> Tensor:
    """Cross entropy over blocks behind random anchors of the answer. Early positions weigh more."""
    spread = torch.rand(len(ids), anchors, device=ids.device)
    anchor = starts[:, None] + (spread * (ends - starts - 1)[:, None]).long()
    wanted = anchor[:, :, None] + torch.arange(1, BLOCK, device=ids.device)
    truth = ids.gather(1, wanted.clamp(max=ids.shape[1] - 1).flatten(1)).view_as(wanted)
    truth = truth.masked_fill(wanted >= ends[:, None, None], UNSCORED)
    with torch.no_grad():
        tapped = target.tapped(ids)
        known = target.embed(ids.gather(1, anchor))
    logits = target.logits(drafter(tapped, known, anchor))
    losses = F.cross_entropy(logits.flatten(0, 2), truth.flatten(), ignore_index=UNSCORED, reduction="none")
    weight = 0.85 ** torch.arange(BLOCK - 1, device=ids.device) * (truth != UNSCORED)
    return (losses.view_as(weight) * weight).sum() / weight.sum()


def train_target(target: Target, corpora: dict[str, Corpus], plan: Plan, log: Log) -> None:
    adam, schedule = optimizer(target, plan, 0.05, plan.target_steps)
    streams = {kind: corpora[kind].batches(plan.target_tokens, SEED) for kind in KINDS}
    for step in range(1, plan.target_steps + 1):
        losses = {kind: answer_loss(target, *next(streams[kind])) for kind in KINDS}
        descend(target, adam, schedule, sum(WEIGHTS[kind] * loss for kind, loss in losses.items()))
        if step % max(1, plan.target_steps // 20) == 0:
            log.say(f"target step {step}: " + ", ".join(f"{kind} {loss.item():.4f}" for kind, loss in losses.items()))
    log.keep("target last losses", ", ".join(f"{kind} {loss.item():.4f}" for kind, loss in losses.items()))
    round_weights(target)


def train_drafter(target: Target, drafter: Drafter, corpora: dict[str, Corpus], plan: Plan, log: Log) -> None:
    adam, schedule = optimizer(drafter, plan, 0.02, plan.drafter_steps)
    streams = {kind: corpora[kind].batches(plan.drafter_tokens, SEED + 1) for kind in KINDS}
    for step in range(1, plan.drafter_steps + 1):
        losses = {kind: block_loss(target, drafter, *next(streams[kind]), plan.anchors) for kind in KINDS}
        descend(drafter, adam, schedule, losses["counting"] + losses["prose"])
        if step % max(1, plan.drafter_steps // 10) == 0:
            log.say(f"drafter step {step}: " + ", ".join(f"{kind} {loss.item():.4f}" for kind, loss in losses.items()))
    log.keep("drafter last losses", ", ".join(f"{kind} {loss.item():.4f}" for kind, loss in losses.items()))
    round_weights(drafter)


def descend(model: nn.Module, adam: AdamW, schedule: LambdaLR, loss: Tensor) -> None:
    adam.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    adam.step()
    schedule.step()


def own_generations(target: Target, prompts: dict[str, list[Encoded]], plan: Plan, log: Log) -> dict[str, Corpus]:
    """What the target itself says: greedy, but every third story at temperature 0.7, for other paths."""
    device, corpora = target.norm.weight.device, {}
    for kind, rows in prompts.items():
        ordered = sorted((row for row in rows if len(row[0]) + len(row[1]) <= LONGEST), key=lambda row: len(row[1]))
        said: list[Encoded] = []
        for first in range(0, len(ordered), plan.generation_batch):
            chunk = ordered[first : first + plan.generation_batch]
            heat = [0.7 if kind == "prose" and at % 3 == 2 else 0.0 for at in range(len(chunk))]
            asked = [question.tolist() for question, _ in chunk]
            texts = target.generate(asked, plan.generation_limit, heat)
            said += [pair(question, text[len(question) :]) for question, text in zip(asked, texts, strict=True)]
        if kind == "counting":
            exact = sum(mine[1].tolist() == right[1].tolist() for mine, right in zip(said, ordered, strict=True))
            log.keep("counting generations exact", f"{exact} of {len(said)}")
        log.keep(
            f"{kind} generations",
            f"{len(said)}, {sum(len(text) for _, text in said) / len(said):.0f} tokens on average",
        )
        corpora[kind] = Corpus.build(said, device)
    return corpora


def make_corpora(plan: Plan, tokenizer: Tokenizer) -> tuple[dict[str, list[Encoded]], dict[str, list[Encoded]]]:
    """Samples to learn from, and prompts for the target's own generations. It forks: call it before CUDA starts."""
    with multiprocessing.get_context("fork").Pool(min(16, os.cpu_count() or 1)) as pool:
        learn = {
            "counting": encode_many(pool, tokenizer, "counting", range(plan.counting_samples)),
            "prose": encode_many(pool, tokenizer, "prose", range(plan.prose_samples)),
        }
        ask = {
            "counting": encode_many(
                pool, tokenizer, "counting", range(FIRST_PROMPT, FIRST_PROMPT + plan.counting_prompts)
            ),
            "prose": encode_many(pool, tokenizer, "prose", range(FIRST_PROMPT, FIRST_PROMPT + plan.prose_prompts)),
        }
    return learn, ask


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the tiny DFlash pair.")
    parser.add_argument("--out", type=Path, required=True, help="folder for target/ and drafter/")
    parser.add_argument("--quick", action="store_true", help="a few steps only, to see that everything runs")
    parser.add_argument("--run-name", default="tiny-dflash", help="for the provenance record")
    parser.add_argument("--target", type=Path, help="a finished target/ to train a drafter for, instead of a new one")
    parser.add_argument("--draft-layers", type=int, default=DRAFT_LAYERS)
    parser.add_argument("--draft-width", type=int, default=DRAFT_INTERMEDIATE, help="intermediate size of the drafter")
    options = parser.parse_args()
    plan = QUICK if options.quick else Plan()
    for folder in provenance.FOLDERS:
        (options.out / folder).mkdir(parents=True, exist_ok=True)

    log = Log()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.manual_seed(SEED)
    log.keep("run", options.run_name)
    log.keep("seed", SEED)
    log.keep("plan", asdict(plan))

    if options.target:
        shutil.copytree(options.target, options.out / "target", dirs_exist_ok=True)
        tokenizer = Tokenizer.from_file(str(options.target / "tokenizer.json"))
        plan = replace(plan, counting_samples=0, prose_samples=0, target_steps=0)
    else:
        tokenizer = train_tokenizer(plan.tokenizer_samples)
        save_tokenizer(tokenizer, options.out / "target")
    learn, ask = make_corpora(plan, tokenizer)
    for kind, rows in learn.items():
        log.keep(
            f"{kind} samples", f"{len(rows)}, {sum(len(question) + len(answer) for question, answer in rows)} tokens"
        )

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    log.keep(
        "machine", f"{torch.cuda.get_device_name() if device.type == 'cuda' else 'CPU'}, torch {torch.__version__}"
    )
    torch.backends.cuda.enable_cudnn_sdp(False)  # it compiles a plan for every new shape
    target = Target(torch.bfloat16 if device.type == "cuda" else torch.float32).to(device)
    log.keep("target parameters", sum(weight.numel() for weight in target.parameters()))
    if device.type == "cuda":
        # Small layers are bound by kernel launches. One compiled graph serves all layers and all lengths; where
        # compiling fails the layers run as they are.
        torch._dynamo.config.suppress_errors = True
        for layer in target.layers:
            layer.compile(dynamic=True)
    if options.target:
        export.load_target(target, options.target)
        log.keep("target from", hashlib.sha256((options.target / "model.safetensors").read_bytes()).hexdigest())
    else:
        train_target(target, {kind: Corpus.build(rows, device) for kind, rows in learn.items()}, plan, log)
        export.export_target(target, options.out / "target")
    for name, value in evaluate.report_target(target, tokenizer, plan.generation_limit).items():
        log.keep(name, value)

    target.requires_grad_(False)
    spoken = own_generations(target, ask, plan, log)
    drafter = Drafter(options.draft_layers, options.draft_width).to(device)
    log.keep("drafter parameters", sum(weight.numel() for weight in drafter.parameters()))
    train_drafter(target, drafter, spoken, plan, log)
    export.export_drafter(drafter, options.out / "drafter")
    for name, value in evaluate.report_drafter(target, drafter, tokenizer, plan.generation_limit).items():
        log.keep(name, value)

    log.keep("wall time", f"{time.monotonic() - log.began:.0f} s")
    provenance.write(options.out, "\n".join(log.kept), "not measured yet")


if __name__ == "__main__":
    main()
