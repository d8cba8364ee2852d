"""A well-formed log: what every provider would refuse is mended, reported, and mended the same way again.

Repair looks at structure only: calls and their results, ids, empty messages. It pairs a result with
its call by position and id, since ids are not unique in the wild. Nothing is dropped silently: a
segment that cannot be sent becomes an entry with a reason. What repair did once, the ledger keeps, so
a result that arrives after lamina answered for it is new content, never a changed past.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Literal

import msgspec

from lamina.core.hashing import content_digest, parts_digest
from lamina.core.hashing import ref as make_ref
from lamina.core.text.characters import is_blank
from lamina.core.text.tags import strip_tags
from lamina.core.values import (
    Digest,
    Entry,
    Form,
    Ledger,
    Part,
    Ref,
    Role,
    Segment,
    Text,
    ToolCall,
    ToolResult,
)
from lamina.core.wording import Wording
from lamina.errors import BadInput

UNANSWERED = "[no result was recorded for this call]"
ANSWERED = "answered by lamina"
ENDED = "a request ended here, with calls that lamina answered"


class Repairs(msgspec.Struct, frozen=True, kw_only=True):
    """What to mend beyond the default, for a dialect's rules or for compatibility with another system.

    `duplicates` says which of several results of one call stands; only "first" keeps what was sent.
    `dangling`: a call without a result is answered, or left out. `late`: a result that stands away
    from its call is appended as content, or left out. `unique_ids`: in one message, or in the whole
    log. `id_pattern`: ids that do not match are renamed. `merge`: adjacent messages of one role become
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

    How often each ref and each call id has occurred, the content of the last segment that is not system
    text, and whose message is being written.
    """

    refs: dict[str, int] = {}
    ids: dict[str, int] = {}
    content: Digest = Digest("")
    side: str = ""

    def copy(self) -> ScanMemory:
        return ScanMemory(refs=dict(self.refs), ids=dict(self.ids), content=self.content, side=self.side)


def repair(
    log: Iterable[Segment],
    ledger: Ledger,
    *,
    wording: Wording,
    repairs: Repairs = AS_IS,
    seen: ScanMemory | None = None,
    ends: bool = True,
) -> tuple[list[Entry], dict[Ref, str]]:
    """Entries for a log, all in full or omitted with a reason, and the repairs that are new to the ledger.

    `ends`: the request ends with this log; else more of it follows.
    """
    scan = _Scan(ledger, wording, repairs, seen if seen is not None else ScanMemory())
    for segment in log:
        scan.take(segment)
    if ends:
        scan.note_end()
    scan.close()
    return scan.entries, scan.lines


def side(role: Role) -> str:
    """Whose message it is on the wire: results stand on the user's side."""
    return "user" if role is Role.TOOL else role.value


class _Scan:
    """One pass over the log.

    `waiting` has the position of each call whose place for a result is still open, and the position of its
    result once that came. `deferred` are entries that may not stand between a call and its result: they
    follow, in their order, when the place for results is over. `after_deferred`: one of them came last;
    `after_aside`: system text or a blank message did.
    """

    def __init__(self, ledger: Ledger, wording: Wording, repairs: Repairs, seen: ScanMemory) -> None:
        self.ledger = ledger
        self.wording = wording
        self.repairs = repairs
        self.seen = seen
        self.entries: list[Entry] = []
        self.lines: dict[Ref, str] = {}
        self.waiting: dict[int, int | None] = {}
        self.unanswered: dict[str, deque[int]] = {}
        self.answered: dict[str, int] = {}
        self.deferred: list[Entry] = []
        self.after_deferred = False
        self.after_aside = False
        self.pattern = re.compile(repairs.id_pattern) if repairs.id_pattern else None

    def take(self, segment: Segment) -> None:
        entry = self._identify(segment)
        if self._goes_on_after_an_end(entry):
            self.close()
            entry = msgspec.structs.replace(entry, opens=True)
        first = entry.parts[0] if entry.parts else None
        if isinstance(first, ToolResult):
            self._take_result(entry, first)
        elif empty(entry.parts) and not (self.wording.tagged and entry.parts):
            self._omit(entry, "empty")
        elif isinstance(first, ToolCall):
            if self._goes_on_after_system_text():
                entry = msgspec.structs.replace(entry, opens=False)
            elif entry.opens:
                self.close()
            self._take_call(entry, first)
        elif entry.role is Role.ASSISTANT:
            if entry.opens:
                self.close()
            self._keep(entry)
        else:
            self._take_message(entry)
        self.after_aside = segment.role is Role.SYSTEM or empty(segment.parts)

    def close(self) -> None:
        """The place for results is over: answer, or leave out, each call that got none."""
        for call_at in [at for at, result_at in self.waiting.items() if result_at is None]:
            call = self.entries[call_at]
            if self.repairs.dangling == "omit":
                self.entries[call_at] = omitted(call, "call without a result")
                self._note(call.ref, "call without a result left out")
            else:
                self._answer(call)
        self.waiting.clear()
        self.unanswered.clear()
        self.answered.clear()
        deferred = self.deferred
        self.deferred = []
        for entry in deferred:
            if isinstance(entry.parts[0], ToolResult):
                self._take_late_result(entry, entry.parts[0])
            else:
                self._keep(entry)

    def note_end(self) -> None:
        """Remembers that a request ends with calls that are answered: the model goes on after the answers."""
        if not self._awaits_results() or self.repairs.dangling == "omit":
            return
        if any(entry.role is not Role.SYSTEM for entry in self.deferred):
            return
        last = self._last_sent()
        if last is not None and last.role is Role.ASSISTANT:
            self._note(Ref(f"{last.ref}:end"), ENDED)

    def _goes_on_after_an_end(self, entry: Entry) -> bool:
        """Whether an earlier request ended just before this, within the model's message."""
        if entry.opens or entry.role is not Role.ASSISTANT or not self._awaits_results():
            return False
        return self._ended_here()

    def _ended_here(self) -> bool:
        last = self._last_sent()
        return last is not None and f"{last.ref}:end" in self.ledger.repairs

    def _goes_on_after_system_text(self) -> bool:
        """Whether a call comes while others wait, and only system text was put between it and them.

        If an earlier request ended there, its calls are answered, and the model goes on after the answers.
        """
        no_result_yet = bool(self.waiting) and not any(self.waiting.values())
        if not self.after_aside or not no_result_yet or not self.deferred or self._ended_here():
            return False
        return all(entry.role is Role.SYSTEM for entry in self.deferred)

    def _awaits_results(self) -> bool:
        return any(result_at is None for result_at in self.waiting.values())

    def _last_sent(self) -> Entry | None:
        return next((entry for entry in reversed(self.entries) if entry.form is not Form.OMITTED), None)

    def _take_message(self, entry: Entry) -> None:
        """What the user's side or the system says. Nothing may stand between a call and its result."""
        if self._awaits_results() and self.repairs.late == "append":
            self._defer(entry)
        else:
            self.close()
            self._keep(entry)

    def _identify(self, segment: Segment) -> Entry:
        _validate(segment)
        whole = parts_digest(segment.role, segment.parts)
        content = content_digest(segment, whole)
        before = self.seen.content
        if segment.role is not Role.SYSTEM:
            self.seen.content = content
        first_ref = make_ref(segment, content, before, 0)
        nth = self.seen.refs.get(first_ref, 0)
        self.seen.refs[first_ref] = nth + 1
        entry = Entry(
            segment=segment,
            ref=make_ref(segment, content, before, nth),
            content=content,
            role=segment.role,
            parts=segment.parts,
            sent=whole,
            opens=self._opens(segment),
            why="in full",
        )
        return _stripped(entry, self.repairs.strip_tags) if self.repairs.strip_tags else entry

    def _opens(self, segment: Segment) -> bool:
        """Whether a segment begins a message, given whose message stands before it."""
        if self.repairs.merge:
            return self.seen.side != segment.role.value
        before = self.seen.side
        is_result = bool(segment.parts) and isinstance(segment.parts[0], ToolResult)
        if self.deferred and self.after_deferred and not is_result:
            before = side(self.deferred[-1].role)
        return not (segment.joins and before == side(segment.role))

    def _defer(self, entry: Entry) -> None:
        self.deferred.append(entry)
        self.after_deferred = True

    def _keep(self, entry: Entry) -> int:
        self.after_deferred = False
        self.seen.side = entry.role.value if self.repairs.merge else side(entry.role)
        self.entries.append(entry)
        return len(self.entries) - 1

    def _omit(self, entry: Entry, why: str) -> None:
        is_aside = entry.role is Role.SYSTEM and self._awaits_results()
        if is_aside or self._goes_on_after_system_text():
            entry = msgspec.structs.replace(entry, opens=False)  # the model's message may go on after it
        if entry.opens and not self.repairs.merge:
            self.seen.side = ""  # what was to continue this message must not continue the one before
        self.entries.append(omitted(entry, why))
        self._note(entry.ref, why)

    def _note(self, ref: Ref, what: str) -> None:
        if self.ledger.repairs.get(ref) != what:
            self.lines[ref] = what

    def _take_call(self, entry: Entry, call: ToolCall) -> None:
        name = self._safe_id(entry, call)
        if name != call.id:
            entry = _with_parts(entry, (ToolCall(id=name, name=call.name, arguments=call.arguments),))
            self._note(Ref(f"{entry.ref}:id"), f"id renamed to {name}")
        at = self._keep(entry)
        self.waiting[at] = None
        self.unanswered.setdefault(call.id, deque()).append(at)

    def _safe_id(self, entry: Entry, call: ToolCall) -> str:
        """The call's own id, or one derived from the call alone, so that later calls cannot change it."""
        bad = self.pattern is not None and not self.pattern.fullmatch(call.id)
        ids_in_use = self.seen.ids if self.repairs.unique_ids == "log" else self.unanswered
        taken = bool(self.repairs.unique_ids) and call.id in ids_in_use
        self.seen.ids[call.id] = self.seen.ids.get(call.id, 0) + 1
        if not bad and not taken:
            return call.id
        stem = re.sub(r"[^A-Za-z0-9_-]", "_", call.id)[:40] or "call"
        return f"{stem}_{sha256(entry.ref.encode()).hexdigest()[:8]}"

    def _take_result(self, entry: Entry, result: ToolResult) -> None:
        if self.unanswered.get(result.id):
            self._take_first_result(entry, result, self.unanswered[result.id].popleft())
        elif result.id in self.answered:
            call_at = self.answered[result.id]
            self._take_second_result(entry, result, call_at, self.waiting[call_at] or 0)
        elif self.waiting:
            self._defer(entry)
        else:
            self._take_late_result(entry, result)

    def _take_first_result(self, entry: Entry, result: ToolResult, call_at: int) -> None:
        """The first result of a call, unless an earlier request has answered it: that answer stays."""
        if self.ledger.repairs.get(self.entries[call_at].ref) == ANSWERED:
            self._defer(entry)
        else:
            self.waiting[call_at] = self._keep(self._paired(entry, result, call_at))
            self.answered[result.id] = call_at

    def _paired(self, entry: Entry, result: ToolResult, call_at: int) -> Entry:
        call = self.entries[call_at].parts[0]
        if not isinstance(call, ToolCall):
            return entry
        if call.id != result.id:
            renamed = ToolResult(id=call.id, content=result.content, name=result.name, error=result.error)
            entry = _with_parts(entry, (renamed,))
        return msgspec.structs.replace(entry, asked=call)

    def _take_second_result(self, entry: Entry, result: ToolResult, call_at: int, answer_at: int) -> None:
        first = self.entries[answer_at]
        if self.repairs.duplicates == "last":
            self.entries[answer_at] = omitted(first, "duplicate result: a later one stands")
            self._note(first.ref, "duplicate result")
            self.waiting[call_at] = self._keep(self._paired(entry, result, call_at))
        else:
            self._omit(entry, "duplicate result: an earlier one stands")

    def _take_late_result(self, entry: Entry, result: ToolResult) -> None:
        """A result with no call beside it: content of its own if its call was here, else left out.

        It is quoted in the model's voice, since what a tool said is never said in the user's. A line of the
        user's side ends it: no provider takes a request that ends with the model.
        """
        if self.repairs.late == "omit" or result.id not in self.seen.ids:
            self._omit(entry, "result without its call")
            return
        parts = self.wording.late(result)
        late = msgspec.structs.replace(entry, role=Role.ASSISTANT, why="late result, as content", opens=True)
        self._note(entry.ref, "late result appended as content")
        self._keep(_with_parts(late, parts))
        self._keep(closing_line(f"{entry.ref}!end", "[end of the late result]"))

    def _answer(self, call: Entry) -> None:
        self._note(call.ref, ANSWERED)
        self.entries.append(_placeholder(call))
        self.seen.side = "tool" if self.repairs.merge else "user"


def closing_line(key: str, text: str, *, kind: str = "user", **place: Any) -> Entry:
    """A line of lamina's own on the user's side, after what was quoted in the model's voice."""
    segment = Segment(role=Role.USER, kind=kind, parts=(Text(text),), key=key, origin="lamina")
    return own(segment, "ends what was quoted before it", **place)


def omitted(entry: Entry, why: str) -> Entry:
    return msgspec.structs.replace(entry, form=Form.OMITTED, parts=(), sent="", tokens=0, why=why)


def _with_parts(entry: Entry, parts: tuple[Part, ...]) -> Entry:
    """The entry with mended parts; its segment stays what the log has."""
    mended = msgspec.structs.replace(entry.segment, role=entry.role, parts=parts)
    return msgspec.structs.replace(entry, parts=parts, sent=parts_digest(entry.role, parts), mended=mended)


def _placeholder(call: Entry) -> Entry:
    sent = call.parts[0]
    if not isinstance(sent, ToolCall):
        raise TypeError(sent)
    result = ToolResult(id=sent.id, content=(Text(UNANSWERED),), name=sent.name, error=True)
    segment = Segment(
        role=Role.TOOL, kind="tool_result", parts=(result,), key=f"{call.ref}!", origin="lamina"
    )
    return own(segment, "answers a call that has no result")


def own(segment: Segment, why: str, **place: Any) -> Entry:
    """An entry of lamina's own, for a segment that no log has; its key is its ref."""
    sent = parts_digest(segment.role, segment.parts)
    return Entry(
        segment=segment,
        ref=Ref(segment.key),
        content=content_digest(segment, sent),
        role=segment.role,
        parts=segment.parts,
        sent=sent,
        why=why,
        **place,
    )


def _validate(segment: Segment) -> None:
    special = [part for part in segment.parts if isinstance(part, ToolCall | ToolResult)]
    if not special:
        return
    place = f"segment {segment.key!r}"
    if len(segment.parts) > 1:
        hint = "give each its own segment, joined with joins=True"
        raise BadInput("a tool call or result shares its segment with other parts", place=place, hint=hint)
    wanted = (Role.ASSISTANT,) if isinstance(special[0], ToolCall) else (Role.TOOL, Role.USER)
    if segment.role not in wanted:
        hint = f"give it role {wanted[0].value!r}"
        raise BadInput(
            f"role {segment.role.value!r} cannot hold a {special[0].__class__.__name__}",
            place=place,
            hint=hint,
        )


def empty(parts: tuple[Part, ...]) -> bool:
    return all(isinstance(part, Text) and is_blank(part.text) for part in parts)


def _stripped(entry: Entry, tags: tuple[str, ...]) -> Entry:
    stripped = tuple(_without(part, tags) for part in entry.parts)
    return entry if stripped == entry.parts else _with_parts(entry, stripped)


def _without(part: Any, tags: tuple[str, ...]) -> Any:
    match part:
        case Text(text):
            return Text(strip_tags(text, tags))
        case ToolResult(content=content):
            inner = tuple(_without(piece, tags) for piece in content)
            return msgspec.structs.replace(part, content=inner)
    return part
