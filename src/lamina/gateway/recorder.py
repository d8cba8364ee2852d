"""Records what an answer reports before the client can act on it, where the next request depends on it.

A client that has the whole answer may send its next request at once, to another worker or to a gateway that
was killed and started again. So if the conversation is near a cut, the report is in the store before the
client has seen it: an event stream waits at the event with the usage, any other answer before its last piece.
"""

from __future__ import annotations

from lamina.gateway.calls import OutgoingRequest
from lamina.gateway.learning import AnswerLearner
from lamina.gateway.usage import UsageReader


class AnswerRecorder:
    """Takes the pieces of one answer and gives them back when they may be sent."""

    def __init__(
        self, learner: AnswerLearner, sent: OutgoingRequest, reader: UsageReader, *, succeeded: bool
    ) -> None:
        self._learner = learner
        self._sent = sent
        self._reader = reader
        self._waits = sent.is_near and succeeded
        self._held = b""

    async def take(self, piece: bytes) -> bytes:
        """Read a piece. Returns what may be sent now: this piece, or the one before it."""
        self._reader.feed(piece)
        if not self._waits:
            return piece
        if not self._reader.is_stream:
            ready, self._held = self._held, piece
            return ready
        if self._reader.usage.input:
            await self._record()
        return piece

    async def finish(self) -> bytes:
        """The piece that was held back to the end."""
        self._reader.finish()
        if self._waits:
            await self._record()
        return self._held

    async def _record(self) -> None:
        self._waits = False
        await self._learner.record_answer(self._sent, self._reader.usage, at_once=True)
