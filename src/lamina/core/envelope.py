"""The sealed, provider-neutral request, and how it is sealed.

Sealing changes nothing in a request. It checks the laws on what the build changed, records a cut if bytes
that were sent differ (`epochs` says why), and writes the ledger that the next build needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

import msgspec

from lamina.core.cut_target import CutLimits
from lamina.core.draft import Draft
from lamina.core.entries import (
    begins_with,
    count_sent,
    find_last_turn,
    find_logged,
    find_prefix,
    find_sent,
)
from lamina.core.epochs import TURN_SCOPED, layers_end
from lamina.core.hashing import handle
from lamina.core.options import BuildContext, digest_settings
from lamina.core.scale import TokenAccount
from lamina.core.tool_definitions import digest_tools
from lamina.core.turns import count_leaving_tail
from lamina.core.values import (
    Cut,
    Digest,
    Entry,
    Form,
    Layer,
    Ledger,
    Ref,
    RequestHead,
    Role,
    SentMark,
    Thinking,
    ToolCall,
    ToolResult,
)
from lamina.errors import LawBroken

_Value = TypeVar("_Value")


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """One request: every segment of the log as an entry, in the order of the stream, with the reasons.

    `cut` is the cut that this build made, if it made one. `room` is None if there is no budget. The last
    `tail` of the entries that are sent leave when this turn is over. The next request continues the stream
    before them.
    """

    entries: tuple[Entry, ...]
    head: RequestHead
    ledger: Ledger
    account: TokenAccount
    root: Digest
    room: int | None = None
    cut: Cut | None = None
    notes: tuple[str, ...] = ()
    tail: int = 0

    @property
    def tokens(self) -> int:
        """The tokens of the whole request, with its tools and its framing."""
        return self.account.total

    @property
    def lasting(self) -> tuple[Entry, ...]:
        """The entries that are sent, without the tail: what the next request begins with, until a cut."""
        sent = self.sent
        return sent[: len(sent) - self.tail]

    @property
    def sent(self) -> tuple[Entry, ...]:
        """The entries that are in the request, in order."""
        return tuple(find_sent(self.entries))

    @property
    def included(self) -> tuple[Entry, ...]:
        """The segments of the log that are in the request, in any form but OMITTED."""
        return tuple(find_logged(self.sent))

    @property
    def excluded(self) -> tuple[Entry, ...]:
        """The segments of the log that are not in the request. Each `why` says the reason."""
        return tuple(entry for entry in find_logged(self.entries) if entry.form is Form.OMITTED)

    @property
    def prefix(self) -> Digest:
        """The hash of the whole stream."""
        return find_prefix(self.entries, self.root)

    @property
    def layers(self) -> Mapping[Layer, Digest]:
        """The hash of the stream up to the end of each layer that has entries.

        Two requests with one hash of a layer are equal up to its end.
        """
        ends = {entry.layer: entry.prefix for entry in self.entries}
        return {layer: ends[layer] for layer in sorted(ends)}

    def entry(self, key: str) -> Entry:
        """The newest entry with this key, ref or handle. Raises KeyError if there is none.

        An attachment that came again has several entries with one key. Then the last one answers.
        """
        for entry in reversed(self.entries):
            if key and key in (entry.segment.key, entry.ref, handle(entry.content)):
                return entry
        raise KeyError(key)


def seal(draft: Draft, context: BuildContext, *, limits: CutLimits | None, change: str) -> Envelope:
    """The last stage: the draft as an envelope that keeps the laws, with the ledger for the next build.

    `change` is what changed bytes that were sent, if that was not a cut; otherwise it is "".
    """
    options = context.options
    envelope = Envelope(
        entries=tuple(draft.entries),
        head=context.head,
        ledger=draft.ledger,
        account=context.scale.account(draft.tokens),
        root=context.root,
        room=limits.room if limits else None,
        notes=draft.notes,
        tail=count_leaving_tail(draft.entries, options.kinds, options.layout),
    )
    check_laws(envelope, draft.unchanged)
    cut = _find_cut(draft, envelope, change)
    ledger = _next_ledger(draft, envelope, cut, context)
    return msgspec.structs.replace(envelope, ledger=ledger, cut=cut)


def _find_cut(draft: Draft, envelope: Envelope, change: str) -> Cut | None:
    """The cut of this build. A change of what was sent is its first cause, before the room.

    If the history was edited and the room was exceeded as well, the cache was lost by the edit. If a window
    over history moved, the reason of the cut says so, and whether the room was exceeded as well.
    """
    if not change:
        return draft.cut
    if draft.cut is not None and (
        draft.cut.reason.startswith(change) or _cuts_earlier(draft.cut, draft, change)
    ):
        return draft.cut
    if draft.cut is not None:
        return msgspec.structs.replace(draft.cut, reason=change)
    return Cut(number=len(draft.ledger.cuts) + 1, reason=change, after=envelope.tokens)


def _cuts_earlier(cut: Cut, draft: Draft, change: str) -> bool:
    """Whether the cut changed bytes before those that a turn took with it when it was over."""
    first = [entry for entry in draft.entries if entry.ref == cut.first]
    return change == TURN_SCOPED and any(entry.turn < find_last_turn(draft.entries) - 1 for entry in first)


def _next_ledger(draft: Draft, envelope: Envelope, cut: Cut | None, context: BuildContext) -> Ledger:
    """The previous ledger with everything that this build adds to it."""
    previous = draft.ledger
    cuts = previous.cuts
    if cut is not None:
        cuts = (*previous.cuts, cut)
    bound = previous.bound
    if context.binds_thinking:
        bound = _bind_thinking(envelope, previous, draft.unchanged)
    return msgspec.structs.replace(
        previous,
        lines=_join_dicts(previous.lines, draft.lines),
        folds=draft.folds,
        reminders=draft.reminders,
        repairs=_join_dicts(previous.repairs, draft.repairs),
        promoted=previous.promoted + draft.promoted,
        cuts=cuts,
        bound=bound,
        mark=_mark_sent(envelope, context),
    )


def _bind_thinking(envelope: Envelope, previous: Ledger, start: int) -> dict[Ref, Digest]:
    """What each block of thinking stands after in this request.

    A block whose past has changed is left out before, unless its provider drops it. Such a block stands where
    it is from now on: if it counted as changed again, the next request would leave it out without a reason.
    """
    new: dict[Ref, Digest] = {}
    prefix = envelope.root
    if start:
        prefix = envelope.entries[start - 1].prefix
    for entry in envelope.entries[start:]:
        if begins_with(entry.parts, Thinking) and previous.bound.get(entry.ref) != prefix:
            new[entry.ref] = prefix
        prefix = entry.prefix
    return _join_dicts(previous.bound, new)


def _join_dicts(before: dict[Ref, _Value], new: dict[Ref, _Value]) -> dict[Ref, _Value]:
    """Both dicts in one. If there is nothing new, it is the same object, by which a memo sees that."""
    if not new:
        return before
    return before | new


def _mark_sent(envelope: Envelope, context: BuildContext) -> SentMark:
    """The request as hashes, for the next build to compare with. They do not include its tail.

    The tail is gone in the next request.
    """
    sent = count_sent(envelope.entries) - envelope.tail
    prefix = envelope.prefix
    if envelope.tail:
        prefix = find_prefix(envelope.lasting, envelope.root)
    return _make_mark(envelope.entries, envelope.account, context, sent=sent, prefix=prefix)


def mark_unlowered(draft: Draft, context: BuildContext) -> SentMark:
    """The mark of a request that left as it was drafted, with nothing lowered and nothing added."""
    account = context.scale.account(draft.tokens)
    sent = count_sent(draft.entries)
    prefix = find_prefix(draft.entries, context.root)
    return _make_mark(draft.entries, account, context, sent=sent, prefix=prefix)


def _make_mark(
    entries: Sequence[Entry], account: TokenAccount, context: BuildContext, *, sent: int, prefix: Digest
) -> SentMark:
    return SentMark(
        sent=sent,
        prefix=prefix,
        tools=digest_tools(context.head.tools),
        system=layers_end(entries, context.root, Layer.SYSTEM),
        library=layers_end(entries, context.root, Layer.LIBRARY),
        tokens=account.uncalibrated,
        counter=account.counter,
        settings=digest_settings(context.options),
    )


def check_laws(envelope: Envelope, start: int) -> None:
    """Check the laws that a build or its ledger could break. Entries before `start` were checked before.

    Calls and results were paired before too, unless a fold may have come between them.
    """
    new = envelope.entries[start:]
    problems_by_law: dict[str, Iterable[str]] = {
        "within the room": find_overflow(envelope),
        "conservation": find_wrong_parts(new),
        "forms never rise": _find_risen_forms(new, envelope.ledger),
        "no authority is gained": find_gained_authority(new),
        "append-only within an epoch": find_late_layers(new, Layer.SYSTEM),
    }
    if start == 0 or envelope.ledger.folds:
        problems_by_law["calls and results pair"] = find_unpaired(envelope.sent)
    for law, problems in problems_by_law.items():
        for problem in problems:
            raise LawBroken(law, problem)


def find_overflow(envelope: Envelope) -> Iterator[str]:
    """A request has at most as many tokens as its room."""
    room = envelope.room
    if room is not None and envelope.tokens > room:
        yield f"{envelope.tokens:,} tokens in a room of {room:,}"


def find_wrong_parts(entries: Iterable[Entry]) -> Iterator[str]:
    """An entry has parts if it is sent and none if it is omitted, and it has a reason for either.

    By the reasons a request is explained, so none may be missing.
    """
    for entry in entries:
        is_omitted = entry.form is Form.OMITTED
        has_parts = bool(entry.parts)
        if is_omitted is has_parts:
            yield f"{entry.ref} has form {entry.form} and {len(entry.parts)} parts"
        if not entry.why:
            yield f"{entry.ref} has no reason"


def _find_risen_forms(entries: Iterable[Entry], ledger: Ledger) -> Iterator[str]:
    """No entry has a higher form than its line in the ledger.

    It may have a lower one: a fold omits what a line only shortened.
    """
    for entry in entries:
        line = ledger.lines.get(entry.ref)
        if line is not None and entry.form > line.form:
            yield f"{entry.ref} is {entry.form}, the ledger has {line.form}"


def find_gained_authority(entries: Iterable[Entry]) -> Iterator[str]:
    """Only what came as system text is sent as such, or stands among it.

    Models obey system text, so nothing that a file or a tool says may become it.
    """
    for entry in entries:
        is_system_text = entry.role is Role.SYSTEM
        if is_system_text and entry.segment.role is not Role.SYSTEM:
            yield f"{entry.ref} became system text"
        if entry.layer is Layer.SYSTEM and not is_system_text:
            yield f"{entry.ref} stands among the system text"


def find_late_layers(entries: Iterable[Entry], last: Layer) -> Iterator[str]:
    """Layers up to `last` stand in their order before the others: the more stable ones come first.

    If one did not, the stream would have changed before what was sent.
    """
    for before, after in pairwise(entries):
        if after.layer < before.layer and after.layer <= last:
            yield f"{after.ref} of the {after.layer} stands after {before.ref} of the {before.layer}"


def find_unpaired(sent: Sequence[Entry]) -> Iterator[str]:
    """What breaks the pairing of calls and results in a stream; nothing if each call has its one result.

    A message of the assistant may go on after a call, with further calls or with text. Then the results of
    all its calls follow, in any order, and nothing else stands among them.
    """
    waiting: Counter[str] = Counter()  # one message may have thousands of calls, and several with one id
    open_calls = 0
    calling = False
    for entry in sent:
        first = entry.parts[0]
        if isinstance(first, ToolResult):
            calling = False
            if waiting[first.id]:
                waiting[first.id] -= 1
                open_calls -= 1
            else:
                yield f"result {entry.ref} has no call before it"
            continue
        is_models = entry.role is Role.ASSISTANT
        continues = calling and is_models and not entry.opens
        if open_calls and not continues:
            yield f"{entry.ref} stands between a call and its result"
            continue
        calling = is_models
        if isinstance(first, ToolCall):
            waiting[first.id] += 1
            open_calls += 1
    if open_calls:
        yield f"calls without a result: {list(waiting.elements())}"
