"""The request bodies of a protocol, in what this server understands. PURE."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from recipectl.bench.protocol import Phase, Prompt, Protocol

PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}

# Fields that not every server takes, in the order in which they are given up, with what their absence costs.
OPTIONAL: dict[str, str] = {
    "cache_salt": "runs cannot be kept out of the prefix cache by a salt; the hit counter alone tells",
    "return_token_ids": "tokens of a chunk are taken from continuous usage, and prompt token hashes are missing",
    "continuous_usage": "tokens of a chunk are not known; the first chunk is assumed to bear 1",
    "top_k": "the server's own top_k default applies",
    "chat_template_kwargs": "thinking cannot be switched off in the body",
}


@dataclass(frozen=True)
class Dialect:
    """Which optional fields are sent to this server."""

    without: frozenset[str] = frozenset()

    def sends(self, name: str) -> bool:
        """Whether the field is sent."""
        return name not in self.without

    def drop(self, name: str) -> Dialect:
        """The dialect without one more field."""
        return replace(self, without=self.without | {name})


def body(
    protocol: Protocol, prompt: str, model: str, dialect: Dialect, *, salt: str, seed: int | None, max_tokens: int
) -> dict[str, Any]:
    """One request. Sampling is always explicit; thinking is switched in the body, where a run can prove it."""
    out: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "temperature": protocol.sampling.temperature,
                           "top_p": protocol.sampling.top_p}  # fmt: skip
    if dialect.sends("top_k"):
        out["top_k"] = protocol.sampling.top_k
    if protocol.endpoint == "chat":
        out["messages"] = [{"role": "user", "content": prompt}]
        if protocol.thinking is not None and dialect.sends("chat_template_kwargs"):
            # Some templates know `thinking` instead; an unknown variable is ignored by a template.
            out["chat_template_kwargs"] = {"enable_thinking": protocol.thinking, "thinking": protocol.thinking}
    else:
        out["prompt"] = prompt
    if protocol.transport == "stream":
        out["stream"] = True
        out["stream_options"] = {"include_usage": True}
        if dialect.sends("continuous_usage"):
            out["stream_options"]["continuous_usage_stats"] = True
    if dialect.sends("return_token_ids"):
        out["return_token_ids"] = True
    if dialect.sends("cache_salt"):
        out["cache_salt"] = salt
    if protocol.ignore_eos:
        out["ignore_eos"] = True
    if seed is not None:
        out["seed"] = seed
    return out


def schedule(phase: Phase, concurrency: int, round_: int, load: str) -> list[Prompt]:
    """The prompts of one round, in order. Waves are full, and rounds rotate where a round does not take all prompts.

    The same (round, concurrency) always gets the same prompts, so that two arms pair by prompt and round.
    """
    wanted = phase.requests or len(phase.prompts)
    if load == "wave":
        wanted = -(-max(wanted, concurrency) // concurrency) * concurrency
    start = round_ * wanted if phase.requests else 0
    return [phase.prompts[(start + i) % len(phase.prompts)] for i in range(wanted)]


def salt(run: str, *parts: object) -> str:
    """A cache salt that no other request has: hex only, since vLLM refuses some characters and over 128 of them."""
    return hashlib.sha256("/".join((run, *map(str, parts))).encode()).hexdigest()[:32]
