"""Large bodies are let in by their bytes, in the order in which they came."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable

import brotli  # type: ignore[import-untyped]
import pytest
import zstandard

from lamina.gateway import GatewaySettings
from lamina.gateway.client_bodies import SMALL, BodyRoom, BodyTicket, ClientBody
from lamina.relay.refusals import Refusal

pytestmark = pytest.mark.anyio

LARGE = 10 * SMALL
FRAME = len(gzip.compress(bytes(SMALL), 0)) - SMALL
"""Bytes that gzip adds to a body which it only stores."""


class Pieces:
    """A body that comes in these pieces."""

    wants_whole_body = False
    body_is_complete = False
    has_left = False

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def read(self) -> bytes:
        self.body_is_complete = len(self._pieces) == 1
        return self._pieces.pop(0)


async def hold(room: BodyRoom, size: int, until: asyncio.Event, entered: list[int]) -> None:
    with BodyTicket(room) as ticket:
        await ticket.take(size)
        entered.append(size)
        await until.wait()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_large_body_waits_for_room_and_a_small_one_for_nobody() -> None:
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


async def test_a_body_that_is_larger_than_the_room_is_let_in_alone() -> None:
    room = BodyRoom(LARGE, seconds=60)
    with BodyTicket(room) as ticket:
        await ticket.take(3 * LARGE)
        assert room.taken == 3 * LARGE
    assert room.taken == 0


async def test_who_waits_too_long_or_leaves_takes_nothing() -> None:
    room = BodyRoom(LARGE, seconds=0.01)
    with BodyTicket(room) as ticket:
        await ticket.take(LARGE)
        with BodyTicket(room) as late, pytest.raises(Refusal) as refused:
            await late.take(LARGE)
        assert refused.value.status == 503
        leaving = asyncio.ensure_future(hold(room, LARGE, asyncio.Event(), []))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
    assert room.taken == 0


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
    "deflate, gzip": lambda text: gzip.compress(zlib.compress(text)),
}


@pytest.mark.parametrize("says_length", [True, False])
@pytest.mark.parametrize("encoding", PACKERS)
async def test_a_body_waits_for_the_room_that_it_takes_when_it_is_unpacked(
    encoding: str, *, says_length: bool
) -> None:
    """Its bytes on the wire say nothing: kilobytes become any number of megabytes."""
    text = b"x" * LARGE
    packed = PACKERS[encoding](text)
    assert len(packed) < SMALL
    room = BodyRoom(LARGE, seconds=60)
    unpacked: list[int] = []
    leave = asyncio.Event()

    async def come() -> None:
        headers = [(b"content-encoding", encoding.encode())]
        if says_length:
            headers.append((b"content-length", str(len(packed)).encode()))
        client = ClientBody(Pieces(packed), headers, GatewaySettings(body_bytes=LARGE // 2))
        with BodyTicket(room) as ticket:
            body = await client.unpack_body(await client.read_body(ticket), ticket)
            unpacked.append(len(body))
            assert room.taken == LARGE
            await leave.wait()

    with BodyTicket(room) as ticket:
        await ticket.take(LARGE)
        guests = [asyncio.ensure_future(come()) for _ in range(2)]
        await settle()
        assert not unpacked
        leave.set()
    await asyncio.gather(*guests)
    assert unpacked == [LARGE, LARGE]
    assert room.taken == 0


@pytest.mark.parametrize(
    ("size", "level"), [(SMALL, 9), (SMALL - FRAME, 0)], ids=["when unpacked", "and just so while packed"]
)
async def test_a_packed_body_that_is_small_waits_for_nobody(size: int, level: int) -> None:
    packed = gzip.compress(b"x" * size, level)
    assert max(size, len(packed)) == SMALL

    room = BodyRoom(SMALL, seconds=60)
    headers = [(b"content-encoding", b"gzip"), (b"content-length", b"%d" % len(packed))]
    client = ClientBody(Pieces(packed), headers, GatewaySettings())
    with BodyTicket(room) as ticket, BodyTicket(room) as other:
        await other.take(LARGE)
        assert len(await client.unpack_body(await client.read_body(ticket), ticket)) == size


async def test_a_body_is_read_in_its_pieces_and_the_server_knows_that_nobody_waits_for_one() -> None:
    source = Pieces(b"first ", b"last")
    client = ClientBody(source, [], GatewaySettings())
    with BodyTicket(BodyRoom(1_000, seconds=1)) as ticket:
        body = await client.read_body(ticket)
    assert body == b"first last"
    assert source.wants_whole_body


async def test_a_body_that_is_passed_on_in_its_pieces_is_waited_for_piece_by_piece() -> None:
    source = Pieces(b"all")
    headers = [(b"transfer-encoding", b"chunked")]
    client = ClientBody(source, headers, GatewaySettings())
    with BodyTicket(BodyRoom(1_000, seconds=1)) as ticket:
        body = await client.open_body(ticket)
    assert not isinstance(body, (bytes, type(None)))
    assert [piece async for piece in body] == [b"all"]
    assert not source.wants_whole_body
