"""Reads the body of a client's request as it arrives, into the memory that there is for bodies."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator
from typing import Protocol, Self

from anyio import to_thread

from lamina.gateway.packed_bodies import unpack
from lamina.relay import limits
from lamina.relay.config import GatewaySettings
from lamina.relay.refusals import Refusal
from lamina.relay.security import Headers, read_header, read_list
from lamina.relay.stream import ClientGone

_LENGTH = re.compile(r"[0-9]{1,18}")


class BodySource(Protocol):
    """Where a body comes from: a connection.

    `wants_whole_body`: the reader need not be woken for each piece. `body_is_complete`: nothing of it is
    still to come. `has_left`: the client has closed the connection.
    """

    wants_whole_body: bool
    body_is_complete: bool
    has_left: bool

    async def read(self) -> bytes:
        """What has come since the last time. It waits until there is something."""


class ClientBody:
    """The body of one request."""

    def __init__(self, source: BodySource, headers: Headers, settings: GatewaySettings) -> None:
        self._source = source
        self._headers = headers
        self._most_bytes = settings.body_bytes
        self._encoding = read_list(headers, b"content-encoding")
        self._most_unpacked = self._most_bytes
        if self._encoding:
            self._most_unpacked *= limits.UNPACKED_BODIES
        self._is_read = False

    async def read_body(self, ticket: BodyTicket) -> bytes:
        """The whole body, as large as the limit allows and no slower than the deadline.

        A large one is read when there is room for it. If nobody says how large it is, it may become as large
        as the limit. So may a packed one, when it is unpacked.
        """
        limit = self._most_bytes
        length = read_header(self._headers, b"content-length")
        if _LENGTH.fullmatch(length):
            if int(length) > limit:
                raise _refuse_large(limit)  # before any of it is read
            room = int(length)
            if self._encoding:
                room = self._most_unpacked
            if int(length) > SMALL:
                await ticket.take(room)
        self._source.wants_whole_body = True
        if self._source.body_is_complete:  # it has arrived with the headers, as most bodies do
            return await self._join_pieces(ticket)
        try:
            async with asyncio.timeout(limits.BODY_SECONDS):
                return await self._join_pieces(ticket)
        except TimeoutError:
            raise Refusal(408, "the body came too slowly") from None

    async def _join_pieces(self, ticket: BodyTicket) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while not self._is_read:
            pieces.append(await self._read_piece())
            size += len(pieces[-1])
            if size > self._most_bytes:
                raise _refuse_large(self._most_bytes)
            if size > SMALL:
                await ticket.take(self._most_unpacked)
        return b"".join(pieces)

    async def unpack_body(self, packed: bytes, ticket: BodyTicket) -> bytes:
        """The body without its encodings, when there is room for it.

        Two kilobytes may become 64 MB. Only unpacking tells, so it is tried within what a small body may
        have. A larger one first waits for room, and does not stop the event loop meanwhile.
        """
        if not self._encoding:
            return packed
        if len(packed) <= SMALL:
            try:
                return unpack(packed, self._encoding, SMALL)
            except Refusal as refusal:
                if refusal.status != 413:
                    raise
        await ticket.take(self._most_unpacked)
        return await to_thread.run_sync(unpack, packed, self._encoding, self._most_unpacked)

    async def open_body(self, ticket: BodyTicket) -> bytes | AsyncIterator[bytes] | None:
        """The body of a request that passes through, None without one: a large one in pieces, as it arrives.

        A small one is read first. It can be sent again, so it may go over a connection that was used before.
        """
        length = read_header(self._headers, b"content-length")
        if _LENGTH.fullmatch(length) and int(length) <= min(SMALL, self._most_bytes):
            return await self.read_body(ticket)
        if length or read_header(self._headers, b"transfer-encoding"):
            return self.read_pieces()
        return None

    async def read_pieces(self) -> AsyncIterator[bytes]:
        """The body in the pieces in which it arrives."""
        while not self._is_read:
            piece = await self._read_piece()
            if piece:
                yield piece

    async def _read_piece(self) -> bytes:
        piece = await self._source.read()
        if self._source.has_left:
            raise ClientGone("before its request was read")
        self._is_read = self._source.body_is_complete
        return piece


def _refuse_large(limit: int) -> Refusal:
    return Refusal(413, f"the body is larger than {limit:,} bytes")


SMALL = 1 << 20
"""Bytes up to which a body waits for nobody. The number of requests at a time is limited as well."""


class BodyRoom:
    """The memory for bodies that all requests of one gateway process share.

    A body takes a few times its bytes while it is fitted. Two hundred requests of 100 kB are nothing; two
    hundred of 30 MB would take all memory of the machine. So bodies of more than `SMALL` bytes share a fixed
    room, and wait for it in the order in which they came.
    """

    def __init__(self, size: int, seconds: float) -> None:
        self._size = size
        self._seconds = seconds
        self.taken = 0
        """The bytes of large bodies that are held now."""

        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        """Wait until there is room for so many bytes. Raises Refusal if that takes too long.

        A body that is larger than the whole room is let in when nobody else is there.
        """
        if not self._waiting and self._has_room(size):
            self.taken += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (size, turn)
        self._waiting.append(place)
        try:
            async with asyncio.timeout(self._seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # it was let in, and gave up in the same moment
                self.give_back(size)
            else:
                self._waiting.remove(place)
                self._let_in()
            if isinstance(error, TimeoutError):
                reason = "the gateway holds as many large requests as it may"
                raise Refusal(503, reason, retry_after=5) from None
            raise

    def give_back(self, size: int) -> None:
        """So many bytes are free again."""
        self.taken -= size
        self._let_in()

    def _let_in(self) -> None:
        """Let in who waits, in order."""
        while self._waiting:
            size, turn = self._waiting[0]
            if not self._has_room(size):
                return
            self._waiting.popleft()
            self.taken += size
            turn.set_result(None)

    def _has_room(self, size: int) -> bool:
        return self.taken == 0 or self.taken + size <= self._size


class BodyTicket:
    """The part of the room that one body has, until the block ends. `size` is 0 for a small one."""

    def __init__(self, room: BodyRoom) -> None:
        self._room = room
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.set_size(0)

    async def take(self, size: int) -> None:
        """Wait for room, once, before the body is read. A small body needs none."""
        if size <= SMALL or self.size:
            return
        await self._room.take(size)
        self.size = size

    def set_size(self, size: int) -> None:
        """Take no more than the body turned out to need."""
        if size <= SMALL:
            size = 0
        if size != self.size:
            self._room.give_back(self.size - size)
            self.size = size
