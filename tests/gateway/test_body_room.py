"""Large bodies are let in by their bytes, in the order in which they came."""

from __future__ import annotations

import asyncio

import pytest

from lamina.gateway.body_room import SMALL, BodyRoom
from lamina.gateway.refusals import Refusal

LARGE = 10 * SMALL


async def hold(room: BodyRoom, size: int, until: asyncio.Event, entered: list[int]) -> None:
    with room.open_ticket() as ticket:
        await ticket.take(size)
        entered.append(size)
        await until.wait()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_large_body_waits_for_room_and_a_small_one_for_nobody() -> None:
    async def main() -> None:
        room = BodyRoom(2 * LARGE, seconds=60)
        entered: list[int] = []
        first, others = asyncio.Event(), asyncio.Event()
        tasks = [asyncio.ensure_future(hold(room, LARGE + 1, first, entered))]
        tasks += [asyncio.ensure_future(hold(room, LARGE + number, others, entered)) for number in (2, 3)]
        tasks += [asyncio.ensure_future(hold(room, SMALL, others, entered))]
        await settle()
        assert entered == [LARGE + 1, SMALL]
        first.set()
        await settle()
        assert entered == [LARGE + 1, SMALL, LARGE + 2]
        others.set()
        await asyncio.gather(*tasks)
        assert entered[-1] == LARGE + 3
        assert room.taken == 0

    asyncio.run(main())


def test_a_body_that_is_larger_than_the_room_is_let_in_alone() -> None:
    async def main() -> None:
        room = BodyRoom(LARGE, seconds=60)
        with room.open_ticket() as ticket:
            await ticket.take(3 * LARGE)
            assert room.taken == 3 * LARGE
        assert room.taken == 0

    asyncio.run(main())


def test_who_waits_too_long_or_leaves_takes_nothing() -> None:
    async def main() -> None:
        room = BodyRoom(LARGE, seconds=0.01)
        with room.open_ticket() as ticket:
            await ticket.take(LARGE)
            with room.open_ticket() as late, pytest.raises(Refusal) as refused:
                await late.take(LARGE)
            assert refused.value.status == 503
            leaving = asyncio.ensure_future(hold(room, LARGE, asyncio.Event(), []))
            await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
        assert room.taken == 0

    asyncio.run(main())


def test_what_was_unpacked_counts_without_waiting() -> None:
    async def main() -> None:
        room = BodyRoom(LARGE, seconds=60)
        with room.open_ticket() as ticket:
            ticket.set_size(3 * LARGE)
            assert room.taken == 3 * LARGE
            ticket.set_size(SMALL)
            assert room.taken == 0

    asyncio.run(main())
