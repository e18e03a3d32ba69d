"""The hub of the settings, for the two verbs that use the network."""

from __future__ import annotations

from collections.abc import Mapping

from recipectl.console import Console
from recipectl.errors import HubError
from recipectl.hub.port import Hub
from recipectl.settings import Settings


def connect(settings: Settings, console: Console, licenses: Mapping[str, str | None] | None = None) -> Hub:
    """The hub of the settings, with the user's token. Only lock and pull call this; nobody else sees the token.

    `licenses` by repository are what the lock knows, for the message about a gated one.
    """
    from recipectl.hub.hf import HuggingFace  # 0.3 s: only where the network is used

    if settings.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise HubError("HF_HUB_OFFLINE is set, and something has to be fetched", next_step="unset it for lock and pull")
    token = settings.hub_token()
    console.hide(token)
    return HuggingFace(settings.hub_endpoint, token, settings.hub_timeout_s, licenses=licenses)
