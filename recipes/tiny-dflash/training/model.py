"""The two networks: a Llama target, and a DFlash drafter that reads the target's hidden states.

Weights are float32 while they train; every operation runs in the dtype of its input: bf16 on a GPU, else float32.
Names of parameters are those of the checkpoints that vLLM loads.
"""

from collections.abc import Iterator
from itertools import islice

import torch
import torch.nn.functional as F
from tokenizer import END, PAD, VOCABULARY
from torch import Tensor, nn

HIDDEN, INTERMEDIATE, LAYERS = 256, 768, 6
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 64
GROUP = HEADS // KV_HEADS
ROPE_THETA, NORM_EPS = 10000.0, 1e-5

TAPS = (1, 3, 4)  # the drafter sees the residual stream after these layers of the target
BLOCK = 8  # the last known token and seven masks
DRAFT_LAYERS, DRAFT_INTERMEDIATE = 2, 768


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), NORM_EPS)


class Linear(nn.Linear):
    def __init__(self, inputs: int, outputs: int, std: float = 0.02) -> None:
        super().__init__(inputs, outputs, bias=False)
        nn.init.normal_(self.weight, std=std)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype))


Rotary = tuple[Tensor, Tensor]


def rotary_at(positions: Tensor, dtype: torch.dtype) -> Rotary:
    """Cosine and sine [batch or 1, 1, time, dim / 2] of positions [batch or 1, time]."""
    exponent = torch.arange(0, HEAD_DIM, 2, dtype=torch.float32, device=positions.device) / HEAD_DIM
    angle = (positions[..., None] * ROPE_THETA**-exponent).unsqueeze(1)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, rotary: Rotary) -> Tensor:
    """Rotary embedding of halves (the "neox" layout) of x [batch, heads, time, dim]."""
    cosine, sine = rotary
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), dim=-1)


class Attention(nn.Module):
    def __init__(self, normalize: bool) -> None:
        super().__init__()
        self.q_proj = Linear(HIDDEN, HEADS * HEAD_DIM)
        self.k_proj = Linear(HIDDEN, KV_HEADS * HEAD_DIM)
        self.v_proj = Linear(HIDDEN, KV_HEADS * HEAD_DIM)
        self.o_proj = Linear(HEADS * HEAD_DIM, HIDDEN, std=0.02 / (2 * LAYERS) ** 0.5)
        self.q_norm = RMSNorm(HEAD_DIM) if normalize else nn.Identity()
        self.k_norm = RMSNorm(HEAD_DIM) if normalize else nn.Identity()

    def query_key_value(self, x: Tensor, rotary: Rotary) -> tuple[Tensor, Tensor, Tensor]:
        query, key = self.q_norm(split_heads(self.q_proj(x))), self.k_norm(split_heads(self.k_proj(x)))
        query, key = rotate(torch.cat((query, key), dim=1), rotary).split((HEADS, KV_HEADS), dim=1)
        return query, key, split_heads(self.v_proj(x))

    def key_value(self, x: Tensor, rotary: Rotary) -> tuple[Tensor, Tensor]:
        return rotate(self.k_norm(split_heads(self.k_proj(x))), rotary), split_heads(self.v_proj(x))


def split_heads(x: Tensor) -> Tensor:
    """[batch, time, heads * dim] -> [batch, heads, time, dim]"""
    return x.unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    if mask is not None:  # the kernels that take a mask want the heads in full
        key, value = key.repeat_interleave(GROUP, dim=1), value.repeat_interleave(GROUP, dim=1)
    mixed = F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, enable_gqa=mask is None)
    return mixed.transpose(1, 2).flatten(2)


class MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate_proj = Linear(HIDDEN, width)
        self.up_proj = Linear(HIDDEN, width)
        self.down_proj = Linear(width, HIDDEN, std=0.02 / (2 * LAYERS) ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, width: int, normalize: bool = False) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(HIDDEN)
        self.self_attn = Attention(normalize)
        self.post_attention_layernorm = RMSNorm(HIDDEN)
        self.mlp = MLP(width)

    def forward(self, x: Tensor, rotary: Rotary) -> Tensor:
        """The layer over whole sequences."""
        query, key, value = self.self_attn.query_key_value(self.input_layernorm(x), rotary)
        return self.finish(x, attend(query, key, value, causal=True))

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Everything after attention."""
        x = x + self.self_attn.o_proj(mixed)
        return x + self.mlp(self.post_attention_layernorm(x))


class Target(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.embed_tokens = nn.Embedding(VOCABULARY, HIDDEN)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        self.layers = nn.ModuleList(Layer(INTERMEDIATE) for _ in range(LAYERS))
        self.norm = RMSNorm(HIDDEN)

    def embed(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.embed_tokens.weight.to(self.dtype))

    def logits(self, hidden: Tensor) -> Tensor:
        """The head is the embedding: the target ties them, and the drafter borrows both."""
        return F.linear(hidden, self.embed_tokens.weight.to(self.dtype)).float()

    def residuals(self, ids: Tensor) -> Iterator[Tensor]:
        """The residual stream after each layer in turn."""
        rotary = rotary_at(torch.arange(ids.shape[1], device=ids.device)[None], self.dtype)
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, rotary)
            yield x

    def forward(self, ids: Tensor) -> Tensor:
        *_, last = self.residuals(ids)
        return self.norm(last)

    def tapped(self, ids: Tensor) -> Tensor:
        """What the drafter sees: the tapped layers side by side."""
        stream = list(islice(self.residuals(ids), max(TAPS) + 1))
        return torch.cat([stream[tap] for tap in TAPS], dim=-1)

    @torch.no_grad()
    def generate(self, prompts: list[list[int]], limit: int, heat: list[float] | None = None) -> list[list[int]]:
        """Continue each prompt until it ends or is `limit` tokens long, prompt included. `heat` is a temperature for
        each prompt; 0, the default, is greedy.

        Rows stay left-aligned: each has its own position, and what it has not written yet is masked.
        """
        device = self.norm.weight.device
        temperatures = torch.tensor(heat or [0.0] * len(prompts), device=device)[:, None]
        rows = torch.arange(len(prompts), device=device)
        at = torch.tensor([len(prompt) for prompt in prompts], device=device)
        width = max(map(len, prompts))
        padded = torch.tensor([prompt + [PAD] * (limit - len(prompt)) for prompt in prompts])
        ids, done = padded.to(device), torch.zeros(len(prompts), dtype=torch.bool, device=device)
        shape = (len(prompts), KV_HEADS, limit, HEAD_DIM)
        cache = [
            (torch.zeros(shape, dtype=self.dtype, device=device), torch.zeros(shape, dtype=self.dtype, device=device))
            for _ in self.layers
        ]

        rotary = rotary_at(torch.arange(width, device=device)[None], self.dtype)
        x = self.embed(ids[:, :width])
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            h = layer.input_layernorm(x)
            query, key, value = layer.self_attn.query_key_value(h, rotary)
            keys[:, :, :width], values[:, :, :width] = key, value
            x = layer.finish(x, attend(query, key, value, causal=True))
        x = x[rows, at - 1][:, None]

        for written in range(limit - min(map(len, prompts))):
            token = choose(self.logits(self.norm(x))[:, 0], temperatures)
            ids[rows, at] = torch.where(done, ids[rows, at], token)
            done |= (token == END) | (at == limit - 1)
            if written % 16 == 0 and bool(done.all()):
                break
            x = self.step(ids[rows, at], at, min(limit, width + written + 1), cache, rows)
            at = torch.where(done, at, at + 1)
        return [row[: row.index(PAD) if PAD in row else limit] for row in ids.tolist()]

    def step(self, token: Tensor, at: Tensor, width: int, cache: list[tuple[Tensor, Tensor]], rows: Tensor) -> Tensor:
        """One decoding step: the hidden state of `token` at position `at` of every row."""
        rotary, x = rotary_at(at[:, None], self.dtype), self.embed(token)[:, None]
        unseen = torch.arange(width, device=at.device)[None] > at[:, None]
        bias = torch.zeros(unseen.shape, dtype=self.dtype, device=at.device).masked_fill(unseen, -1e9)[:, None, None]
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            h = layer.input_layernorm(x)
            query, key, value = layer.self_attn.query_key_value(h, rotary)
            keys[rows, :, at], values[rows, :, at] = key[:, :, 0], value[:, :, 0]
            # The heads that share a key stand in the time axis, which saves copying the cache for each of them.
            grouped = query.reshape(-1, KV_HEADS, GROUP, HEAD_DIM)
            scores = grouped @ keys[:, :, :width].transpose(2, 3) * HEAD_DIM**-0.5 + bias
            mixed = scores.float().softmax(-1).to(self.dtype) @ values[:, :, :width]
            x = layer.finish(x, mixed.reshape(-1, 1, HEADS * HEAD_DIM))
        return x


def choose(logits: Tensor, temperatures: Tensor) -> Tensor:
    greedy = logits.argmax(-1)
    if not bool((temperatures > 0).any()):
        return greedy
    drawn = torch.multinomial((logits / temperatures.clamp(min=1e-3)).softmax(-1), 1)[:, 0]
    return torch.where(temperatures[:, 0] > 0, drawn, greedy)


class Drafter(nn.Module):
    """One pass fills a block: the last known token, and seven masks that predict the tokens of their own positions."""

    def __init__(self, layers: int = DRAFT_LAYERS, width: int = DRAFT_INTERMEDIATE) -> None:
        super().__init__()
        self.fc = Linear(HIDDEN * len(TAPS), HIDDEN, std=(HIDDEN * len(TAPS)) ** -0.5)
        self.hidden_norm = RMSNorm(HIDDEN)
        self.layers = nn.ModuleList(Layer(width, normalize=True) for _ in range(layers))
        self.norm = RMSNorm(HIDDEN)
        self.mask_embedding = nn.Parameter(torch.randn(HIDDEN) * 0.02)

    def forward(self, tapped: Tensor, known: Tensor, anchors: Tensor) -> Tensor:
        """Hidden states [batch, anchors, 7, hidden] for the seven positions after each anchor.

        tapped: the target's states at all positions; known: the embedding of the token at each anchor. A block sees the
        context before its anchor and itself, in both directions. The context enters attention as keys and values only.
        """
        batch, blocks = anchors.shape
        device = anchors.device
        context = self.hidden_norm(self.fc(tapped))
        context_at = torch.arange(context.shape[1], device=device)[None]
        block_at = (anchors[:, :, None] + torch.arange(BLOCK, device=device)).flatten(1)
        masks = self.mask_embedding.to(known.dtype).expand(batch, blocks, BLOCK - 1, -1)
        x = torch.cat((known[:, :, None], masks), dim=2).flatten(1, 2)

        owner = torch.arange(blocks, device=device).repeat_interleave(BLOCK)
        sees_context = context_at[:, None] < anchors.repeat_interleave(BLOCK, dim=1)[:, :, None]
        sees_block = (owner[:, None] == owner).expand(batch, -1, -1)
        mask = torch.cat((sees_context, sees_block), dim=-1)[:, None]
        context_rotary, block_rotary = rotary_at(context_at, x.dtype), rotary_at(block_at, x.dtype)
        for layer in self.layers:
            h = layer.input_layernorm(x)
            context_key, context_value = layer.self_attn.key_value(context, context_rotary)
            query, key, value = layer.self_attn.query_key_value(h, block_rotary)
            mixed = attend(query, torch.cat((context_key, key), 2), torch.cat((context_value, value), 2), mask)
            x = layer.finish(x, mixed)
        return self.norm(x).unflatten(1, (blocks, BLOCK))[:, :, 1:]
