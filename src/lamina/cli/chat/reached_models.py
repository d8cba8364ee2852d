"""Reaches a model to talk with: a client for it, how much fits into its window, and how long it may answer.

It is the model that is named, or the first that the environment offers. Only local and named servers are
asked, and only for the names of their models. If nothing is found, the error says what to set. Nothing here
knows a conversation.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

import msgspec
from anyio import to_thread

from lamina.cli.stored import hide_password
from lamina.clients.events import SdkClient
from lamina.clients.known import client_for
from lamina.clients.ollama import ollama_chat
from lamina.core.values import Budget
from lamina.errors import BadInput
from lamina.models.facts import choose_window, model_or_none, read_served_windows
from lamina.models.names import own_name

OUTPUT = 8_192
"""Tokens of an answer, for the API that requires a limit."""

OLLAMA_WINDOW = 16_384
"""What Ollama is asked to make room for: a window takes memory there."""

NO_KEY = "none"
"""What a server of somebody's own is sent as its key: the SDK needs a text."""

DEFAULT_MODELS = {"anthropic": "claude-sonnet-5-5", "openai_chat": "gpt-5.6", "gemini": "gemini-flash-latest"}
"""The model that is asked if there is only a key."""

KEYS = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "openai_chat": ("OPENAI_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
}

LOCAL = "http://127.0.0.1:11434"
PATIENCE = 2.0

NOTHING = (
    "set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or OPENAI_BASE_URL for a server of your own, "
    "or start Ollama"
)


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


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which model to reach, and what is known of it from the conversation that it goes on with.

    `dialect` is what the conversation spoke so far, and `server` where its model was. `window` is what the
    user chose; `last_window` is what the model had, whoever chose it.
    """

    model: str = ""
    dialect: str = ""
    server: str = ""
    window: int = 0
    last_window: int = 0


class ModelRoute(msgspec.Struct, frozen=True, kw_only=True):
    """Which model, in which dialect, and where; `url` is "" for the API of the model's own provider.

    `remembered`: the address comes from the conversation, not from the environment of this run.
    """

    model: str
    dialect: str
    url: str = ""
    remembered: bool = False


def find_route(model_choice: ModelChoice, environment: Mapping[str, str]) -> ModelRoute:
    """Which model is meant, and how it is reached; asks local servers for their models where it must."""
    model = model_choice.model
    if not model:
        return _find_any_route(environment)
    if model.startswith("ollama/") or model_choice.dialect == "ollama":
        return _route_to_ollama(model.removeprefix("ollama/"), model_choice, environment)
    return _route_to(model_choice, environment)


def _find_any_route(environment: Mapping[str, str]) -> ModelRoute:
    """The first of these that is there: a compatible server, a provider whose key is set, a local Ollama."""
    url = environment.get("OPENAI_BASE_URL")
    if url:
        return ModelRoute(model=_first_served_model(url, environment), dialect="openai_chat", url=url)
    for dialect in KEYS:
        if find_api_key(dialect, environment):
            return ModelRoute(model=DEFAULT_MODELS[dialect], dialect=dialect)
    host = ollama_host(environment)
    names = _ollama_models(host)
    if not names:
        raise BadInput("no model was found", place="chat", hint=NOTHING)
    return ModelRoute(model=names[0], dialect="ollama", url=host)


def _route_to_ollama(name: str, model_choice: ModelChoice, environment: Mapping[str, str]) -> ModelRoute:
    """By $OLLAMA_HOST, else where this conversation found it, else at its usual place."""
    is_known_server = model_choice.server and model_choice.dialect == "ollama"
    if is_known_server and not environment.get("OLLAMA_HOST"):
        return ModelRoute(model=name, dialect="ollama", url=model_choice.server, remembered=True)
    return ModelRoute(model=name, dialect="ollama", url=ollama_host(environment))


def _route_to(model_choice: ModelChoice, environment: Mapping[str, str]) -> ModelRoute:
    """By the provider's own key, else by a compatible server, else by a local Ollama that has it.

    Without $OPENAI_BASE_URL, the server is the one at which the conversation reached this model before.
    """
    model = model_choice.model
    own_dialect = _dialect_of_name(own_name(model))
    has_key = bool(find_api_key(own_dialect, environment))
    # `claude-…` with an Anthropic key goes there, whatever OPENAI_BASE_URL says. A name of OpenAI's may be
    # one of a compatible server, so there the address comes first.
    if own_dialect != "openai_chat" and has_key:
        return ModelRoute(model=model, dialect=own_dialect)
    url = environment.get("OPENAI_BASE_URL", "")
    if url:
        return ModelRoute(model=model, dialect="openai_chat", url=url)
    if model_choice.server and model_choice.dialect == "openai_chat":
        return ModelRoute(model=model, dialect="openai_chat", url=model_choice.server, remembered=True)
    if has_key:
        return ModelRoute(model=model, dialect="openai_chat")
    host = ollama_host(environment)
    if not {model, f"{model}:latest"}.isdisjoint(_ollama_models(host)):
        return ModelRoute(model=model, dialect="ollama", url=host)
    key_name = KEYS[own_dialect][0]
    hint = f"set {key_name}, or OPENAI_BASE_URL for a server that has it"
    raise BadInput(f"nothing here can reach {model!r}", place="--model", hint=hint)


def _dialect_of_name(name: str) -> str:
    """The API of the provider that has models of this name. Any name may be one of a compatible server."""
    for beginning, dialect in (("claude", "anthropic"), ("gemini", "gemini")):
        if name.startswith(beginning):
            return dialect
    return "openai_chat"


def ollama_host(environment: Mapping[str, str]) -> str:
    """Where Ollama answers, by the rules of its own programs.

    `:8080` is `http://127.0.0.1:8080`, and `box` is `http://box:11434`. An address with https has its own
    port.
    """
    address = environment.get("OLLAMA_HOST", "").strip().rstrip("/")
    if not address:
        return LOCAL
    scheme, _, rest = address.rpartition("://")
    host = rest.replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - what a server listens on, not what one asks
    if host.startswith(":"):
        host = f"127.0.0.1{host}"
    has_port = ":" in host.rpartition("]")[2]  # the colons of [::1] are no port
    if not has_port and scheme != "https":
        host += ":11434"
    return f"{scheme or 'http'}://{host}"


def _ollama_models(host: str) -> list[str]:
    """The models of an Ollama, the newest first; none where there is no Ollama."""
    return _listed_names(fetch_json(f"{host}/api/tags", {}), "models", "name")


def _first_served_model(url: str, environment: Mapping[str, str]) -> str:
    listing = fetch_json(f"{url.rstrip('/')}/models", bearer_header(environment))
    names = _listed_names(listing, "data", "id")
    if not names:
        raise BadInput("it lists no models", place=f"OPENAI_BASE_URL {url}", hint="name one with --model")
    return names[0]


def bearer_header(environment: Mapping[str, str]) -> dict[str, str]:
    """The header with the user's key for a compatible server; none without a key."""
    key = environment.get("OPENAI_API_KEY", "")
    if not key:
        return {}
    return {"Authorization": f"Bearer {key}"}


def _listed_names(answer: Any, list_name: str, field: str) -> list[str]:
    """One field of each object in a list of an answer, which may be that of a server of any kind."""
    if not isinstance(answer, dict):
        return []
    entries = answer.get(list_name)
    if not isinstance(entries, list):
        return []
    names = [entry.get(field) for entry in entries if isinstance(entry, dict)]
    return [str(name) for name in names if name]


def fetch_json(address: str, headers: dict[str, str]) -> Any:
    """What a server answers, None if it does not."""
    try:
        request = Request(address, headers=headers)  # noqa: S310 - of this machine, or one that is named
        with build_opener(ProxyHandler({})).open(request, timeout=PATIENCE) as reply:
            return json.load(reply)
    except HTTPError as error:
        error.close()  # it is an open reply
        return None
    except (URLError, OSError, ValueError, RecursionError):
        return None


def find_api_key(dialect: str, environment: Mapping[str, str]) -> str:
    """The key of a provider in the environment, "" without one.

    Some providers have it under several names.
    """
    for name in KEYS[dialect]:
        if environment.get(name):
            return environment[name]
    return ""
