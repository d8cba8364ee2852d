"""The client's side of a request: its body as it arrives, and the moment at which it goes away."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from lamina.gateway.config import GatewaySettings
from lamina.gateway.refusals import Refusal
from lamina.gateway.security import Headers, read_header
from lamina.gateway.stream import ClientGone

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_LENGTH = re.compile(r"[0-9]{1,18}")


class ClientConnection:
    """Reads from one client. `body_is_read` says whether all of its body has been read."""

    def __init__(self, receive: Receive, headers: Headers, settings: GatewaySettings) -> None:
        self._receive = receive
        self._headers = headers
        self._settings = settings
        self._has_left = False
        self.body_is_read = False

    async def read_body(self) -> bytes:
        """The whole body, as large as the limit allows and no slower than the deadline."""
        limit = self._settings.limits.body
        too_large = Refusal(413, f"the body is larger than {limit:,} bytes")
        length = read_header(self._headers, b"content-length")
        if _LENGTH.fullmatch(length) and int(length) > limit:
            raise too_large  # before any of it is read
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._settings.deadlines.body):
                async for piece in self.read_pieces():
                    size += len(piece)
                    if size > limit:
                        raise too_large
                    pieces.append(piece)
        except TimeoutError:
            raise Refusal(408, "the body came too slowly") from None
        return b"".join(pieces)

    async def read_pieces(self) -> AsyncIterator[bytes]:
        """The body in the pieces in which it arrives."""
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone("before its request was read")
            piece = message.get("body", b"")
            if piece:
                yield piece
            if not message.get("more_body"):
                self.body_is_read = True
                return

    async def work_until_left(self, work: Awaitable[None]) -> None:
        """Do the work in this task. It is cancelled when the client closes the connection."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        leaving = asyncio.ensure_future(self._cancel_on_leaving(task))
        try:
            await work
        except asyncio.CancelledError:
            if not self._has_left:
                raise
            task.uncancel()
            raise ClientGone("while it was answered") from None
        finally:
            leaving.cancel()

    async def _cancel_on_leaving(self, task: asyncio.Task[Any]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            continue
        self._has_left = True
        task.cancel()
