"""What is kept beside the records: the ledger, and what a session needs to send the last request again.

It is `Ledger.dump()` with two fields more, so whoever reads ledgers reads this. Damaged or missing, it is
rebuilt from the log: a new epoch, and a note that says so. Knows no store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lamina.core.envelope import Envelope
from lamina.core.ledger import rewind
from lamina.core.ledger_upgrade import upgraded
from lamina.core.recall import refs
from lamina.core.values import Cut, Ledger, Segment, SentMark
from lamina.errors import BadInput


class CutPlace(msgspec.Struct, frozen=True, kw_only=True):
    """How many records there were when a cut was made, and how many sections had been promoted before it."""

    number: int
    count: int
    promoted: int = 0


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger; whether it is that of a request for the whole log (`fresh`); the request before that one.

    `before` is what cache markers are planned with; a request that made a cut has none.
    """

    ledger: Ledger = Ledger()
    fresh: bool = False
    before: SentMark | None = None
    cuts: tuple[CutPlace, ...] = ()

    def built(self, envelope: Envelope, count: int) -> SessionState:
        """The state after a build for a log of so many records."""
        known = {place.number for place in self.cuts}
        promoted = len(self.ledger.promoted)
        new = tuple(
            CutPlace(number=cut.number, count=count, promoted=promoted)
            for cut in envelope.ledger.cuts
            if cut.number not in known
        )
        before = self.before if self.fresh else None if envelope.cut else self.ledger.mark
        return SessionState(ledger=envelope.ledger, fresh=True, before=before, cuts=self.cuts + new)

    def grown(self, ledger: Ledger | None = None) -> SessionState:
        """The state once the log has grown: the next build is of another request."""
        return msgspec.structs.replace(self, fresh=False, before=None, ledger=ledger or self.ledger)

    def rewound(self, log: tuple[Segment, ...], to: int) -> SessionState:
        """The state for what is left of a log: no line of a taken back segment, and none of a later cut."""
        ledger = rewind(upgraded(self.ledger, log), (ref for ref, _ in refs(log)))
        later = {place.number for place in self.cuts if place.count > to}
        promoted = min((place.promoted for place in self.cuts if place.count > to), default=None)
        ledger = msgspec.structs.replace(
            ledger,
            lines={ref: line for ref, line in ledger.lines.items() if line.cut not in later},
            folds=tuple(fold for fold in ledger.folds if fold.cut not in later),
            promoted=tuple(ref for ref in self.ledger.promoted[:promoted] if ref in ledger.promoted),
        )
        return SessionState(ledger=ledger, cuts=self.cuts)

    def moved(self, places: Sequence[int], *, ahead: int) -> SessionState:
        """The state for a copy of the live records, which stand there behind `ahead` others."""
        cuts = tuple(
            msgspec.structs.replace(cut, count=ahead + sum(place < cut.count for place in places))
            for cut in self.cuts
        )
        return msgspec.structs.replace(self, cuts=cuts)

    def dump(self) -> bytes:
        plain = self.ledger.dump() | {"places": msgspec.to_builtins(self.cuts)}
        if self.fresh:
            plain["before"] = msgspec.to_builtins(self.before)
        return msgspec.json.encode(plain, order="deterministic")


def load(body: bytes, *, count: int) -> tuple[SessionState, str]:
    """The state that was kept, and a note where it had to be made anew."""
    if not body:
        return (_anew("no ledger was kept"), _ANEW.format("is missing")) if count else (SessionState(), "")
    try:
        plain = msgspec.json.decode(body)
        return _read(plain), ""
    except (BadInput, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if _newer(body):
            raise
        return _anew("the ledger could not be read"), _ANEW.format(f"could not be read ({error})")


_ANEW = "the ledger of this conversation {}; it was rebuilt from the log, as a new epoch"


def _anew(reason: str) -> SessionState:
    return SessionState(ledger=Ledger(cuts=(Cut(number=1, reason=reason),)))


def _read(plain: Any) -> SessionState:
    ledger = Ledger.load(plain)
    cuts = msgspec.convert(plain.get("places", ()), tuple[CutPlace, ...])
    before = msgspec.convert(plain.get("before"), SentMark | None)
    return SessionState(ledger=ledger, fresh="before" in plain, before=before, cuts=cuts)


def _newer(body: bytes) -> bool:
    """Whether a newer release wrote it: then it is not damaged, and must not be overwritten."""
    try:
        plain = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    version = plain.get("version") if isinstance(plain, dict) else None
    return isinstance(version, int) and version > Ledger().version
