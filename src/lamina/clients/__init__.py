"""Clients over the official SDKs, with one stream of events for all. Start reading in `events`."""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.clients.anthropic import anthropic_messages
    from lamina.clients.events import (
        CallEvent,
        Client,
        Event,
        Reply,
        StopEvent,
        TextEvent,
        ThinkingEvent,
        UsageEvent,
    )
    from lamina.clients.failures import Busy, CallFailed, Denied, RequestRefused, Unreachable
    from lamina.clients.gemini import gemini_content
    from lamina.clients.known import client_for
    from lamina.clients.ollama import ollama_chat
    from lamina.clients.openai import openai_chat, openai_responses

__all__ = [
    "Busy",
    "CallEvent",
    "CallFailed",
    "Client",
    "Denied",
    "Event",
    "Reply",
    "RequestRefused",
    "StopEvent",
    "TextEvent",
    "ThinkingEvent",
    "Unreachable",
    "UsageEvent",
    "anthropic_messages",
    "client_for",
    "gemini_content",
    "ollama_chat",
    "openai_chat",
    "openai_responses",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {
            "lamina.clients.anthropic": "anthropic_messages",
            "lamina.clients.events": (
                "CallEvent Client Event Reply StopEvent TextEvent ThinkingEvent UsageEvent"
            ),
            "lamina.clients.failures": "Busy CallFailed Denied RequestRefused Unreachable",
            "lamina.clients.gemini": "gemini_content",
            "lamina.clients.known": "client_for",
            "lamina.clients.ollama": "ollama_chat",
            "lamina.clients.openai": "openai_chat openai_responses",
        },
    )
