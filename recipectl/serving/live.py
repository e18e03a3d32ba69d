"""The gates' port on a real deployment: HTTP through `probes`, ranks and logs through its runtime."""

from __future__ import annotations

from collections.abc import Sequence

from recipectl.bench.acceptance import Scrape
from recipectl.serving.deployments import Deployment
from recipectl.serving.launch import rank_states
from recipectl.serving.observed import RankState, Reply
from recipectl.serving.probes import Server
from recipectl.serving.runtime import Runtime


class LiveProbes:
    """One server and its ranks."""

    def __init__(self, server: Server, runtime: Runtime, deployment: Deployment) -> None:
        self._server, self._runtime, self._deployment = server, runtime, deployment

    def ranks(self) -> list[RankState]:
        """Every rank with its log."""
        return rank_states(self._runtime, self._deployment)

    def health(self) -> int | None:
        """The status of /health."""
        return self._server.health()

    def models(self) -> list[str]:
        """The served names."""
        return self._server.models()

    def scrape(self) -> Scrape:
        """The counters now."""
        return self._server.scrape()

    def generate(self, prompts: Sequence[str], max_tokens: int, temperature: float = 0.0) -> list[Reply]:
        """All prompts at once."""
        return self._server.generate(prompts, max_tokens, temperature)

    def status_without_key(self) -> int | None:
        """The status of a call without the API key."""
        return self._server.status_without_key()
