"""An explicit cache at Gemini for the head of many requests: made when first needed, renewed, deleted.

    with CachedHead(client, model="gemini-3.8-flash", system=handbook, tools=tools) as head:
        head.generate_content(contents="What does section 4 say?")

The provider bills storage for as long as a cache lives, so it is deleted at the end. One that is gone, since
it expired or somebody deleted it, is made anew. It works on any client of google-genai's shape, and imports
none. It does not decide whether a cache pays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from threading import Lock
from time import time
from typing import Any, NamedTuple, Self

from lamina.errors import BadInput

LIFETIME = 3600.0
"""Seconds that a cache lives after it was made or renewed; what the API takes by itself."""

RENEWED = 0.25
"""A cache with less than this share of its lifetime left is renewed at its next use."""

_FOREIGN = ("system_instruction", "tools", "tool_config")
_GONE = (403, 404)
"""Codes for a cache that is not there: the API does not say whether it never was, or is somebody else's."""


class _Ask(NamedTuple):
    """One call of the SDK: `client.caches.method(**arguments)`."""

    method: str
    arguments: dict[str, Any]


Steps = Generator[_Ask, Any, Any]
"""What is to be asked, one after the other; each answer is sent in, each error thrown in."""


class _Head:
    """What both shells share: the state of one cache, and what to ask for next."""

    def __init__(
        self,
        client: Any,
        *,
        model: str,
        system: Any = None,
        tools: Any = None,
        tool_config: Any = None,
        contents: Any = None,
        lifetime: float = LIFETIME,
        display_name: str = "",
        clock: Callable[[], float] = time,
    ) -> None:
        if lifetime <= 0:
            raise BadInput(f"lifetime is {lifetime!r}", place="CachedHead", hint="give seconds above 0")
        head = {
            "system_instruction": system,
            "tools": tools,
            "tool_config": tool_config,
            "contents": contents,
            "display_name": display_name or None,
        }
        self._head = {name: value for name, value in head.items() if value is not None}
        if not self._head.keys() - {"display_name"}:
            hint = "give system, tools or contents to cache"
            raise BadInput("the head is empty", place="CachedHead", hint=hint)
        self._client, self._model, self._lifetime, self._clock = client, model, lifetime, clock
        self._name, self._since, self._until = "", 0.0, 0.0
        self._before = 0.0
        self.tokens = 0

    @property
    def token_hours(self) -> float:
        """Tokens times hours that the provider has stored so far, this cache and those before it."""
        return self._before + self._stored()

    def storage_cost(self, price: float) -> float:
        """What that cost, at a price for a million tokens and an hour."""
        return self.token_hours * price / 1_000_000

    def _stored(self) -> float:
        alive = min(self._clock(), self._until) - self._since
        return self.tokens * max(alive, 0.0) / 3600 if self._name else 0.0

    def _forget(self) -> None:
        self._before += self._stored()
        self._name = ""

    def _named(self) -> Steps:
        """The name of a cache that lives: as it is, renewed, or made."""
        now = self._clock()
        if self._name and now < self._until - RENEWED * self._lifetime:
            return self._name
        if self._name and now < self._until:
            config = {"ttl": f"{self._lifetime:g}s"}
            try:
                yield _Ask("update", {"name": self._name, "config": config})
            except Exception as error:
                if not _gone(error):
                    raise
            else:
                self._until = now + self._lifetime
                return self._name
        if self._name:
            self._forget()
        return (yield from self._made(now))

    def _made(self, now: float) -> Steps:
        config = {**self._head, "ttl": f"{self._lifetime:g}s"}
        cache = yield _Ask("create", {"model": self._model, "config": config})
        counted = getattr(cache.usage_metadata, "total_token_count", None)
        self._name, self.tokens = cache.name, counted or 0
        self._since, self._until = now, now + self._lifetime
        return self._name

    def _lost(self, name: str, error: Exception) -> bool:
        """Whether an answer failed since its cache is gone; that one is forgotten then."""
        if not _gone(error):
            return False
        if name == self._name:  # else somebody has made a new one since
            self._forget()
        return True

    def _with(self, request: dict[str, Any], name: str) -> dict[str, Any]:
        return {"model": self._model, **request, "config": with_cached(request.get("config"), name)}

    def _deleted(self) -> Steps:
        if not self._name:
            return
        name = self._name
        self._forget()
        try:
            yield _Ask("delete", {"name": name})
        except Exception as error:
            if not _gone(error):
                raise


class CachedHead(_Head):
    """The cache of a head, over a client of google-genai. Safe to use from several threads.

    `system`, `tools`, `tool_config` and `contents` are those of the SDK, and are left out of the requests
    that go with it. `lifetime` is in seconds; `clock` gives seconds since any fixed moment.
    """

    def __init__(self, client: Any, **head: Any) -> None:
        super().__init__(client, **head)
        self._lock = Lock()

    def name(self) -> str:
        """The name to give as `cached_content`. Makes or renews the cache where that is needed."""
        return str(self._run(self._named()))

    def generate_content(self, **request: Any) -> Any:
        """`models.generate_content` with this head; a cache that is gone is made anew, once."""
        name = self.name()
        try:
            return self._client.models.generate_content(**self._with(request, name))
        except Exception as error:
            if not self._lost(name, error):
                raise
        return self._client.models.generate_content(**self._with(request, self.name()))

    def delete(self) -> None:
        """Ends the storage, and its cost. The next use makes a new cache."""
        self._run(self._deleted())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.delete()

    def _run(self, steps: Steps) -> Any:
        with self._lock:
            give, value = steps.send, None
            while True:
                try:
                    ask = give(value)
                except StopIteration as done:
                    return done.value
                try:
                    give, value = steps.send, getattr(self._client.caches, ask.method)(**ask.arguments)
                except Exception as error:  # noqa: BLE001 - whatever it is, the steps decide
                    give, value = steps.throw, error


class AsyncCachedHead(_Head):
    """The same over `client.aio`, for tasks of one loop."""

    def __init__(self, client: Any, **head: Any) -> None:
        super().__init__(client, **head)
        self._lock = asyncio.Lock()

    async def name(self) -> str:
        """The name to give as `cached_content`. Makes or renews the cache where that is needed."""
        return str(await self._run(self._named()))

    async def generate_content(self, **request: Any) -> Any:
        """`models.generate_content` with this head; a cache that is gone is made anew, once."""
        name = await self.name()
        models = self._client.aio.models
        try:
            return await models.generate_content(**self._with(request, name))
        except Exception as error:
            if not self._lost(name, error):
                raise
        return await models.generate_content(**self._with(request, await self.name()))

    async def delete(self) -> None:
        """Ends the storage, and its cost. The next use makes a new cache."""
        await self._run(self._deleted())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.delete()

    async def _run(self, steps: Steps) -> Any:
        async with self._lock:
            give, value = steps.send, None
            while True:
                try:
                    ask = give(value)
                except StopIteration as done:
                    return done.value
                try:
                    caches = self._client.aio.caches
                    give, value = steps.send, await getattr(caches, ask.method)(**ask.arguments)
                except Exception as error:  # noqa: BLE001 - whatever it is, the steps decide
                    give, value = steps.throw, error


def with_cached(config: Any, name: str) -> Any:
    """A config of generate_content that reads this cache. What the cache has may not be in it again."""
    given = config if isinstance(config, Mapping) else vars(config) if config is not None else {}
    again = [field for field in _FOREIGN if given.get(field) is not None]
    if again:
        hint = "it belongs to the cached head; the API refuses a request that repeats it"
        raise BadInput(f"{again[0]} is set beside a cache", place="config", hint=hint)
    if config is None or isinstance(config, Mapping):
        return {**given, "cached_content": name}
    return config.model_copy(update={"cached_content": name})


def _gone(error: Exception) -> bool:
    return getattr(error, "code", None) in _GONE and "cache" in str(error).lower()
