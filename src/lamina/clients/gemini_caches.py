"""An explicit cache at Gemini for the head of many requests: made when first needed, renewed, deleted.

    with CachedHead(client, model="gemini-3.8-flash", system=handbook, tools=tools) as head:
        head.generate_content(contents="What does section 4 say?")

The provider bills storage for as long as a cache lives, so the cache is deleted at the end. If it is gone,
because it expired or somebody deleted it, it is made again. Any client with the shape of google-genai's
works, and none is imported here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from threading import Lock
from time import time
from typing import Any, Self

from lamina.clients.steps import Steps, run, run_async
from lamina.errors import BadInput

LIFETIME = 3600.0
"""How many seconds a cache lives after it was made or renewed. It is the API's own default."""

RENEWAL_SHARE = 0.25
"""A cache with less than this share of its lifetime left is renewed at its next use."""

_HEAD_FIELDS = ("system_instruction", "tools", "tool_config")

_GONE_CODES = (403, 404)
"""Codes for a cache that is not there. The API does not tell that from a cache of somebody else."""


class _Head:
    """The state of one cache, and the steps to make, renew, use and delete it.

    `api` is the client, or its async side. The steps are the same for both.
    """

    name: Callable[[], Any]

    def __init__(
        self,
        api: Any,
        *,
        model: str,
        system: Any = None,
        tools: Any = None,
        tool_config: Any = None,
        contents: Any = None,
        lifetime: float = LIFETIME,
        clock: Callable[[], float] = time,
    ) -> None:
        if lifetime <= 0:
            raise BadInput(f"lifetime is {lifetime!r}", place="CachedHead", hint="give seconds above 0")
        head = {
            "system_instruction": system,
            "tools": tools,
            "tool_config": tool_config,
            "contents": contents,
        }
        self._head = {name: value for name, value in head.items() if value is not None}
        if not self._head:
            hint = "give system, tools or contents to cache"
            raise BadInput("the head is empty", place="CachedHead", hint=hint)
        self._api = api
        self._model = model
        self._lifetime = lifetime
        self._clock = clock
        self._name = ""
        self._since = 0.0
        self._until = 0.0
        self._earlier_token_hours = 0.0
        self.tokens = 0

    @property
    def token_hours(self) -> float:
        """Tokens times hours that the provider has stored so far, for this cache and those before it."""
        return self._earlier_token_hours + self._current_token_hours()

    def _is_alive(self, now: float) -> bool:
        return bool(self._name) and now < self._until

    def _is_fresh(self, now: float) -> bool:
        """Whether the cache need not be renewed yet."""
        return self._is_alive(now + RENEWAL_SHARE * self._lifetime)

    def _current_token_hours(self) -> float:
        if not self._name:
            return 0.0
        seconds = min(self._clock(), self._until) - self._since
        return self.tokens * max(seconds, 0.0) / 3600

    def _forget(self) -> None:
        self._earlier_token_hours += self._current_token_hours()
        self._name = ""

    def _ensure_cache(self) -> Steps:
        """The name of a living cache: as it is, renewed, or made."""
        now = self._clock()
        if self._is_fresh(now):
            return self._name
        if self._is_alive(now):
            config = {"ttl": f"{self._lifetime:g}s"}
            try:
                yield partial(self._api.caches.update, name=self._name, config=config)
            except Exception as error:
                if not _is_gone(error):
                    raise
            else:
                self._until = now + self._lifetime
                return self._name
        self._forget()
        return (yield from self._make_cache(now))

    def _make_cache(self, now: float) -> Steps:
        """Make a cache and return its name. The provider counts its tokens."""
        # A request that names a cache may not repeat its system text or tools, so all of these go in.
        config = {**self._head, "ttl": f"{self._lifetime:g}s"}
        cache = yield partial(self._api.caches.create, model=self._model, config=config)
        self._name = cache.name
        self.tokens = getattr(cache.usage_metadata, "total_token_count", None) or 0
        self._since = now
        self._until = now + self._lifetime
        return self._name

    def _forget_if_gone(self, name: str, error: Exception) -> bool:
        """Whether a call failed because its cache is gone. The cache is forgotten then."""
        if not _is_gone(error):
            return False
        if name == self._name:  # otherwise another thread has made a new one meanwhile
            self._forget()
        return True

    def _generate(self, request: dict[str, Any]) -> Steps:
        """The answer to a request with this head. A cache that is gone is made again, once."""
        for is_last_try in (False, True):
            name = yield self.name
            config = with_cached(request.get("config"), name)
            arguments = {"model": self._model, **request, "config": config}
            try:
                return (yield partial(self._api.models.generate_content, **arguments))
            except Exception as error:
                if not self._forget_if_gone(name, error) or is_last_try:
                    raise
        return None

    def _delete_cache(self) -> Steps:
        """Delete the cache. If it is gone already, that is fine."""
        if not self._name:
            return
        name = self._name
        self._forget()
        try:
            yield partial(self._api.caches.delete, name=name)
        except Exception as error:
            if not _is_gone(error):
                raise


class CachedHead(_Head):
    """The cache of a head, over a client of google-genai. Safe to use from several threads.

    `system`, `tools`, `tool_config` and `contents` are those of the SDK. Requests that use the cache leave
    them out. `lifetime` is in seconds; `clock` returns seconds since any fixed moment.
    """

    def __init__(self, client: Any, **head: Any) -> None:
        super().__init__(client, **head)
        self._lock = Lock()

    def name(self) -> str:
        """The name to give as `cached_content`. Makes or renews the cache if that is needed."""
        return str(self._run(self._ensure_cache()))

    def generate_content(self, **request: Any) -> Any:
        """Call `models.generate_content` with this head. A cache that is gone is made again, once."""
        return run(self._generate(request))

    def delete(self) -> None:
        """End the storage and its cost. The next use makes a new cache."""
        self._run(self._delete_cache())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.delete()

    def _run(self, steps: Steps) -> Any:
        with self._lock:
            return run(steps)


class AsyncCachedHead(_Head):
    """Does the same over `client.aio`, for tasks of one event loop."""

    def __init__(self, client: Any, **head: Any) -> None:
        super().__init__(client.aio, **head)
        self._lock = asyncio.Lock()

    async def name(self) -> str:
        """The name to give as `cached_content`. Makes or renews the cache if that is needed."""
        return str(await self._run(self._ensure_cache()))

    async def generate_content(self, **request: Any) -> Any:
        """Call `models.generate_content` with this head. A cache that is gone is made again, once."""
        return await run_async(self._generate(request))

    async def delete(self) -> None:
        """End the storage and its cost. The next use makes a new cache."""
        await self._run(self._delete_cache())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.delete()

    async def _run(self, steps: Steps) -> Any:
        async with self._lock:
            return await run_async(steps)


def with_cached(config: Any, name: str) -> Any:
    """A config of generate_content that reads this cache: a dict, or of the SDK's own type; None is a dict.

    Raises BadInput if it says what the cached head says: the API refuses a request that repeats it.
    """
    fields: Mapping[str, Any] = {}
    if isinstance(config, Mapping):
        fields = config
    elif config is not None:
        fields = vars(config)
    for field in _HEAD_FIELDS:
        if fields.get(field) is not None:
            hint = "it belongs to the cached head; the API refuses a request that repeats it"
            raise BadInput(f"{field} is set beside a cache", place="config", hint=hint)
    if config is None or isinstance(config, Mapping):
        return {**fields, "cached_content": name}
    return config.model_copy(update={"cached_content": name})


def _is_gone(error: Exception) -> bool:
    return getattr(error, "code", None) in _GONE_CODES and "cache" in str(error).lower()
