"""Finds a model to talk with: the one that is named, the server or key in the environment, a local Ollama.

It says what to set where there is none. Nothing but local and named servers is asked, and only for the names
of their models. It knows no conversation.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import msgspec
from anyio import to_thread

from lamina.clients.events import Sdk
from lamina.clients.known import client_for
from lamina.clients.ollama import ollama_chat
from lamina.core.tokens import Counter
from lamina.core.values import Budget
from lamina.errors import BadInput
from lamina.models.facts import model as facts_of
from lamina.models.facts import own_name

TINY = "tiny"
TINY_WINDOW, TINY_OUTPUT = 65_536, 48
"""Its tokens are bytes; and it would never come to an end by itself."""

USUAL = {"anthropic": "claude-sonnet-5-5", "openai_chat": "gpt-5.6", "gemini": "gemini-flash-latest"}
"""The model that is asked where only a key says which API."""

KEYS = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "openai_chat": ("OPENAI_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
}
OUTPUT = 8_192
"""Tokens of an answer, for the API that wants to be told."""

OLLAMA_WINDOW = 16_384
"""What Ollama is asked to make room for: a window takes memory there."""

LOCAL = "http://127.0.0.1:11434"
PATIENCE = 2.0

NOTHING = (
    "set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or OPENAI_BASE_URL for a server of your own, "
    "or start Ollama; --model tiny needs none of them"
)


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """Which model, in which dialect, and where; `url` is "" for the API of the model's own provider."""

    model: str
    dialect: str
    url: str = ""


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be asked. Without a budget it has its own window; `output` limits its answers."""

    model: str
    client: Sdk
    where: str
    budget: Budget | None = None
    output: int | None = None
    counter: Counter | None = None


@asynccontextmanager
async def reached(
    model: str, *, environment: Mapping[str, str], dialect: str = "", window: int = 0
) -> AsyncIterator[Reached]:
    """The model and a client for it, closed at the end. `dialect` is what a conversation spoke so far."""
    if model in (TINY, "tiny-letters"):
        async with _tiny() as found:
            yield found
        return
    way = await to_thread.run_sync(way_to, model, environment, dialect)
    _installed(way.dialect)
    found = _ready(way, window, environment)
    async with found.client:
        yield found


def way_to(model: str, environment: Mapping[str, str], dialect: str = "") -> Way:
    """Which model is meant, and how it is reached; asks local servers for their models where it must."""
    if model.startswith("ollama/") or (model and dialect == "ollama"):
        return Way(model=model.removeprefix("ollama/"), dialect="ollama", url=ollama_host(environment))
    if model:
        return _named(model, environment)
    if url := environment.get("OPENAI_BASE_URL"):
        return Way(model=_served(url, environment), dialect="openai_chat", url=url)
    for known in KEYS:
        if _key(known, environment):
            return Way(model=USUAL[known], dialect=known)
    host = ollama_host(environment)
    if names := _pulled(host):
        return Way(model=names[0], dialect="ollama", url=host)
    raise BadInput("no model was found", place="chat", hint=NOTHING)


def _named(model: str, environment: Mapping[str, str]) -> Way:
    name, url = own_name(model), environment.get("OPENAI_BASE_URL", "")
    starts = (("claude", "anthropic"), ("gemini", "gemini"))
    own = next((dialect for start, dialect in starts if name.startswith(start)), "openai_chat")
    if own != "openai_chat" and _key(own, environment):
        return Way(model=model, dialect=own)
    if url or (own == "openai_chat" and _key(own, environment)):
        return Way(model=model, dialect="openai_chat", url=url)
    host = ollama_host(environment)
    if any(model in (pulled, pulled.removesuffix(":latest")) for pulled in _pulled(host)):
        return Way(model=model, dialect="ollama", url=host)
    hint = f"set {KEYS[own][0]}, or OPENAI_BASE_URL for a server that has it; --model tiny needs neither"
    raise BadInput(f"nothing here can reach {model!r}", place="--model", hint=hint)


def ollama_host(environment: Mapping[str, str]) -> str:
    """Where Ollama answers, by the rules of its own programs."""
    given = environment.get("OLLAMA_HOST", "").strip().rstrip("/")
    if not given:
        return LOCAL
    scheme, _, rest = given.rpartition("://")
    host = rest.replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - what a server listens on, not what one asks
    host = f"127.0.0.1{host}" if host.startswith(":") else host
    ported = ":" in host.rpartition("]")[2] or scheme == "https"
    return f"{scheme or 'http'}://{host}{'' if ported else ':11434'}"


def _pulled(host: str) -> list[str]:
    """The models of an Ollama, the newest first; none where there is no Ollama."""
    found = _asked(f"{host}/api/tags", {})
    models = found.get("models") if isinstance(found, dict) else None
    return [str(one["name"]) for one in models or () if isinstance(one, dict) and one.get("name")]


def _served(url: str, environment: Mapping[str, str]) -> str:
    """The first model that a compatible server lists."""
    key = environment.get("OPENAI_API_KEY", "")
    found = _asked(f"{url.rstrip('/')}/models", {"Authorization": f"Bearer {key}"} if key else {})
    listed = found.get("data") if isinstance(found, dict) else None
    name = next((str(one["id"]) for one in listed or () if isinstance(one, dict) and one.get("id")), "")
    if not name:
        raise BadInput("it lists no models", place=f"OPENAI_BASE_URL {url}", hint="name one with --model")
    return name


def _asked(address: str, headers: dict[str, str]) -> Any:
    """What a server answers, None if it does not."""
    try:
        asked = Request(address, headers=headers)  # noqa: S310 - of this machine, or one that is named
        with build_opener(ProxyHandler({})).open(asked, timeout=PATIENCE) as reply:
            return json.load(reply)
    except (URLError, OSError, ValueError, RecursionError):
        return None


def _key(dialect: str, environment: Mapping[str, str]) -> str:
    return next((environment[name] for name in KEYS[dialect] if environment.get(name)), "")


_SDKS = {"anthropic": "anthropic", "openai_chat": "openai", "gemini": "google.genai", "ollama": "ollama"}


def _installed(dialect: str) -> None:
    module = _SDKS[dialect]
    try:
        there = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        there = False
    if not there:
        extra = "openai" if dialect == "openai_chat" else dialect
        raise BadInput(f"{module} is not installed", place="chat", hint=f"install lamina[{extra}]")


def _ready(way: Way, window: int, environment: Mapping[str, str]) -> Reached:
    if way.dialect == "ollama":
        size = window or OLLAMA_WINDOW
        client = ollama_chat(host=way.url, window=size)
        return Reached(
            model=way.model, client=client, where=way.url, budget=Budget(window=size), output=size // 4
        )
    key = _key(way.dialect, environment) or "none"  # a server of one's own may want none; the SDK does
    client = client_for(way.dialect, base_url=way.url or None, api_key=key if way.url else None)
    return Reached(
        model=way.model,
        client=client,
        where=way.url or way.dialect,
        budget=_budget(way.model, window),
        output=OUTPUT if way.dialect == "anthropic" else None,
    )


def _budget(model: str, window: int) -> Budget | None:
    if window:
        return Budget(window=window)
    try:
        facts_of(model)
    except BadInput:
        hint = "give its context window in tokens with --window"
        raise BadInput(f"unknown model {model!r}", place="--model", hint=hint) from None
    return None


@asynccontextmanager
async def _tiny() -> AsyncIterator[Reached]:
    """A real server with random weights, in this process."""
    try:
        import gguf  # noqa: F401, PLC0415
        import numpy  # noqa: F401, ICN001, PLC0415
        import openai  # noqa: F401, PLC0415
        import xllamacpp  # type: ignore[import-untyped]  # noqa: F401, PLC0415
    except ImportError as missing:
        hint = "install lamina[testing,openai]: this model is made on the spot"
        raise BadInput(f"{missing.name} is not installed", place="--model tiny", hint=hint) from None
    from lamina.testing.model_server import COUNTER, MODEL, upstream  # noqa: PLC0415

    server = upstream(window=TINY_WINDOW)
    local = await to_thread.run_sync(server.__enter__)
    try:
        client = client_for("openai_chat", base_url=f"{local.url}/v1", api_key="none")
        async with client:
            yield Reached(
                model=MODEL,
                client=client,
                where="this process",
                budget=Budget(window=TINY_WINDOW),
                output=TINY_OUTPUT,
                counter=COUNTER,
            )
    finally:
        await to_thread.run_sync(server.__exit__, None, None, None)
