"""What a client sees in place of an SDK's stream or raw response, if the model recalled something.

Everything but the answer itself is the SDK's own: attributes, headers, closing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self


class ShownStream:
    """An SDK's stream of which other events are seen. Everything else is the stream's own."""

    def __init__(self, stream: Any, events: Any) -> None:
        self._stream = stream
        self._events = events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Frameworks ask what a stream is an instance of."""
        return type(self._stream)


class SyncShownStream(ShownStream):
    """The stream of a sync client."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self._events)

    def __next__(self) -> Any:
        return next(self._events)

    def close(self) -> None:
        """Close this stream, and those that followed a recall."""
        self._events.close()
        self._stream.close()

    def __enter__(self) -> Self:
        self._stream.__enter__()
        return self

    def __exit__(self, *error: object) -> Any:
        self._events.close()
        return self._stream.__exit__(*error)


class AsyncShownStream(ShownStream):
    """The stream of an async client."""

    def __aiter__(self) -> Any:
        return self._events

    def __anext__(self) -> Any:
        return anext(self._events)

    async def close(self) -> None:
        """Close this stream, and those that followed a recall."""
        await self._events.aclose()
        await self._stream.close()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        await self._events.aclose()
        return await self._stream.__aexit__(*error)


class ShownResponse:
    """A raw response of an SDK, as `with_raw_response` gives it, whose `parse` gives another answer."""

    def __init__(self, response: Any, answer: Any) -> None:
        self._response = response
        self._answer = answer

    def parse(self, **options: Any) -> Any:
        """The answer without recalls. A caller that asks for another type gets the SDK's own."""
        if options:
            return self._response.parse(**options)
        return self._answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._response, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Frameworks ask what a response is an instance of."""
        return type(self._response)
