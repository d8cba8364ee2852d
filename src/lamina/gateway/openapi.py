"""Describes the gateway's own paths as an OpenAPI document, for generated clients and for people.

Upstreams describe their APIs themselves. Those are listed here by path only, with what the gateway does with
a request: it fits it, counts it, or passes it on.
"""

from __future__ import annotations

from typing import Any

DOCUMENT_PATH = "/lamina/openapi.json"


def describe_gateway(version: str) -> dict[str, Any]:
    """The document. `version` is that of the package."""
    paths = {path: {"get": _describe_page(*page)} for path, page in _OWN_PAGES.items()}
    paths |= {path: {"post": _describe_route(path, *route)} for path, route in _ROUTES.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "lamina gateway",
            "version": version,
            "description": "Requests to model APIs that fit the context window and keep the prompt cache. "
            "Every other path passes to an upstream, unread.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An access token of the gateway.",
                },
                "header": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "x-lamina-token",
                    "description": "The same, beside a key that goes on to the upstream.",
                },
            }
        },
    }


_TOKEN: list[dict[str, list[str]]] = [{"token": []}, {"header": []}, {}]
"""The last one is for a gateway that has no tokens, which only this machine can reach."""

_OWN_PAGES: dict[str, tuple[str, str, str, bool]] = {
    "/healthz": ("isAlive", "Whether the process answers.", "text/plain", False),
    "/readyz": (
        "isReady",
        "Whether it takes requests: its store answers, and it is not stopping.",
        "text/plain",
        False,
    ),
    "/metrics": ("readMetrics", "Counters and times, as Prometheus reads them.", "text/plain", True),
    DOCUMENT_PATH: ("readDocument", "This document.", "application/json", False),
    "/lamina/inspect": (
        "openInspector",
        "The inspector's pages, if the settings allow them.",
        "text/html",
        True,
    ),
}
"""Each path of the gateway itself: name, answer, media type, and whether it needs a token."""

_ROUTES: dict[str, tuple[str, str]] = {
    "/v1/messages": ("askAnthropic", "Fitted: the Messages API of Anthropic."),
    "/v1/messages/count_tokens": (
        "countAnthropic",
        "Counted as it would be sent: Anthropic's count of tokens.",
    ),
    "/v1/chat/completions": ("askChatCompletions", "Fitted: Chat Completions of OpenAI and others."),
    "/v1/responses": ("askResponses", "Fitted: the Responses API of OpenAI."),
    "/api/chat": ("askOllama", "Fitted: Ollama's chat."),
    "/model/{model}/converse": ("askConverse", "Fitted: Bedrock's Converse."),
    "/model/{model}/converse-stream": ("streamConverse", "Fitted: Bedrock's Converse, as a stream."),
    "/v1beta/models/{model}:generateContent": ("askGemini", "Fitted: Gemini."),
    "/v1beta/models/{model}:streamGenerateContent": ("streamGemini", "Fitted: Gemini, as a stream."),
    "/v1beta/models/{model}:countTokens": (
        "countGemini",
        "Counted as it would be sent: Gemini's count of tokens.",
    ),
}
"""The paths of upstreams that the gateway reads, by their usual beginning: a prefix may stand before."""


def _describe_page(name: str, summary: str, media_type: str, needs_token: bool) -> dict[str, Any]:  # noqa: FBT001
    answers: dict[str, Any] = {"200": {"description": summary, "content": {media_type: {}}}}
    if name == "isReady":
        answers["503"] = {"description": "It is stopping, or its store does not answer."}
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "tags": ["gateway"],
        "responses": answers,
    }
    if needs_token:
        operation["security"] = _TOKEN
        answers["401"] = {"description": "The access token is missing or wrong."}
    return operation


def _describe_route(path: str, name: str, summary: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "tags": ["upstreams"],
        "security": _TOKEN,
        "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}},
        "responses": {
            "200": {"description": "The answer of the upstream, whole or as a stream of events."},
            "401": {"description": "The access token is missing or wrong."},
            "413": {"description": "The body is larger than the limits allow."},
            "503": {"description": "The gateway is busy or stopping; Retry-After says when to try again."},
        },
    }
    if "{model}" in path:
        operation["parameters"] = [
            {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
        ]
    return operation
