"""Reading an answer piece by piece: what has arrived, what comes later, and an upstream that falls silent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lamina.relay import limits
from lamina.relay.refusals import Refusal
from lamina.relay.stream import read_piece, read_pieces
from lamina.relay.upstream_port import BadAnswer


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fractions that add up exactly: three comments, and half a pause."""
    monkeypatch.setattr(limits, "IDLE_SECONDS", 3.5 / 64)
    monkeypatch.setattr(limits, "KEEP_ALIVE_SECONDS", 1 / 64)


class Content:
    """The body of an answer. `ready` has arrived already, `later` comes when somebody waits for it."""

    def __init__(self, *, ready: Any = b"", later: tuple[Any, ...] = ()) -> None:
        self._ready = ready
        self._later = list(later)

    @property
    def is_at_hand(self) -> bool:
        return bool(self._ready) or not self._later

    async def read(self) -> bytes:
        if self.is_at_hand:
            piece = self._ready
            self._ready = b""
            return _give(piece)
        piece = self._later[0]
        if piece is None:
            await asyncio.Event().wait()
        return _give(self._later.pop(0))


def _give(piece: Any) -> bytes:
    if isinstance(piece, Exception):
        raise piece
    assert isinstance(piece, bytes)
    return piece


def read_all(content: Content) -> list[bytes]:
    answer: Any = content

    async def main() -> list[bytes]:
        return [piece async for piece in read_pieces(answer, None)]

    return asyncio.run(main())


def test_pieces_come_in_order_and_what_has_arrived_comes_first() -> None:
    assert read_all(Content(ready=b"one", later=(b"two", b"three"))) == [b"one", b"two", b"three"]
    assert read_all(Content()) == []


@pytest.mark.parametrize("error", [BadAnswer("half"), ConnectionResetError()])
def test_an_answer_that_broke_off_is_refused_with_the_kind_of_its_error(error: Exception) -> None:
    for content in (Content(ready=error), Content(ready=b"one", later=(error,))):
        with pytest.raises(Refusal, match=type(error).__name__) as caught:
            read_all(content)
        assert caught.value.status == 502


def test_silence_ends_an_answer_and_comments_do_not_make_it_longer() -> None:
    answer: Any = Content(later=(None,))
    comments: list[str] = []

    async def comment() -> None:
        comments.append("keepalive")

    with pytest.raises(Refusal, match="fell silent") as caught:
        asyncio.run(read_piece(answer, comment))
    assert caught.value.status == 504
    assert len(comments) == 3
    with pytest.raises(Refusal, match="fell silent"):
        read_all(Content(later=(None,)))
