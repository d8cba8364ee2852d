"""`client_for`: the client for a dialect by its name, for a command line or a settings file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lamina.clients.anthropic import anthropic_messages
from lamina.clients.events import SdkClient
from lamina.clients.gemini import gemini_content
from lamina.clients.ollama import ollama_chat
from lamina.clients.openai import openai_chat, openai_responses
from lamina.errors import BadInput


def client_for(
    dialect: str, client: Any = None, *, base_url: str | None = None, api_key: str | None = None
) -> SdkClient:
    """A client for this dialect. `client` is one of its SDK; without it, one is made at first use."""
    make_client = _CLIENTS.get(dialect)
    if make_client is None:
        hint = f"use one of {', '.join(DIALECTS)}"
        raise BadInput(f"no client speaks {dialect!r}", place="dialect", hint=hint)
    return make_client(client, base_url, api_key)


_CLIENTS: dict[str, Callable[[Any, str | None, str | None], SdkClient]] = {
    "openai_chat": lambda client, url, key: openai_chat(client, base_url=url, api_key=key),
    "openai_responses": lambda client, url, key: openai_responses(client, base_url=url, api_key=key),
    "anthropic": lambda client, url, key: anthropic_messages(client, base_url=url, api_key=key),
    "gemini": lambda client, _, key: gemini_content(client, api_key=key),
    "ollama": lambda client, url, _: ollama_chat(client, host=url),
}

DIALECTS = tuple(_CLIENTS)
