"""The sealed, provider-neutral request, and how it is sealed.

Sealing changes nothing in a request. It checks the laws on what the build changed, records a cut if bytes
that were sent differ, and writes the ledger that the next build needs. A client may change its tools, its
system text or its history. That is allowed, but the cache is lost, and a new epoch begins: it is recorded as
a cut, with one of the reasons below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

import msgspec

from lamina.core.arrange import draft_log
from lamina.core.cut_target import CutLimits
from lamina.core.draft import Draft
from lamina.core.entries import begins_with, count_sent, find_last_turn, find_prefix, find_sent
from lamina.core.hashing import digest, handle, list_prefix_tools
from lamina.core.history_window import LastN
from lamina.core.library import NEWER_IN_LIBRARY, SAME_IN_LIBRARY
from lamina.core.options import BuildContext, digest_settings
from lamina.core.scale import TokenAccount
from lamina.core.turns import OWN_TURN_ONLY, count_leaving_tail
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
    Segment,
    SentMark,
    Thinking,
    ToolCall,
    ToolResult,
)
from lamina.errors import LawBroken

TOOLS_CHANGED = "tools changed"
SYSTEM_CHANGED = "system text changed"
MEMORY_CHANGED = "memory changed"
SETTINGS_CHANGED = "settings changed"
FILE_CHANGED = "a file in the library changed"
REWORDED = "worded differently by this release"
LIBRARY_GREW = "attachments moved into the library"
TURN_SCOPED = "what stands in its own turn only was left out"
WHOLE_HISTORY = "the whole history is sent again"
HISTORY_CHANGED = "history edited or rewound"
SUMMARISED = "older messages were summarised"

NEW_SUMMARIES = 4
"""How many of the newest summaries may have been written since the last request."""


MESSAGE_FIELDS = ("messages", "input", "contents", "prompt")
"""Where the APIs have their messages. The text format has one prompt."""


class Renderer(Protocol):
    """What can write an envelope as a request: a dialect, or its module."""

    def render(self, envelope: Envelope, /) -> dict[str, Any]: ...


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
        return tuple(entry for entry in self.sent if not entry.segment.is_own)

    @property
    def excluded(self) -> tuple[Entry, ...]:
        """The segments of the log that are not in the request. Each `why` says the reason."""
        omitted = (entry for entry in self.entries if entry.form is Form.OMITTED)
        return tuple(entry for entry in omitted if not entry.segment.is_own)

    def messages(self, dialect: Renderer) -> list[Any]:
        """The messages of this request in the words of a dialect, such as `lamina.dialects.openai_chat`.

        What an API has beside them, such as Anthropic's `system`, is in the whole request:
        `dialect.render(envelope)`.
        """
        request = dialect.render(self)
        for name in MESSAGE_FIELDS:
            if name in request:
                turns = request[name]
                return turns if isinstance(turns, list) else [turns]
        return []

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
        return {layer: ends[layer] for layer in Layer if layer in ends}

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

    If the history was edited and the room was exceeded as well, the cache was lost by the edit.
    """
    if not change:
        return draft.cut
    if draft.cut is not None:
        return msgspec.structs.replace(draft.cut, reason=change)
    return Cut(number=len(draft.ledger.cuts) + 1, reason=change, after=envelope.tokens)


def _next_ledger(draft: Draft, envelope: Envelope, cut: Cut | None, context: BuildContext) -> Ledger:
    """The previous ledger with everything that this build adds to it."""
    previous = draft.ledger
    # A dict to which nothing is added stays the same object: a memo sees by that that no form has changed.
    lines = previous.lines
    if draft.lines:
        lines = previous.lines | draft.lines
    repairs = previous.repairs
    if draft.repairs:
        repairs = previous.repairs | draft.repairs
    cuts = previous.cuts
    if cut is not None:
        cuts = (*previous.cuts, cut)
    bound = previous.bound
    if context.binds_thinking:
        bound = _bind_thinking(envelope, previous, draft.unchanged)
    return msgspec.structs.replace(
        previous,
        lines=lines,
        folds=draft.folds,
        repairs=repairs,
        promoted=previous.promoted + draft.promoted,
        cuts=cuts,
        bound=bound,
        wishes=draft.wishes.account,
        mark=_mark_sent(draft, envelope, digest_settings(context.options)),
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
    if not new:
        return previous.bound
    return previous.bound | new


def _mark_sent(draft: Draft, envelope: Envelope, settings: Digest) -> SentMark:
    """The request as hashes, for the next build to compare with. They do not include its tail."""
    account = envelope.account
    new_entries = envelope.entries[draft.unchanged :]
    sent = draft.unchanged_sent + count_sent(new_entries)
    return SentMark(
        sent=sent - envelope.tail,
        prefix=_lasting_prefix(envelope),
        tools=digest_tools(envelope.head.tools),
        system=layers_end(envelope.entries, envelope.root, Layer.SYSTEM),
        library=layers_end(envelope.entries, envelope.root, Layer.LIBRARY),
        tokens=account.total - account.margin,
        counter=account.counter,
        settings=settings,
    )


def digest_tools(tools: Sequence[dict[str, Any]]) -> Digest:
    """The digest by which a mark knows the tools of a request."""
    return digest(list_prefix_tools(tools))


def _lasting_prefix(envelope: Envelope) -> Digest:
    """The hash of the stream without the tail.

    The tail is gone in the next request, so the mark must not include it.
    """
    if not envelope.tail:
        return envelope.prefix
    return find_prefix(envelope.lasting, envelope.root)


def prefix_at(
    entries: Sequence[Entry], sent: int, root: Digest, *, start: int = 0, before: int = 0
) -> Digest | None:
    """The hash after the first `sent` entries that are sent; None if there are fewer.

    A caller who knows that `before` of the entries up to `start` are sent saves the search among these.
    """
    end = find_end_of(entries, sent, start=start, before=before)
    if end is None:
        return None
    if end == 0:
        return root
    return entries[end - 1].prefix


def find_end_of(entries: Sequence[Entry], sent: int, *, start: int = 0, before: int = 0) -> int | None:
    """The position behind the first `sent` entries that are sent; None if there are fewer.

    `start` and `before` are as for `prefix_at`.
    """
    if sent == 0:
        return 0
    if sent <= before:
        start = 0
        before = 0
    left = sent - before
    for at in range(start, len(entries)):
        if entries[at].form is Form.OMITTED:
            continue
        left -= 1
        if left == 0:
            return at + 1
    return None


def layers_end(entries: Sequence[Entry], root: Digest, layer: Layer) -> Digest:
    """The hash of the stream up to the end of this layer.

    Layers come in the order of the stream, so the search ends at the first entry of a later one.
    """
    end = root
    for entry in entries:
        if entry.layer > layer:
            break
        end = entry.prefix
    return end


def check_laws(envelope: Envelope, start: int = 0) -> None:
    """Check the laws that a build or its ledger could break. Entries before `start` were checked before.

    Calls and results were paired before too, unless a fold may have come between them.
    """
    new = envelope.entries[start:]
    problems_by_law: dict[str, Iterable[str]] = {
        "within the room": find_overflow(envelope),
        "conservation": find_wrong_parts(new),
        "forms never rise": _find_risen_forms(new, envelope.ledger),
        "no authority is gained": find_gained_authority(new),
        "append-only within an epoch": _find_late_system_text(new),
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


def _find_late_system_text(entries: Sequence[Entry]) -> Iterator[str]:
    """The layer of system text comes first, so nothing in it follows another layer.

    If it did, the stream would have changed at its beginning.
    """
    for before, after in pairwise(entries):
        if after.layer is Layer.SYSTEM and before.layer is not Layer.SYSTEM:
            yield f"{after.ref} stands after {before.ref}"


def find_unpaired(sent: Sequence[Entry]) -> Iterator[str]:
    """What breaks the pairing of calls and results in a stream; nothing if each call has its one result.

    A message of the assistant may go on after a call, with further calls or with text. Then the results of
    all its calls follow, in any order, and nothing else stands among them.
    """
    waiting: Counter[str] = Counter()  # one message may have thousands of calls, and several with one id
    calling = False
    for entry in sent:
        first = entry.parts[0]
        if isinstance(first, ToolResult):
            calling = False
            if first.id in waiting:
                _take_one(waiting, first.id)
            else:
                yield f"result {entry.ref} has no call before it"
            continue
        continues = calling and not entry.opens and entry.role is Role.ASSISTANT
        if waiting and not continues:
            yield f"{entry.ref} stands between a call and its result"
        elif isinstance(first, ToolCall):
            waiting[first.id] += 1
            calling = True
        else:
            calling = entry.role is Role.ASSISTANT
    if waiting:
        yield f"calls without a result: {list(waiting.elements())}"


def _take_one(waiting: Counter[str], call_id: str) -> None:
    """Take one call off those that wait for their result."""
    waiting[call_id] -= 1
    if not waiting[call_id]:
        del waiting[call_id]


# Why a new epoch begins although the room does not ask for it.


def find_change(draft: Draft, context: BuildContext) -> str:
    """What changed bytes that were sent, before a cut is made; "" if they are unchanged.

    The tools come first in a request, then the system text, then the messages. So the first of them that has
    changed is the one that lost the cache.
    """
    last = draft.ledger.mark
    if last is None or _continues(draft, last, context):
        return ""
    if digest_tools(context.head.tools) != last.tools:
        return TOOLS_CHANGED
    if digest_settings(context.options) != last.settings:
        return SETTINGS_CHANGED
    if layers_end(draft.entries, context.root, Layer.SYSTEM) != last.system:
        return _find_system_change(draft, context)
    return _find_message_change(draft, last, context)


def _find_message_change(draft: Draft, last: SentMark, context: BuildContext) -> str:
    """What changed messages that were sent."""
    if context.widened:
        return _describe_window(context.options.window)
    if draft.reworded:
        return REWORDED
    change = HISTORY_CHANGED
    layout = context.options.layout
    if layout.library == "hoisted" or layout.drops_results:
        change = _find_layout_change(draft.entries, last, context)
    if change == HISTORY_CHANGED and _has_only_new_summaries(draft.log, context):
        return SUMMARISED
    return change


def _describe_window(window: LastN | None) -> str:
    """Why a wider window sends again what a narrower one had taken out."""
    if window is None:
        return WHOLE_HISTORY
    return window.reason


def _continues(draft: Draft, last: SentMark, context: BuildContext) -> bool:
    """Whether the last request is a prefix of this one."""
    prefix = prefix_at(
        draft.entries, last.sent, context.root, start=draft.unchanged, before=draft.unchanged_sent
    )
    return prefix == last.prefix


def _find_system_change(draft: Draft, context: BuildContext) -> str:
    """What changed the system text: the memory, if nothing else was promoted since the last request."""
    promoted_before = frozenset(context.ledger.promoted)
    promoted = frozenset(draft.ledger.promoted) - promoted_before
    kinds = {entry.segment.kind for entry in draft.entries if entry.ref in promoted}
    if kinds == {"memory"}:
        return MEMORY_CHANGED
    return SYSTEM_CHANGED


def _find_layout_change(entries: Sequence[Entry], last: SentMark, context: BuildContext) -> str:
    """What the hoisted layout changed when a turn was over, or else that the history was changed.

    In this layout a new turn moves attachments into the library. It takes out what was for one turn: what
    stands in its own turn only, and the list of what the library has.
    """
    turn_before = find_last_turn(entries) - 1
    of_turn_before = [entry for entry in entries if entry.turn == turn_before]
    if layers_end(entries, context.root, Layer.LIBRARY) != last.library:
        newer = {entry.ref for entry in of_turn_before if entry.layer is Layer.LIBRARY}
        replaced = (entry.why.removeprefix(NEWER_IN_LIBRARY) for entry in entries)
        if not newer.isdisjoint(replaced):
            return FILE_CHANGED
        return LIBRARY_GREW
    for entry in of_turn_before:
        if entry.why == OWN_TURN_ONLY or entry.why.startswith(SAME_IN_LIBRARY):
            return TURN_SCOPED
    return HISTORY_CHANGED


def _has_only_new_summaries(log: Sequence[Segment], context: BuildContext) -> bool:
    """Whether this request would continue the last one without summaries that were written since.

    The log is drafted again without the newest summary, then without the newest two, and so on.
    """
    last = context.ledger.mark
    if last is None:
        return False
    summaries = [at for at, segment in enumerate(log) if segment.covers]
    older_log = list(log)
    for at in reversed(summaries[-NEW_SUMMARIES:]):
        del older_log[at]
        entries = draft_log(tuple(older_log), context).entries
        if prefix_at(entries, last.sent, context.root) == last.prefix:
            return True
    return False
