"""What a running server says over HTTP. The only importer of requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import requests

from recipectl.bench.acceptance import Scrape, parse_metrics
from recipectl.errors import EngineError
from recipectl.serving.observed import Reply

_FAST_S = 5.0


class Server:
    """One OpenAI-compatible server. Every method answers or raises EngineError; none waits longer than it says."""

    def __init__(self, url: str, model: str, *, api_key: str | None = None, generation_s: float = 300.0) -> None:
        self.url, self.model, self._generation_s = url.rstrip("/"), model, generation_s
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def health(self) -> int | None:
        """The status of /health, or None if nothing answers within 5 s."""
        try:
            return requests.get(f"{self.url}/health", timeout=_FAST_S).status_code
        except requests.RequestException:
            return None

    def models(self) -> list[str]:
        """The names that /v1/models serves."""
        return [str(m["id"]) for m in self._get("/v1/models").json().get("data", [])]

    def status_without_key(self) -> int | None:
        """The status that a call without an API key gets."""
        try:
            return requests.get(f"{self.url}/v1/models", timeout=_FAST_S).status_code
        except requests.RequestException:
            return None

    def scrape(self) -> Scrape:
        """The counters of /metrics now."""
        return parse_metrics(self._get("/metrics").text, self.model)

    def generate(self, prompts: Sequence[str], max_tokens: int, temperature: float = 0.0) -> list[Reply]:
        """Ask all prompts at once, one stream each, and wait for all. A failed one says why in its reply."""
        # Daemon threads, not a pool: a pool waits for its threads, and Ctrl-C must not wait for a wedged server.
        replies: list[Reply | None] = [None] * len(prompts)

        def ask(place: int) -> None:
            replies[place] = self._ask(prompts[place], max_tokens, temperature)

        threads = [threading.Thread(target=ask, args=(i,), daemon=True) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [r or Reply(error="the client failed") for r in replies]

    def _ask(self, prompt: str, max_tokens: int, temperature: float) -> Reply:
        body = {
            "model": self.model, "messages": [{"role": "user", "content": prompt}], "max_tokens": max_tokens,
            "temperature": temperature, "top_p": 1.0, "chat_template_kwargs": {"enable_thinking": False},
        }  # fmt: skip
        begun = time.monotonic()
        try:
            answer = requests.post(
                f"{self.url}/v1/chat/completions", json=body, headers=self._headers, timeout=(5, self._generation_s)
            )
        except requests.Timeout:
            return Reply(error=f"no answer within {self._generation_s:.0f} s", seconds=time.monotonic() - begun)
        except requests.RequestException as err:
            return Reply(error=f"the connection broke: {type(err).__name__}", seconds=time.monotonic() - begun)
        return _reply(answer, time.monotonic() - begun)

    def _get(self, path: str) -> requests.Response:
        try:
            answer = requests.get(self.url + path, headers=self._headers, timeout=_FAST_S)
        except requests.RequestException as err:
            raise EngineError("the server does not answer", on=self.url + path, seen=type(err).__name__) from err
        if answer.status_code != 200:
            raise EngineError("the server refuses", on=self.url + path, seen=f"HTTP {answer.status_code}",
                              expected="HTTP 200")  # fmt: skip
        return answer


def _reply(answer: requests.Response, seconds: float) -> Reply:
    try:
        data: dict[str, Any] = answer.json()
    except ValueError:
        return Reply(error=f"HTTP {answer.status_code}, not JSON: {answer.text[:200]}", seconds=seconds)
    if answer.status_code != 200 or "error" in data:
        error = data.get("error", data)
        message = error.get("message", error) if isinstance(error, dict) else error
        return Reply(error=f"HTTP {answer.status_code}: {str(message)[:300]}", seconds=seconds)
    choice = data["choices"][0]
    message = choice.get("message") or {}
    text = (message.get("content") or "") + (message.get("reasoning") or message.get("reasoning_content") or "")
    tokens = int((data.get("usage") or {}).get("completion_tokens") or 0)
    return Reply(text=text, finish=choice.get("finish_reason"), tokens=tokens, seconds=seconds)
