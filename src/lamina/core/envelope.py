"""The sealed, provider-neutral request, and how it is sealed.

Sealing adds nothing to a request: it compares it with the last one, records a cut if bytes already sent
differ, checks the laws on what the build changed, and writes the ledger that the next build needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from lamina.core.hashing import digest, handle, unmarked
from lamina.core.scale import TokenAccount
from lamina.core.values import (
    Cut,
    Digest,
    Entry,
    Fold,
    Form,
    Head,
    Layer,
    Ledger,
    LedgerLine,
    Ref,
    Role,
    SentMark,
    Thinking,
    ToolCall,
    ToolResult,
)
from lamina.errors import LawBroken


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """One request: every segment of the log as an entry, in the order of the stream, and why.

    `cut` is the cut that this build made, if it made one. `room` is None where no budget was given.
    The last `tail` of the entries that are sent leave when this turn is over: what the next request continues
    is the stream before them.
    """

    entries: tuple[Entry, ...]
    head: Head
    ledger: Ledger
    account: TokenAccount
    root: Digest
    room: int | None = None
    cut: Cut | None = None
    notes: tuple[str, ...] = ()
    tail: int = 0

    @property
    def tokens(self) -> int:
        return self.account.total

    @property
    def lasting(self) -> tuple[Entry, ...]:
        """The entries that are sent, without the tail: what the next request begins with, until a cut."""
        sent = self.sent
        return sent[: len(sent) - self.tail]

    @property
    def sent(self) -> tuple[Entry, ...]:
        """The entries that are in the request, in order."""
        return tuple(e for e in self.entries if e.form is not Form.OMITTED)

    @property
    def prefix(self) -> Digest:
        """The hash of the whole stream."""
        return _last(self.entries, self.root)

    @property
    def layers(self) -> Mapping[Layer, Digest]:
        """The hash of the stream up to the end of each layer that has entries."""
        ends = {e.layer: e.prefix for e in self.entries}
        return {layer: ends[layer] for layer in Layer if layer in ends}

    def entry(self, key: str) -> Entry:
        """The newest entry with this key, ref or handle."""
        for entry in reversed(self.entries):
            if key and key in (entry.segment.key, entry.ref, handle(entry.content)):
                return entry
        raise KeyError(key)


class BuildFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a build found out, for the ledger. `moved` is why bytes already sent have changed, if they did."""

    lines: dict[Ref, LedgerLine] = {}
    folds: tuple[Fold, ...] = ()
    repairs: dict[Ref, str] = {}
    promoted: tuple[Ref, ...] = ()
    cut: Cut | None = None
    moved: str = ""
    binds: bool = False


def seal(envelope: Envelope, facts: BuildFacts, *, known: tuple[int, int] = (0, 0)) -> Envelope:
    """The envelope with its ledger. `known` counts its first entries that are as before, and those sent."""
    start, sent = known
    _check(envelope, start)
    before = envelope.ledger
    cut = facts.cut
    if cut is None and facts.moved:
        cut = Cut(number=len(before.cuts) + 1, reason=facts.moved, after=envelope.tokens)
    ledger = msgspec.structs.replace(
        before,
        lines=before.lines | facts.lines if facts.lines else before.lines,
        folds=facts.folds,
        repairs=before.repairs | facts.repairs if facts.repairs else before.repairs,
        promoted=before.promoted + facts.promoted,
        cuts=(*before.cuts, cut) if cut else before.cuts,
        bound=_bound(envelope, before, start) if facts.binds else before.bound,
        mark=mark(envelope, start=start, sent=sent),
    )
    return msgspec.structs.replace(envelope, ledger=ledger, cut=cut)


def mark(envelope: Envelope, *, start: int = 0, sent: int = 0) -> SentMark:
    """The request as hashes, for the next build to compare with; its tail is no part of them."""
    account = envelope.account
    all_sent = sent + sum(entry.form is not Form.OMITTED for entry in envelope.entries[start:])
    return SentMark(
        sent=all_sent - envelope.tail,
        prefix=_lasting_prefix(envelope),
        tools=digest(unmarked(envelope.head.tools)),
        system=layers_end(envelope.entries, envelope.root, Layer.SYSTEM),
        library=layers_end(envelope.entries, envelope.root, Layer.LIBRARY),
        tokens=account.total - account.margin,
        counter=account.counter,
    )


def _lasting_prefix(envelope: Envelope) -> Digest:
    """The hash of the stream without the tail."""
    if not envelope.tail:
        return envelope.prefix
    lasting = envelope.lasting
    return lasting[-1].prefix if lasting else envelope.root


def prefix_at(
    entries: Sequence[Entry], sent: int, root: Digest, *, start: int = 0, before: int = 0
) -> Digest | None:
    """The hash after the first `sent` entries, None if there are fewer. `before` were sent before `start`."""
    if sent <= before:
        start, before = 0, 0
    if sent == 0:
        return root
    left = sent - before
    for entry in entries[start:]:
        left -= entry.form is not Form.OMITTED
        if left == 0:
            return entry.prefix
    return None


def layers_end(entries: Sequence[Entry], root: Digest, layer: Layer) -> Digest:
    """The hash of the stream up to the end of this layer."""
    end = root
    for entry in entries:
        if entry.layer > layer:
            break
        end = entry.prefix
    return end


def _last(entries: tuple[Entry, ...], root: Digest) -> Digest:
    return entries[-1].prefix if entries else root


def _bound(envelope: Envelope, before: Ledger, start: int) -> dict[Ref, Digest]:
    """What each block of thinking was bound to when it was first sent."""
    new: dict[Ref, Digest] = {}
    previous = envelope.entries[start - 1].prefix if start else envelope.root
    for entry in envelope.entries[start:]:
        if entry.parts and isinstance(entry.parts[0], Thinking) and entry.ref not in before.bound:
            new[entry.ref] = previous
        previous = entry.prefix
    return before.bound | new if new else before.bound


def unpaired(sent: Sequence[Entry]) -> Iterator[str]:
    """What breaks the pairing of calls and results in a stream; nothing if each call has its one result."""
    waiting: list[str] = []
    calling = False
    for entry in sent:
        first = entry.parts[0]
        if isinstance(first, ToolResult):
            calling = False
            if first.id in waiting:
                waiting.remove(first.id)
            else:
                yield f"result {entry.ref} has no call before it"
            continue
        continues = calling and not entry.opens and entry.role is Role.ASSISTANT
        if waiting and not continues:
            yield f"{entry.ref} stands between a call and its result"
        elif isinstance(first, ToolCall):
            waiting.append(first.id)
            calling = True
        else:
            calling = entry.role is Role.ASSISTANT
    if waiting:
        yield f"calls without a result: {waiting}"


def _check(envelope: Envelope, start: int) -> None:
    """The laws that a build or its ledger could break; those of one entry on the entries that it made."""
    if envelope.room is not None and envelope.tokens > envelope.room:
        raise LawBroken("within the room", f"{envelope.tokens:,} tokens in a room of {envelope.room:,}")
    for entry in envelope.entries[start:]:
        _check_entry(entry, envelope.ledger)
    for one, next_ in pairwise(envelope.entries[start:]):
        if next_.layer is Layer.SYSTEM and one.layer is not Layer.SYSTEM:
            raise LawBroken("append-only within an epoch", f"{next_.ref} stands after {one.ref}")
    if start == 0 or envelope.ledger.folds:
        for problem in unpaired(envelope.sent):
            raise LawBroken("calls and results pair", problem)


def _check_entry(entry: Entry, ledger: Ledger) -> None:
    if (entry.form is Form.OMITTED) != (not entry.parts) or not entry.why:
        raise LawBroken("conservation", f"{entry.ref} has form {entry.form} and {len(entry.parts)} parts")
    line = ledger.lines.get(entry.ref)
    if line is not None and entry.form > line.form:
        raise LawBroken("forms never rise", f"{entry.ref} is {entry.form}, the ledger has {line.form}")
    if entry.role is Role.SYSTEM and entry.segment.role is not Role.SYSTEM:
        raise LawBroken("no authority is gained", f"{entry.ref} became system text")
    if entry.layer is Layer.SYSTEM and entry.role is not Role.SYSTEM:
        raise LawBroken("no authority is gained", f"{entry.ref} stands among the system text")
