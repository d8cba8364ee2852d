"""The client for a dialect, by its name: what a command line or a settings file has to go by."""

from __future__ import annotations

from typing import Any

from lamina.clients.anthropic import anthropic_messages
from lamina.clients.events import Sdk
from lamina.clients.gemini import gemini_content
from lamina.clients.ollama import ollama_chat
from lamina.clients.openai import openai_chat, openai_responses
from lamina.errors import BadInput


def client_for(
    dialect: str, client: Any = None, *, base_url: str | None = None, api_key: str | None = None
) -> Sdk:
    """A client that speaks this dialect; `client` is one of its SDK, else one is made at first use."""
    if dialect == "gemini":
        return gemini_content(client, api_key=api_key)
    if dialect == "ollama":
        return ollama_chat(client, host=base_url)
    known = {
        "openai_chat": openai_chat,
        "openai_responses": openai_responses,
        "anthropic": anthropic_messages,
    }
    if dialect not in known:
        hint = f"use one of {', '.join((*known, 'gemini', 'ollama'))}"
        raise BadInput(f"no client speaks {dialect!r}", place="dialect", hint=hint)
    return known[dialect](client, base_url=base_url, api_key=api_key)
