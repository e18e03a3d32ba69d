"""Collects what `lossless` judges: generate greedily, then score the very tokens by teacher forcing, on one server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from recipectl.bench import textprobe
from recipectl.bench.client import Client, connect
from recipectl.bench.discover import served_model
from recipectl.bench.lossless import Scored, score
from recipectl.bench.protocol import Prompt
from recipectl.bench.run import Target
from recipectl.console import Console, Progress
from recipectl.errors import BenchError


def collect(target: Target, prompts: Sequence[Prompt], max_tokens: int, console: Console) -> list[Scored]:
    """One arm. BenchError where the server does not return token ids or prompt logprobs."""
    with console.progress("teacher forcing", total=len(prompts)) as shown:
        return asyncio.run(_collect(target, prompts, max_tokens, shown))


async def _collect(target: Target, prompts: Sequence[Prompt], max_tokens: int, shown: Progress) -> list[Scored]:
    out = []
    async with connect(target.url, target.api_key) as client:
        model = await served_model(client, target.model)
        for prompt in prompts:
            out.append(await _one(client, model, prompt, max_tokens))
            shown.advance()
    return out


async def _one(client: Client, model: str, prompt: Prompt, max_tokens: int) -> Scored:
    body = {
        "model": model, "messages": [{"role": "user", "content": prompt.text}], "max_tokens": max_tokens,
        "temperature": 0, "return_token_ids": True, "logprobs": True, "top_logprobs": 1,
        "chat_template_kwargs": {"enable_thinking": False, "thinking": False},
    }  # fmt: skip
    answer = await _ask(client, "/v1/chat/completions", body)
    choice = answer["choices"][0]
    asked, given = answer.get("prompt_token_ids"), choice.get("token_ids")
    if not asked or not given:
        raise BenchError("the server returns no token ids, so its text cannot be scored", on=client.url,
                         expected="return_token_ids (vLLM)")  # fmt: skip
    decoded = [float(row["logprob"]) for row in (choice.get("logprobs") or {}).get("content") or []]
    scoring = {"model": model, "prompt": [*asked, *given], "max_tokens": 1, "temperature": 0, "prompt_logprobs": 1}
    forced = (await _ask(client, "/v1/completions", scoring))["choices"][0].get("prompt_logprobs")
    if not forced or len(forced) != len(asked) + len(given):
        raise BenchError("the server scores no prompt tokens", on=client.url, expected="prompt_logprobs (vLLM)")
    text = str((choice.get("message") or {}).get("content") or "")
    broken = textprobe.problems(text, truncated=choice.get("finish_reason") == "length")
    try:
        return score(prompt.id, given, forced[len(asked) :], decoded if len(decoded) == len(given) else [], broken)
    except (KeyError, ValueError) as err:
        raise BenchError("a token was not scored", on=prompt.id, seen=err) from err


async def _ask(client: Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    status, answer = await client.post(path, body)
    if status != 200 or not answer.get("choices"):
        raise BenchError("the server refuses the request", on=client.url + path, seen=f"HTTP {status}: {answer}"[:400])
    return answer
