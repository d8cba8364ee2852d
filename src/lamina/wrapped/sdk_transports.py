"""Puts a relay in front of the transports that the HTTP clients of an SDK have."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Self

from lamina.errors import BadInput
from lamina.wrapped.in_process import RunningCall, running_call
from lamina.wrapped.transport import answer_async_request, answer_request


class SleepingTransport:
    """The transport that a client had, in front of which calls are fitted while one is running.

    `find_running` says which. Without it, it is the call of a wrapped client in this context.
    """

    def __init__(
        self, inner: Any, *, find_running: Callable[[], RunningCall | None] = running_call.get
    ) -> None:
        self._inner = inner
        self._find_running = find_running

    def handle_request(self, request: Any) -> Any:
        """Answer a request of a sync client."""
        running = self._find_running()
        if running is None:
            return self._inner.handle_request(request)
        return answer_request(running.relay, self._inner, request, running.outcome)

    async def handle_async_request(self, request: Any) -> Any:
        """Answer a request of an async client."""
        running = self._find_running()
        if running is None:
            return await self._inner.handle_async_request(request)
        return await answer_async_request(running.relay, self._inner, request, running.outcome)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._inner.__aexit__(*error)


def put_in_front(client: Any) -> None:
    """Put the relay into the HTTP clients of an SDK's client. Raises BadInput if it sends in another way."""
    if any(each.__name__ in _OTHER_PATHS for each in type(client).__mro__):
        raise _refuse(client, "names the model in its path, where lamina does not read Anthropic's requests")
    if hasattr(client, "converse"):
        _hook_into_boto(client)
        return
    http_clients = list(_find_http_clients(client))
    if not http_clients:
        raise _refuse(client, "does not send with httpx")
    for http in http_clients:
        setattr(http, _TRANSPORT, _wrap_once(getattr(http, _TRANSPORT)))
        mounts = getattr(http, _MOUNTS)
        for pattern, transport in mounts.items():  # those of proxies
            mounts[pattern] = _wrap_once(transport)


def _hook_into_boto(client: Any) -> None:
    if not hasattr(client, "meta") or inspect.iscoroutinefunction(client.converse):
        raise _refuse(client, "is not a sync client of boto3")
    from lamina.wrapped.boto import hook_in  # noqa: PLC0415 - few clients are boto3's

    hook_in(client)


_TRANSPORT = "_transport"
_MOUNTS = "_mounts"
"""Attributes of a client of httpx. It has no other way in."""

_OTHER_PATHS = ("AnthropicBedrock", "AsyncAnthropicBedrock", "AnthropicVertex", "AsyncAnthropicVertex")


def _refuse(client: Any, reason: str) -> BadInput:
    hint = "call fit_request before your own call"
    return BadInput(f"{type(client).__name__} {reason}", place="wrap", hint=hint)


def _wrap_once(transport: Any) -> Any:
    if transport is None or isinstance(transport, SleepingTransport):
        return transport
    return SleepingTransport(transport)


def _find_http_clients(client: Any) -> Iterator[Any]:
    """The clients of httpx that an SDK's client sends with: one, or both of google-genai's."""
    holder = vars(client)
    names: tuple[str, ...] = ("_client",)
    if "_api_client" in holder:
        holder = vars(holder["_api_client"])
        names = ("_httpx_client", "_async_httpx_client")
        options = holder["_http_options"]
        # With aiohttp installed the SDK would send with that, unless it was given a client of httpx.
        if options.httpx_async_client is None:
            options.httpx_async_client = holder["_async_httpx_client"]
    for name in names:
        http = holder.get(name)
        if hasattr(http, _TRANSPORT) and hasattr(http, _MOUNTS):
            yield http
