"""The streams that the client of a wrapped SDK sees: the SDK's own, with other events.

`sdk_calls` decides which events are seen: those of the first stream without recalls, and those of the streams
that followed a recall. Everything else that a client asks of its stream, the SDK's stream answers.
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
