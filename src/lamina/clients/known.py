"""`client_for`: the client for a dialect by its name, for a command line or a settings file."""

from __future__ import annotations

from typing import Any

from lamina.clients.anthropic import anthropic_messages
from lamina.clients.events import SdkClient
from lamina.clients.gemini import gemini_content
from lamina.clients.ollama import ollama_chat
from lamina.clients.openai import openai_chat, openai_responses
from lamina.errors import BadInput

DIALECTS = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")


def client_for(
    dialect: str, client: Any = None, *, base_url: str | None = None, api_key: str | None = None
) -> SdkClient:
    """Return a client for this dialect. `client` is one of its SDK; without it, one is made at first use."""
    match dialect:
        case "openai_chat":
            return openai_chat(client, base_url=base_url, api_key=api_key)
        case "openai_responses":
            return openai_responses(client, base_url=base_url, api_key=api_key)
        case "anthropic":
            return anthropic_messages(client, base_url=base_url, api_key=api_key)
        case "gemini":
            return gemini_content(client, api_key=api_key)
        case "ollama":
            return ollama_chat(client, host=base_url)
    hint = f"use one of {', '.join(DIALECTS)}"
    raise BadInput(f"no client speaks {dialect!r}", place="dialect", hint=hint)
