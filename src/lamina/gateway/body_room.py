"""Limits the memory that bodies take: large ones are let in by their bytes, not by their number.

A body takes a few times its bytes while it is fitted. Two hundred requests of 100 kB are nothing; two hundred
of 30 MB would take all memory of the machine. So bodies of more than `SMALL` bytes share a fixed room, and
wait for it in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from lamina.gateway.refusals import Refusal

SMALL = 1 << 20
"""Bytes up to which a body waits for nobody. The number of requests at a time is limited as well."""


class BodyRoom:
    """The room that all requests of one gateway process share."""

    def __init__(self, size: int, seconds: float) -> None:
        self._size = size
        self._seconds = seconds
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def taken(self) -> int:
        """The bytes of large bodies that are held now."""
        return self._taken

    @contextmanager
    def open_ticket(self) -> Iterator[BodyTicket]:
        """A ticket for one body. What it took is free again at the end."""
        ticket = BodyTicket(self)
        try:
            yield ticket
        finally:
            self._give_back(ticket.size)

    async def _take(self, size: int) -> None:
        """Wait until there is room for so many bytes. Raises Refusal if that takes too long.

        A body that is larger than the whole room is let in when nobody else is there.
        """
        if not self._waiting and self._has_room(size):
            self._taken += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (size, turn)
        self._waiting.append(place)
        try:
            async with asyncio.timeout(self._seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # it was let in, and gave up in the same moment
                self._give_back(size)
            else:
                self._waiting.remove(place)
                self._let_in()
            if isinstance(error, TimeoutError):
                reason = "the gateway holds as many large requests as it may"
                raise Refusal(503, reason, retry_after=5) from None
            raise

    def _give_back(self, size: int) -> None:
        self._taken -= size
        self._let_in()

    def _let_in(self) -> None:
        """Let in who waits, in order."""
        while self._waiting:
            size, turn = self._waiting[0]
            if not self._has_room(size):
                return
            self._waiting.popleft()
            self._taken += size
            turn.set_result(None)

    def _has_room(self, size: int) -> bool:
        return self._taken == 0 or self._taken + size <= self._size


class BodyTicket:
    """The part of the room that one body has. `size` is 0 for a small one."""

    def __init__(self, room: BodyRoom) -> None:
        self._room = room
        self.size = 0

    async def take(self, size: int) -> None:
        """Wait for room, once, before the body is read. A small body needs none."""
        if size <= SMALL or self.size:
            return
        await self._room._take(size)  # noqa: SLF001 - the two belong together
        self.size = size

    def set_size(self, size: int) -> None:
        """Take no more than the body turned out to need."""
        if size <= SMALL:
            size = 0
        self._room._give_back(self.size - size)  # noqa: SLF001 - the two belong together
        self.size = size
