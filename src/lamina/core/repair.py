"""A well-formed log: what every provider would refuse is repaired, reported, and repaired the same way again.

Repair looks at structure only: calls and their results, ids, empty messages. It pairs a result with its call
by id, then by name, then by position, since clients do not always use an id only once. Nothing is dropped
silently: a segment that cannot be sent becomes an entry with a reason. The ledger keeps what repair did. So a
result that arrives after lamina has answered its call is new content, and never changes what was sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Literal

import msgspec

from lamina.core.entries import (
    IN_FULL,
    begins_with,
    find_last_sent,
    is_empty,
    make_closing_line,
    make_own_entry,
    omit,
)
from lamina.core.hashing import SETTLED_AT, SegmentNames, parts_digest
from lamina.core.kinds import is_users_message
from lamina.core.text.tags import strip_tags
from lamina.core.values import OWN_ORIGIN, Entry, Ledger, Part, Ref, Role, Segment, Text, ToolCall, ToolResult
from lamina.core.waiting_calls import WaitingCalls
from lamina.core.wording import Wording
from lamina.errors import BadInput

UNANSWERED = "[no result was recorded for this call]"
"""What the model reads as the result of a call that has none."""

ANSWERED = "answered by lamina"
ENDED = "a request ended here, with calls that lamina answered"
"""What the ledger says about a repair."""

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that some provider refuses in an id: `call:1/a` becomes `call_1_a`."""


class Repairs(msgspec.Struct, frozen=True, kw_only=True):
    """What to repair beyond the default, for a dialect's rules or for compatibility with another system.

    `duplicates` says which of several results of one call is sent; only "first" keeps what was sent before.
    `dangling`: a call without a result is answered, or left out. `late`: a result that does not follow its
    call is appended as content, or left out. `unique_ids`: ids are unique in one message, or in the whole
    log. `id_pattern`: ids that do not match it are renamed. `merge`: adjacent messages of one role become
    one. `strip_tags` removes spans of these tags.
    """

    duplicates: Literal["first", "last"] = "first"
    dangling: Literal["answer", "omit"] = "answer"
    late: Literal["append", "omit"] = "append"
    unique_ids: Literal["", "message", "log"] = ""
    id_pattern: str = ""
    merge: bool = False
    strip_tags: tuple[str, ...] = ()


AS_IS = Repairs()


class ScanMemory(msgspec.Struct):
    """What a scan must remember of the log before it.

    `names` are those of the segments so far. The ids of the calls are in `settled_ids`, which never changes,
    and those that came since in `ids`. `side` says whose message is being written.
    """

    names: SegmentNames = msgspec.field(default_factory=SegmentNames)
    settled_ids: frozenset[str] = frozenset()
    ids: set[str] = set()
    side: str = ""

    def has_id(self, call_id: str) -> bool:
        """Whether a call had this id."""
        return call_id in self.ids or call_id in self.settled_ids

    def copy(self) -> ScanMemory:
        """A memory of its own for another scan, which changes nothing in this one."""
        settled_ids = self.settled_ids
        ids = set(self.ids)
        if len(ids) >= SETTLED_AT:
            settled_ids = settled_ids | ids
            ids = set()
        return ScanMemory(names=self.names.copy(), settled_ids=settled_ids, ids=ids, side=self.side)


def find_side(role: Role) -> str:
    """Whose message it is on the wire: results stand on the user's side.

    A result after a user's message therefore goes on with the same message, unless the log says otherwise.
    """
    if role is Role.TOOL:
        return "user"
    return role.value


class LogScan:
    """One pass over a log.

    `entries` are all in full or omitted with a reason, and `new_repairs` are new to the ledger. `memory`
    says what to remember of the log before, and is brought up to date. With `keep_users`, the entries of the
    user's messages are pinned.

    `waiting` has the position of each call that may still get a result, with the position of that result
    once it came. `calls` tells which of them the next result answers. `deferred` are entries that may not
    stand between a call and its result: they follow, in their order, when no more results can come.
    `after_deferred`: one of them came last.
    `last_segment` came last, sent or not.
    """

    def __init__(
        self,
        ledger: Ledger,
        wording: Wording,
        repairs: Repairs,
        memory: ScanMemory,
        *,
        keep_users: bool = False,
    ) -> None:
        self.keep_users = keep_users
        self.ledger = ledger
        self.wording = wording
        self.repairs = repairs
        self.memory = memory
        self.entries: list[Entry] = []
        self.new_repairs: dict[Ref, str] = {}
        self.waiting: dict[int, int | None] = {}
        self.calls = WaitingCalls()
        self.deferred: list[Entry] = []
        self.after_deferred = False
        self.last_segment: Segment | None = None
        self.id_pattern = re.compile(repairs.id_pattern) if repairs.id_pattern else None

    def take_all(self, log: Iterable[Segment], *, ends: bool = False) -> None:
        """Add a piece of the log, and answer what it leaves open. `ends`: the request ends with it."""
        for segment in log:
            self.take(segment)
        if ends:
            self.note_end()
        self.close()

    def take(self, segment: Segment) -> None:
        """Add the next segment of the log.

        If an earlier request ended before this segment, within one message of the model, the answers to its
        calls come first, and the segment opens a new message.
        """
        entry = self._identify(segment)
        goes_on = entry.role is Role.ASSISTANT and not entry.opens
        if goes_on and self._awaits_results() and self._request_ended_here():
            self.close()
            entry = msgspec.structs.replace(entry, opens=True)
        self._take_entry(entry)
        self.last_segment = segment

    def _take_entry(self, entry: Entry) -> None:
        """Add an entry by what it is: a result, a blank message, a call, or a message."""
        match entry.parts[:1]:
            case (ToolResult() as result,):
                self._take_result(entry, result)
            case _ if self._is_blank(entry):
                self._omit(entry, "empty")
            case (ToolCall() as call,):
                self._take_call(entry, call)
            case _ if entry.role is Role.ASSISTANT:
                if entry.opens:
                    self.close()
                self._append(entry)
            case _:
                self._take_message(entry)

    def close(self) -> None:
        """End the place for results: answer, or leave out, each call that got none."""
        if not self.waiting and not self.deferred:
            return
        unanswered = [call_at for call_at, result_at in self.waiting.items() if result_at is None]
        for call_at in unanswered:
            call = self.entries[call_at]
            if self.repairs.dangling == "omit":
                self.entries[call_at] = omit(call, "call without a result")
                self._note(call.ref, "call without a result left out")
            else:
                self._answer(call)
        self.waiting.clear()
        self.calls = WaitingCalls()
        # Emptied first: no result is awaited any more when what was put aside is appended.
        deferred = self.deferred
        self.deferred = []
        for entry in deferred:
            if isinstance(entry.parts[0], ToolResult):
                self._take_late_result(entry, entry.parts[0])
            else:
                self._append(entry)

    def note_end(self) -> None:
        """Remember that a request ends with calls that are answered: the model goes on after the answers.

        If the real results come later, the log does not show where that request ended. The ledger does.
        """
        if self.repairs.dangling != "answer" or not self._awaits_results():
            return
        if self._waits_for_others():
            return
        last = find_last_sent(self.entries)
        if last is not None and last.role is Role.ASSISTANT:
            self._note(Ref(f"{last.ref}:end"), ENDED)

    def _waits_for_others(self) -> bool:
        """Whether something other than system text was put aside until the results are there."""
        return any(entry.role is not Role.SYSTEM for entry in self.deferred)

    def _identify(self, segment: Segment) -> Entry:
        """The segment as an entry with its ref, in full."""
        _validate(segment)
        sent = parts_digest(segment.role, segment.parts)
        named = self.memory.names.name(segment, sent)
        if self.keep_users and is_users_message(self.wording.kinds, segment):
            segment = msgspec.structs.replace(segment, pinned=True)
        entry = Entry(
            segment=segment,
            ref=named.ref,
            content=named.content,
            role=segment.role,
            parts=segment.parts,
            sent=sent,
            opens=self._opens_message(segment),
            why=IN_FULL,
        )
        if self.repairs.strip_tags:
            return _strip_entry(entry, self.repairs.strip_tags)
        return entry

    def _opens_message(self, segment: Segment) -> bool:
        """Whether a segment begins a message, given whose message stands before it.

        A segment that joins continues the message before it only if both are of one side.
        """
        if self.repairs.merge:
            return self.memory.side != segment.role.value
        if not segment.joins:
            return True
        before = self.memory.side
        # What was put aside came last in the log, so a segment that joins goes on with that. A result does
        # not: it goes to its call.
        if self.deferred and self.after_deferred and not begins_with(segment.parts, ToolResult):
            before = find_side(self.deferred[-1].role)
        return before != find_side(segment.role)

    def _is_blank(self, entry: Entry) -> bool:
        """Whether there is nothing to send. With tags around everything, only an entry without parts is.

        Every provider refuses a message of white space. System text with a key may be a section that was
        emptied: then a note stands in its place, or nothing (see `system_text`).
        """
        if entry.role is Role.SYSTEM and entry.segment.key:
            return False
        if self.wording.tagged and entry.parts:
            return False
        return is_empty(entry.parts)

    def _request_ended_here(self) -> bool:
        """Whether an earlier request ended after the last entry that is sent, as the ledger remembers it."""
        last = find_last_sent(self.entries)
        return last is not None and f"{last.ref}:end" in self.ledger.repairs

    def _continues_after_system_text(self) -> bool:
        """Whether a call comes while others wait, and only system text was put between it and them.

        If an earlier request ended there, its calls are answered, and the model goes on after the answers.
        The same holds if a blank message stood between them: it is left out, and ended the message before it.
        """
        last = self.last_segment
        if last is None or not self.deferred or not self.waiting or self._waits_for_others():
            return False
        if last.role is not Role.SYSTEM and not is_empty(last.parts):
            return False
        has_result = any(self.waiting.values())
        if has_result or self._request_ended_here():
            return False
        return bool(self.memory.side)

    def _awaits_results(self) -> bool:
        """Whether some call has no result yet, so that a result may still come for it."""
        return any(result_at is None for result_at in self.waiting.values())

    def _take_message(self, entry: Entry) -> None:
        """Take what the user's side or the system says. It may not stand between a call and its result.

        While results may still come, it waits, so that none of them is cut off from its call.
        """
        if self._awaits_results() and self.repairs.late == "append":
            self._defer(entry)
        else:
            self.close()
            self._append(entry)

    def _defer(self, entry: Entry) -> None:
        """Put an entry aside until no more results can come."""
        self.deferred.append(entry)
        self.after_deferred = True

    def _append(self, entry: Entry) -> int:
        """Append an entry that is sent, and return its position."""
        self.after_deferred = False
        self.memory.side = entry.role.value if self.repairs.merge else find_side(entry.role)
        self.entries.append(entry)
        return len(self.entries) - 1

    def _omit(self, entry: Entry, why: str) -> None:
        """Add an entry that cannot be sent, with the reason.

        It stays in its place, so that the request can be explained and the segment recalled.
        """
        is_aside = entry.role is Role.SYSTEM and self._awaits_results()
        if is_aside or self._continues_after_system_text():
            # The model's message may go on after this entry.
            entry = msgspec.structs.replace(entry, opens=False)
        if entry.opens and not self.repairs.merge:
            # What was to continue this message must not continue the one before it.
            self.memory.side = ""
        self.entries.append(omit(entry, why))
        self._note(entry.ref, why)

    def _note(self, ref: Ref, what: str) -> None:
        """Record a repair, if the ledger does not have it already.

        A repair that is made again, as it is in every later build, is no news.
        """
        if self.ledger.repairs.get(ref) != what:
            self.new_repairs[ref] = what

    def _take_call(self, entry: Entry, call: ToolCall) -> None:
        """Take a call, with an id that the provider accepts, and wait for its result."""
        if self._continues_after_system_text():
            entry = msgspec.structs.replace(entry, opens=False)
        elif entry.opens:
            self.close()
        call_id = self._choose_id(entry, call)
        if call_id != call.id:
            entry = _repair_parts(entry, (ToolCall(id=call_id, name=call.name, arguments=call.arguments),))
            self._note(Ref(f"{entry.ref}:id"), f"id renamed to {call_id}")
        at = self._append(entry)
        self.waiting[at] = None
        self.calls.add(at, call.id, call.name)

    def _choose_id(self, entry: Entry, call: ToolCall) -> str:
        """The call's own id, or one derived from the call alone, so that later calls cannot change it.

        `call:1/a` becomes `call_1_a_` and eight hex digits for a provider that refuses colons in ids.
        """
        is_bad = self.id_pattern is not None and not self.id_pattern.fullmatch(call.id)
        is_taken = False
        if self.repairs.unique_ids == "log":
            is_taken = self.memory.has_id(call.id)
        elif self.repairs.unique_ids == "message":
            is_taken = self.calls.has_id(call.id)
        self.memory.ids.add(call.id)
        if not is_bad and not is_taken:
            return call.id
        safe = _NOT_IN_IDS.sub("_", call.id)[:40] or "call"
        return f"{safe}_{sha256(entry.ref.encode()).hexdigest()[:8]}"

    def _take_result(self, entry: Entry, result: ToolResult) -> None:
        """Take a result: the first or a second one of a call, or one that came late.

        While other calls wait, a result that belongs to none of them is put aside: it may not stand among
        theirs.
        """
        call_at = self.calls.take(result.id, result.name)
        if call_at is not None:
            self._take_first_result(entry, result, call_at)
            return
        answered_at = self.calls.find_answered(result.id, result.name)
        if answered_at is not None and self.waiting[answered_at] is not None:
            self._take_second_result(entry, result, answered_at)
        elif self.waiting:
            self._defer(entry)
        else:
            self._take_late_result(entry, result)

    def _take_first_result(self, entry: Entry, result: ToolResult, call_at: int) -> None:
        """Take the first result of a call, unless an earlier request has answered it: that answer stays."""
        if self.ledger.repairs.get(self.entries[call_at].ref) == ANSWERED:
            self._defer(entry)
        else:
            self.waiting[call_at] = self._append(self._pair_with_call(entry, result, call_at))

    def _pair_with_call(self, entry: Entry, result: ToolResult, call_at: int) -> Entry:
        """The result with the id under which its call is sent."""
        call = self.entries[call_at].parts[0]
        if not isinstance(call, ToolCall):
            return entry
        if call.id != result.id:
            renamed = ToolResult(id=call.id, content=result.content, name=result.name, error=result.error)
            entry = _repair_parts(entry, (renamed,))
        return msgspec.structs.replace(entry, asked=call)

    def _take_second_result(self, entry: Entry, result: ToolResult, call_at: int) -> None:
        """Take another result of a call that has one. Only one of them is sent."""
        if self.repairs.duplicates == "first":
            self._omit(entry, "duplicate result: an earlier one stands")
            return
        first_at = self.waiting[call_at] or 0
        first = self.entries[first_at]
        self.entries[first_at] = omit(first, "duplicate result: a later one stands")
        self._note(first.ref, "duplicate result")
        self.waiting[call_at] = self._append(self._pair_with_call(entry, result, call_at))

    def _take_late_result(self, entry: Entry, result: ToolResult) -> None:
        """Take a result with no call beside it: as content if its call was here, otherwise it is left out.

        It is quoted in the model's voice, since what a tool said is never said in the user's. A line of the
        user's side ends it: no provider takes a request that ends with the model.
        """
        if self.repairs.late == "omit" or not self.memory.has_id(result.id):
            self._omit(entry, "result without its call")
            return
        late = msgspec.structs.replace(entry, role=Role.ASSISTANT, why="late result, as content", opens=True)
        self._note(entry.ref, "late result appended as content")
        self._append(_repair_parts(late, self.wording.late(result)))
        self._append(make_closing_line(f"{entry.ref}!end", "[end of the late result]"))

    def _answer(self, call: Entry) -> None:
        """Answer a call that has no result, and record it.

        The answer stands on the user's side, so whatever joins it continues that side's message.
        """
        self._note(call.ref, ANSWERED)
        self.entries.append(_make_answer(call))
        self.memory.side = "tool" if self.repairs.merge else "user"


def _repair_parts(entry: Entry, parts: tuple[Part, ...]) -> Entry:
    """The entry with repaired parts. Its segment stays as it is in the log."""
    repaired = msgspec.structs.replace(entry.segment, role=entry.role, parts=parts)
    return msgspec.structs.replace(entry, parts=parts, sent=parts_digest(entry.role, parts), mended=repaired)


def _make_answer(call_entry: Entry) -> Entry:
    call = call_entry.parts[0]
    if not isinstance(call, ToolCall):
        raise TypeError(call)
    result = ToolResult(id=call.id, content=(Text(UNANSWERED),), name=call.name, error=True)
    segment = Segment(
        role=Role.TOOL, kind="tool_result", parts=(result,), key=f"{call_entry.ref}!", origin=OWN_ORIGIN
    )
    return make_own_entry(segment, "answers a call that has no result")


def _validate(segment: Segment) -> None:
    """Raise BadInput if a tool call or result shares its segment, or has a role that cannot hold it.

    Everything after this relies on a call or a result being the only part of its segment.
    """
    tool_parts = [part for part in segment.parts if isinstance(part, ToolCall | ToolResult)]
    if not tool_parts:
        return
    place = f"segment {segment.key!r}"
    if len(segment.parts) > 1:
        hint = "give each its own segment, joined with joins=True"
        raise BadInput("a tool call or result shares its segment with other parts", place=place, hint=hint)
    allowed: tuple[Role, ...] = (Role.TOOL, Role.USER)
    if isinstance(tool_parts[0], ToolCall):
        allowed = (Role.ASSISTANT,)
    if segment.role not in allowed:
        part_name = tool_parts[0].__class__.__name__
        raise BadInput(
            f"role {segment.role.value!r} cannot hold a {part_name}",
            place=place,
            hint=f"give it role {allowed[0].value!r}",
        )


def _strip_entry(entry: Entry, tags: tuple[str, ...]) -> Entry:
    """The entry without spans of these tags.

    Its segment stays as it is in the log, so that the text can be recalled.
    """
    stripped = tuple(_strip_part(part, tags) for part in entry.parts)
    if stripped == entry.parts:
        return entry
    return _repair_parts(entry, stripped)


def _strip_part(part: Any, tags: tuple[str, ...]) -> Any:
    """A part without these spans; of a result, each piece of its content. Arguments of calls stay."""
    match part:
        case Text(text):
            return Text(strip_tags(text, tags))
        case ToolResult(content=content):
            inner = tuple(_strip_part(piece, tags) for piece in content)
            return msgspec.structs.replace(part, content=inner)
    return part
