"""Notes in the record what a door sends and what it gets: one recorder for clients, gateways and sessions.

A request is noted when it leaves, and its answer when it has ended. A call may be sent several times: after a
refusal, or after a recall. Each time it has an answer of its own, or an error, and it has that once.
"""

from __future__ import annotations

from time import monotonic, time
from uuid import uuid4

import msgspec

from lamina.conversations.record import Answered, CutNote, SentRequest
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.store import changes_requests
from lamina.core.envelope import Envelope
from lamina.core.values import Cut, Fold, Form, Ledger
from lamina.fitting.policy import Keep
from lamina.formats.codec import encode


class CallRecorder:
    """The record of one call of a client. `door` is the part of lamina that sends it."""

    def __init__(self, door: str, keep: Keep) -> None:
        self._door = door
        self._keep = keep
        self._unanswered: RecordWriter | None = None
        self._first_id = ""
        self._sent_id = ""
        self._began = 0.0
        self._first_byte = 0.0

    @property
    def keeps_bodies(self) -> bool:
        return self._keep == "all"

    @property
    def keeps_figures(self) -> bool:
        """Whether requests are recorded at all, with or without their texts."""
        return self._keep != "nothing"

    def sent(
        self,
        writer: RecordWriter,
        *,
        dialect: str,
        model: str,
        window: int,
        ledger: Ledger,
        sent_id: str = "",
        envelope: Envelope | None = None,
        cut: Cut | None = None,
        upstream: str = "",
        left_out: tuple[str, ...] = (),
        why: str = "",
        body: bytes | None = None,
        came: bytes | None = None,
    ) -> None:
        """A request leaves now with this `body`. `came` is how the client wrote it, None if that is the same.

        `ledger` is the one that it left with, and `cut` the one that was made for it. Without an `envelope`
        it was not counted. `sent_id` is the door's own id, if it has one. `why`: it is sent once more, after
        a refusal or a recall.
        """
        if not self.keeps_figures:
            return
        self._unanswered = writer
        self._sent_id = sent_id or f"{self._door}-{uuid4().hex[:16]}"
        self._began = monotonic()
        self._first_byte = 0.0
        request = SentRequest(
            id=self._sent_id,
            at=_now(),
            door=self._door,
            dialect=dialect,
            model=model,
            upstream=upstream,
            tokens=envelope.tokens if envelope is not None else 0,
            window=window,
            epoch=len(ledger.cuts),
            cut=None if cut is None else CutNote.of(cut),
            size=len(body or b""),
            follows=self._first_id,
            why=why,
            left_out=left_out,
        )
        self._first_id = self._first_id or self._sent_id
        reasons = None
        if changes_requests(ledger):
            reasons = ledger if self.keeps_bodies else _leave_out_texts(ledger)
        if self.keeps_bodies:
            writer.add_sent(request, body=body, came=came, ledger=reasons)
        else:
            writer.add_sent(request, ledger=reasons)  # no digest: to hash a body costs as much as to pass it

    def first_byte(self) -> None:
        """The answer has begun."""
        self._first_byte = monotonic() - self._began

    def answered(self, answer: Answered, *, body: bytes | None = None) -> bool:
        """The answer has ended. Returns False if nothing was sent, or if the record has its answer already.

        The recorder fills in which request it answers, and when.
        """
        writer = self._unanswered
        if writer is None:
            return False
        self._unanswered = None
        if not self.keeps_bodies:
            body = None
        noted = msgspec.structs.replace(
            answer,
            id=self._sent_id,
            at=_now(),
            first=round(self._first_byte, 3),
            last=round(monotonic() - self._began, 3),
        )
        writer.add_answer(noted, body=body)
        return True

    def failed(self, error: str) -> bool:
        """No answer came, or it broke off. Returns False as `answered` does."""
        return self.answered(Answered(error=error))


def _leave_out_texts(ledger: Ledger) -> Ledger:
    """What was lowered, how and why, without a word of the conversation."""
    folds = [
        Fold(key=fold.key, covers=fold.covers, text="", cut=fold.cut, replaced_by=fold.replaced_by)
        for fold in ledger.folds
    ]
    return Ledger(lines=ledger.lines, folds=tuple(folds), cuts=ledger.cuts)


def encode_lowered(envelope: Envelope, before: Ledger, keep: Keep) -> list[bytes]:
    """The segments that were lowered since this ledger, as records; none unless `keep` is "lowered".

    With "all" the bodies have them.
    """
    if keep != "lowered":
        return []
    lowered_before = {*before.lines}
    for fold in before.folds:
        lowered_before.update(fold.covers)
    records: list[bytes] = []
    for entry in envelope.entries:
        if entry.form is Form.FULL or entry.ref in lowered_before:
            continue
        if not entry.segment.is_own:  # lamina writes its own again, from the ledger
            records.append(encode(entry.segment))
    return records


def _now() -> float:
    return round(time(), 3)
