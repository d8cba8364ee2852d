"""An explicit cache at Gemini for the head of many requests: made when first needed, renewed, deleted.

    python examples/gemini_cache.py

    with CachedHead(genai.Client(), model="gemini-3.8-flash", system_instruction=handbook) as head:
        head.generate_content(contents="What does section 4 say?")

Google bills storage for as long as a cache lives, so it is deleted at the end. One that is gone, because it
expired or somebody deleted it, is made again. `docs/caching.md` says more. Here a stand-in plays the API.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from time import time
from types import SimpleNamespace
from typing import Any, Self

RENEWAL_SHARE = 0.25
"""A cache with less than this share of its lifetime left is renewed at its next use."""

GONE_CODES = (403, 404)
"""Codes for a cache that is not there. The API does not tell that from a cache of somebody else."""


class CachedHead:
    """The cache of a head, over a client of google-genai. Safe to use from several threads.

    `head` has the fields of the SDK's `CreateCachedContentConfig`: system_instruction, tools, tool_config,
    contents. Requests that use the cache may not repeat them: the API refuses that. `lifetime` is in seconds.
    """

    def __init__(
        self,
        client: Any,
        *,
        model: str,
        lifetime: float = 3600.0,
        clock: Callable[[], float] = time,
        **head: Any,
    ) -> None:
        self._client = client
        self._model = model
        self._head = head
        self._lifetime = lifetime
        self._clock = clock
        self._name = ""
        self._until = 0.0
        self._lock = Lock()

    def name(self) -> str:
        """The name to give as `cached_content`. Makes or renews the cache if that is needed."""
        with self._lock:
            left = self._until - self._clock()
            if not self._name or left <= 0 or (left < RENEWAL_SHARE * self._lifetime and not self._renew()):
                config = {**self._head, "ttl": f"{self._lifetime:g}s"}
                self._name = self._client.caches.create(model=self._model, config=config).name
                self._until = self._clock() + self._lifetime
            return self._name

    def generate_content(self, *, config: dict[str, Any] | None = None, **request: Any) -> Any:
        """Call `models.generate_content` with this head. A cache that is gone is made again, once."""
        generate = self._client.models.generate_content
        name = self.name()
        try:
            return generate(model=self._model, config={**(config or {}), "cached_content": name}, **request)
        except Exception as error:
            if not is_gone(error):
                raise
        with self._lock:
            if name == self._name:  # otherwise another thread has made a new one meanwhile
                self._name = ""
        name = self.name()
        return generate(model=self._model, config={**(config or {}), "cached_content": name}, **request)

    def delete(self) -> None:
        """End the storage and its cost. The next use makes a new cache."""
        with self._lock:
            name, self._name = self._name, ""
            if not name:
                return
            try:
                self._client.caches.delete(name=name)
            except Exception as error:
                if not is_gone(error):
                    raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.delete()

    def _renew(self) -> bool:
        """Let the cache live on. False if it is gone."""
        try:
            self._client.caches.update(name=self._name, config={"ttl": f"{self._lifetime:g}s"})
        except Exception as error:
            if not is_gone(error):
                raise
            return False
        self._until = self._clock() + self._lifetime
        return True


def is_gone(error: Exception) -> bool:
    return getattr(error, "code", None) in GONE_CODES and "cache" in str(error).lower()


def main() -> None:
    calls: list[str] = []

    def answer(*, config: dict[str, Any], contents: str, **_: Any) -> SimpleNamespace:
        calls.append("generate")
        return SimpleNamespace(text=f"{contents} Read from {config['cached_content']}.")

    def create(**_: Any) -> SimpleNamespace:
        calls.append("create")
        return SimpleNamespace(name="cachedContents/1")

    caches = SimpleNamespace(create=create, delete=lambda **_: calls.append("delete"))
    client = SimpleNamespace(caches=caches, models=SimpleNamespace(generate_content=answer))
    with CachedHead(client, model="gemini-3.8-flash", system_instruction="A handbook. " * 500) as head:
        for section in (3, 4):
            print(head.generate_content(contents=f"What does section {section} say?").text)
    print("calls:", ", ".join(calls))


if __name__ == "__main__":
    main()
