"""Reaches a model to talk with: a client for it, how much fits into its window, and how long it may answer.

`routes` finds which model it is and where. Nothing here knows a conversation.
"""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec
from anyio import to_thread

from lamina.cli.chat.routes import (
    ModelChoice,
    ModelRoute,
    bearer_header,
    fetch_json,
    find_api_key,
    find_route,
)
from lamina.cli.stored import hide_password
from lamina.clients.events import SdkClient
from lamina.clients.known import client_for
from lamina.clients.ollama import ollama_chat
from lamina.core.values import Budget
from lamina.errors import BadInput
from lamina.models.facts import model_or_none
from lamina.models.served_windows import choose_window, read_served_windows

OUTPUT = 8_192
"""Tokens of an answer, for the API that requires a limit."""

OLLAMA_WINDOW = 16_384
"""What Ollama is asked to make room for: a window takes memory there."""

NO_KEY = "none"
"""What a server of somebody's own is sent as its key: the SDK needs a text."""


class ReachedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be asked. Without a budget it has its own window; `output` limits its answers.

    `server` is the address that it was reached at, without a password that may be in it; "" for the API of
    its provider.
    """

    model: str
    client: SdkClient
    where: str
    server: str = ""
    budget: Budget | None = None
    output: int | None = None


def is_same_model(name: str, other: str) -> bool:
    """Whether two names are of one model: as a user says it, and as a conversation keeps it."""
    return name.removeprefix("ollama/") == other.removeprefix("ollama/")


@asynccontextmanager
async def reach_model(
    model_choice: ModelChoice, *, environment: Mapping[str, str]
) -> AsyncIterator[ReachedModel]:
    """The model and a client for it, closed at the end."""
    route = await to_thread.run_sync(find_route, model_choice, environment)
    _require_sdk(route.dialect)
    reached_model = await to_thread.run_sync(_open_route, route, model_choice, environment)
    async with reached_model.client:
        yield reached_model


_PROVIDERS = {"anthropic": "Anthropic", "openai_chat": "OpenAI", "gemini": "Google"}


class _Sdk(NamedTuple):
    """The module of an SDK, and the package that has it."""

    module: str
    package: str


_SDKS = {
    "anthropic": _Sdk("anthropic", "anthropic"),
    "openai_chat": _Sdk("openai", "openai"),
    "gemini": _Sdk("google.genai", "google-genai"),
    "ollama": _Sdk("ollama", "ollama"),
}


def _require_sdk(dialect: str) -> None:
    """Raise BadInput if the SDK for this dialect is not installed. It is not imported."""
    sdk = _SDKS[dialect]
    try:
        spec = importlib.util.find_spec(sdk.module)
    except ModuleNotFoundError:  # `google` of `google.genai` is missing
        spec = None
    if spec is None:
        raise BadInput(f"{sdk.module} is not installed", place="chat", hint=f"pip install {sdk.package}")


def _open_route(route: ModelRoute, model_choice: ModelChoice, environment: Mapping[str, str]) -> ReachedModel:
    """The client for a route, with where it asks and how much fits.

    Ollama takes its window with each request, so the chat has to choose one.
    """
    if route.dialect == "ollama":
        size = model_choice.window or model_choice.last_window or OLLAMA_WINDOW
        return ReachedModel(
            model=route.model,
            client=ollama_chat(host=route.url, window=size),
            where=f"at {hide_password(route.url)}",
            server=hide_password(route.url),
            budget=Budget(window=size),
            output=size // 4,
        )
    output = None
    if route.dialect == "anthropic":
        output = OUTPUT
    if not route.url:
        return ReachedModel(
            model=route.model,
            client=client_for(route.dialect, base_url=None, api_key=None),
            where=f"at {_PROVIDERS[route.dialect]}",
            budget=_choose_budget(route, model_choice, None),
            output=output,
        )
    return ReachedModel(
        model=route.model,
        client=client_for(route.dialect, base_url=route.url, api_key=_find_route_key(route, environment)),
        where=f"at {hide_password(route.url)}",
        server=hide_password(route.url),
        budget=_choose_budget(route, model_choice, _read_served_window(route, environment)),
        output=output,
    )


def _find_route_key(route: ModelRoute, environment: Mapping[str, str]) -> str:
    """The key that a compatible server is sent; the SDK needs a text, even if the server needs no key.

    An address that only a stored conversation names gets no key of this environment: it may be the key of
    a provider, and the conversation may come from somebody else.
    """
    if route.remembered:
        return NO_KEY
    return find_api_key(route.dialect, environment) or NO_KEY


def _read_served_window(route: ModelRoute, environment: Mapping[str, str]) -> int | None:
    """The window that a server lists for a model. It may be smaller than what the model could do."""
    if route.dialect != "openai_chat":
        return None
    headers = bearer_header(environment)
    if route.remembered:  # an address from a stored conversation gets no key of this environment
        headers = {}
    listing = fetch_json(f"{route.url.rstrip('/')}/models", headers)
    return choose_window(read_served_windows(listing), route.model)


def _choose_budget(route: ModelRoute, model_choice: ModelChoice, served_window: int | None) -> Budget | None:
    """The budget for a window: as chosen, else as served, else as before; None for the model's own."""
    if model_choice.window:
        return Budget(window=min(model_choice.window, served_window or model_choice.window))
    if served_window is not None:
        return Budget(window=served_window)
    if model_or_none(route.model) is not None:
        return None
    if model_choice.last_window:
        return Budget(window=model_choice.last_window)
    hint = "give its context window in tokens with --window"
    raise BadInput(f"unknown model {route.model!r}", place="--model", hint=hint)
