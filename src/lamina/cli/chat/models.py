"""Finds the model of a chat and a client for it: the one that is named, or the first that there is.

Only local and named servers are asked, and only for the names of their models.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

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

LOCAL = "http://127.0.0.1:11434"
PATIENCE = 2.0


class Provider(NamedTuple):
    """An API: the module of its SDK and its package, its keys, and the model that is asked without a name."""

    name: str
    module: str
    package: str
    keys: tuple[str, ...] = ()
    model: str = ""


PROVIDERS = {
    "anthropic": Provider(
        "Anthropic",
        "anthropic",
        "anthropic",
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        "claude-sonnet-5-5",
    ),
    "openai_chat": Provider("OpenAI", "openai", "openai", ("OPENAI_API_KEY",), "gpt-5.6"),
    "gemini": Provider(
        "Google", "google.genai", "google-genai", ("GEMINI_API_KEY", "GOOGLE_API_KEY"), "gemini-flash-latest"
    ),
    "ollama": Provider("Ollama", "ollama", "ollama"),
}


class ModelRoute(NamedTuple):
    """Which model, in which dialect, and where; `url` is "" for the API of the model's own provider."""

    model: str
    dialect: str
    url: str = ""

    @property
    def where(self) -> str:
        """The place, for people, without a password that may be in it."""
        return hide_password(self.url) or PROVIDERS[self.dialect].name


def find_route(model: str, environment: Mapping[str, str], *, dialect: str = "") -> ModelRoute:
    """How a model is reached. `dialect` is what its conversation spoke so far."""
    if not model:
        return _find_any_route(environment)
    host = ollama_host(environment)
    if model.startswith("ollama/") or dialect == "ollama":
        return ModelRoute(model.removeprefix("ollama/"), "ollama", host)
    own_dialect = _dialect_of_name(own_name(model))
    has_key = bool(find_api_key(own_dialect, environment))
    # `claude-…` with an Anthropic key goes there, whatever OPENAI_BASE_URL says. A name of OpenAI's may be
    # one of a compatible server, so there the address comes first.
    if has_key and own_dialect != "openai_chat":
        return ModelRoute(model, own_dialect)
    url = environment.get("OPENAI_BASE_URL", "")
    if url or has_key:
        return ModelRoute(model, "openai_chat", url)
    if not {model, f"{model}:latest"}.isdisjoint(_ollama_models(host)):
        return ModelRoute(model, "ollama", host)
    hint = f"set {PROVIDERS[own_dialect].keys[0]}, or OPENAI_BASE_URL for a server that has it"
    raise BadInput(f"nothing here can reach {model!r}", place="--model", hint=hint)


def _find_any_route(environment: Mapping[str, str]) -> ModelRoute:
    """The first of these that is there: a compatible server, a provider whose key is set, a local Ollama."""
    url = environment.get("OPENAI_BASE_URL")
    if url:
        names = _listed_names(fetch_json(f"{url.rstrip('/')}/models", environment), "data", "id")
        if not names:
            raise BadInput("it lists no models", place=f"OPENAI_BASE_URL {url}", hint="name one with --model")
        return ModelRoute(names[0], "openai_chat", url)
    for dialect, provider in PROVIDERS.items():
        if find_api_key(dialect, environment):
            return ModelRoute(provider.model, dialect)
    host = ollama_host(environment)
    names = _ollama_models(host)
    if not names:
        hint = (
            "set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or OPENAI_BASE_URL for a server of "
            "your own, or start Ollama"
        )
        raise BadInput("no model was found", place="chat", hint=hint)
    return ModelRoute(names[0], "ollama", host)


def open_client(route: ModelRoute, environment: Mapping[str, str], *, window: int) -> SdkClient:
    """A client for a route. Raises BadInput if its SDK is not installed."""
    provider = PROVIDERS[route.dialect]
    try:
        spec = importlib.util.find_spec(provider.module)
    except ModuleNotFoundError:  # `google` of `google.genai` is missing
        spec = None
    if spec is None:
        hint = f"pip install {provider.package}"
        raise BadInput(f"{provider.module} is not installed", place="chat", hint=hint)
    if route.dialect == "ollama":
        return ollama_chat(host=route.url, window=window)
    api_key = None
    if route.url:  # the SDK needs a text, even if the server needs no key
        api_key = find_api_key(route.dialect, environment) or "none"
    return client_for(route.dialect, base_url=route.url or None, api_key=api_key)


def find_window(
    route: ModelRoute, environment: Mapping[str, str], *, chosen: int, last: int
) -> Budget | None:
    """The window: as chosen, as its server lists it, or as the conversation had it; None for the model's own.

    A server may list a smaller window than the model could have.
    """
    served = None
    if route.dialect == "openai_chat" and route.url:
        listing = fetch_json(f"{route.url.rstrip('/')}/models", environment)
        served = choose_window(read_served_windows(listing), route.model)
    if chosen:
        return Budget(window=min(chosen, served or chosen))
    if served is not None:
        return Budget(window=served)
    if route.dialect == "ollama":
        return Budget(window=last or OLLAMA_WINDOW)
    if model_or_none(route.model) is not None:
        return None
    if last:
        return Budget(window=last)
    hint = "give its context window in tokens with --window"
    raise BadInput(f"unknown model {route.model!r}", place="--model", hint=hint)


def limit_answers(route: ModelRoute, budget: Budget | None) -> int | None:
    """The limit of an answer, for the APIs that need one."""
    if route.dialect == "ollama" and budget is not None:
        return budget.window // 4
    if route.dialect == "anthropic":
        return OUTPUT
    return None


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


def _listed_names(answer: Any, list_name: str, field: str) -> list[str]:
    """One field of each object in a list of an answer, which may be that of a server of any kind."""
    if not isinstance(answer, dict) or not isinstance(answer.get(list_name), list):
        return []
    entries = answer[list_name]
    names = [entry.get(field) for entry in entries if isinstance(entry, dict)]
    return [str(name) for name in names if name]


def fetch_json(address: str, environment: Mapping[str, str]) -> Any:
    """What a server answers, None if it does not. A compatible server gets the user's key."""
    headers: dict[str, str] = {}
    if environment.get("OPENAI_API_KEY"):
        headers = {"Authorization": f"Bearer {environment['OPENAI_API_KEY']}"}
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
    """The key of a provider in the environment, "" without one. Some have it under several names."""
    for name in PROVIDERS[dialect].keys:
        if environment.get(name):
            return environment[name]
    return ""
