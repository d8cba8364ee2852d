"""Entries of a request: leaving out, adding lamina's own, finding what is sent; their turns and steps.

A turn begins when the user's side puts something in after the model spoke. A step is one message of the
assistant with its results, or what the user said before it. The second half of this file says to which turn,
step and layer an entry belongs, and what leaves when a turn is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import UnionType
from typing import Any

import msgspec

from lamina.core.hashing import content_digest, digest, parts_digest
from lamina.core.kinds import Kinds, is_section, is_turn_scoped, kind_of
from lamina.core.layout import Layout
from lamina.core.text.characters import is_blank
from lamina.core.values import (
    OWN_ORIGIN,
    Digest,
    Entry,
    Form,
    Layer,
    Part,
    Ref,
    Role,
    Segment,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

VERBATIM_LIMIT = 2_000
"""Characters of a user's message that a digest quotes word for word. Of longer ones it quotes both ends."""


def omit(entry: Entry, why: str) -> Entry:
    """The entry, left out of the request for this reason."""
    return msgspec.structs.replace(entry, form=Form.OMITTED, parts=(), sent="", tokens=0, why=why)


def omit_by_ref(entries: Iterable[Entry], reasons: Mapping[Ref, str]) -> list[Entry]:
    """The entries, of which those with a reason are left out."""
    result: list[Entry] = []
    for entry in entries:
        why = reasons.get(entry.ref)
        if why is not None:
            entry = omit(entry, why)  # noqa: PLW2901
        result.append(entry)
    return result


def find_sent(entries: Iterable[Entry]) -> list[Entry]:
    """The entries that are sent: those that have a form above OMITTED."""
    return [entry for entry in entries if entry.form is not Form.OMITTED]


def find_logged(entries: Iterable[Entry]) -> list[Entry]:
    """The entries that came from the log, in the order of the stream, without lamina's own."""
    return [entry for entry in entries if not entry.segment.is_own]


def find_attachments(entries: Iterable[Entry], kinds: Kinds) -> list[Entry]:
    """The attachments among these entries, in their order."""
    return [entry for entry in entries if is_attachment(entry, kinds)]


def is_attachment(entry: Entry, kinds: Kinds) -> bool:
    """Whether lamina placed this entry next to a message, so that equal content may become a reference."""
    return kind_of(kinds, entry.segment).attachment


def identify_attachment(entry: Entry) -> Digest:
    """What makes two attachments one thing: the same name and the same words.

    The kind does not matter: a file that one door reads as a note is plain text to another.
    """
    segment = entry.segment
    if not segment.key:
        return entry.content
    return digest((segment.key, parts_digest(segment.role, segment.parts)))


def may_repeat(entry: Entry) -> bool:
    """Whether an attachment is sent in full even if equal content stands above it.

    What stands above a pinned one may be lowered. With `meta["override"]` the caller asks for it.
    """
    return entry.segment.pinned or bool(entry.segment.meta.get("override"))


def index_by_ref(entries: Iterable[Entry]) -> dict[Ref, int]:
    """The position of each entry, by its ref."""
    return {entry.ref: at for at, entry in enumerate(entries)}


def is_message(entry: Entry) -> bool:
    """Whether an entry is sent, and is not system text."""
    return entry.form is not Form.OMITTED and entry.role is not Role.SYSTEM


def count_sent(entries: Iterable[Entry]) -> int:
    """How many of the entries are sent."""
    return sum(entry.form is not Form.OMITTED for entry in entries)


def find_last_sent(entries: Sequence[Entry]) -> Entry | None:
    """The last entry that is sent; None if nothing is.

    It says whose message is being written when more entries follow.
    """
    for entry in reversed(entries):
        if entry.form is not Form.OMITTED:
            return entry
    return None


def find_position(entries: Sequence[Entry], ref: Ref | None) -> int:
    """The position of the entry with this ref; the end if there is none.

    The end is also where an entry would stand that is still to come.
    """
    for at, entry in enumerate(entries):
        if entry.ref == ref:
            return at
    return len(entries)


def find_last_turn(entries: Sequence[Entry]) -> int:
    """The turn in which these entries end; 0 if there are none."""
    if not entries:
        return 0
    return entries[-1].turn


def is_long_message(entry: Entry) -> bool:
    """Whether an entry is a message of the user that a digest would have to shorten."""
    if entry.segment.kind != "user" or not is_text_alone(entry):
        return False
    return count_characters(entry) > VERBATIM_LIMIT


def is_users_text(entry: Entry) -> bool:
    """Whether an entry is a message that the user typed: text alone, and no attachment."""
    segment = entry.segment
    if segment.kind != "user" or segment.role is not Role.USER or segment.is_own:
        return False
    return all(isinstance(part, Text) for part in segment.parts)


def is_text_alone(entry: Entry) -> bool:
    """Whether an entry is text and nothing else.

    Parts that are sent as something else cannot stand in a digest word for word.
    """
    return all(isinstance(part, Text) for part in (*entry.segment.parts, *entry.parts))


def count_characters(entry: Entry) -> int:
    """Characters of the text of an entry."""
    return sum(len(part.text) for part in entry.segment.parts if isinstance(part, Text))


def find_first_answer(entries: Sequence[Entry]) -> int:
    """The position of the model's first message; the number of entries if it has not answered yet."""
    for position, entry in enumerate(entries):
        if entry.role is Role.ASSISTANT:
            return position
    return len(entries)


def find_prefix(entries: Sequence[Entry], root: Digest) -> Digest:
    """The hash of the stream up to the end of these entries; `root` if there are none."""
    if not entries:
        return root
    return entries[-1].prefix


def make_own_entry(segment: Segment, why: str, **place: Any) -> Entry:
    """An entry of lamina's own, for a segment that is in no log. Its key is its ref."""
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


def make_closing_line(key: str, text: str, *, kind: str = "user", **place: Any) -> Entry:
    """A line of lamina's own on the user's side, after what was quoted in the model's voice."""
    segment = Segment(role=Role.USER, kind=kind, parts=(Text(text),), key=key, origin=OWN_ORIGIN)
    return make_own_entry(segment, "ends what was quoted before it", **place)


def begins_with(parts: tuple[Part, ...], part_type: type | UnionType) -> bool:
    """Whether the first part is of this type. Calls, results and thinking are the only part of theirs.

    So the first part says what a whole entry is.
    """
    return bool(parts) and isinstance(parts[0], part_type)


def is_empty(parts: tuple[Part, ...]) -> bool:
    """Whether parts have nothing to send: there are none, or only blank text.

    A message of white space counts as empty, since every provider refuses it.
    """
    return all(isinstance(part, Text) and is_blank(part.text) for part in parts)


def pair_calls(entries: Sequence[Entry]) -> list[tuple[int, int]]:
    """Positions of each call that is sent and of its result."""
    first_parts = [entry.parts[0] if entry.parts else None for entry in entries]
    return pair_parts(first_parts)


def pair_parts(parts: Iterable[Part | None]) -> list[tuple[int, int]]:
    """Positions of each call and of its result, in the order of the results.

    Clients do not always use an id only once. Of calls with one id the earliest is answered first, as repair
    does it.
    """
    pairs: list[tuple[int, int]] = []
    waiting: dict[str, deque[int]] = {}
    for at, part in enumerate(parts):
        if isinstance(part, ToolCall):
            waiting.setdefault(part.id, deque()).append(at)
        elif isinstance(part, ToolResult) and waiting.get(part.id):
            call_at = waiting[part.id].popleft()
            pairs.append((call_at, at))
    return pairs


# Turns and steps.

OWN_TURN_ONLY = "stands in its own turn only"
"""Why something is not sent any more whose turn is over."""


class TurnPosition(msgspec.Struct, frozen=True, kw_only=True):
    """How far the counting of turns and steps has come.

    `opening`: the user's side is putting things in. `talking`: the assistant's message is being written.
    """

    turn: int = -1
    step: int = -1
    opening: bool = False
    talking: bool = False


START = TurnPosition()


def place_entries(
    entries: Iterable[Entry], kinds: Kinds, *, position: TurnPosition = START
) -> tuple[list[Entry], TurnPosition]:
    """Entries with their turn, their step and their layer inside that turn, and the position after them."""
    result: list[Entry] = []
    for entry in entries:
        position = _advance(position, entry, kinds)
        placed = msgspec.structs.replace(
            entry,
            turn=max(position.turn, 0),
            step=max(position.step, 0),
            layer=_find_layer(entry, kinds, opening=position.opening),
        )
        result.append(placed)
    return result, position


def _advance(position: TurnPosition, entry: Entry, kinds: Kinds) -> TurnPosition:
    """The position after this entry.

    What is left out and what stands for older segments belongs where the counting has come. So does a
    changed section of the system text: it is not a question, and opens no turn. Whatever else the user's
    side puts in opens one, unless it goes on with a message that does not, such as words beside a result.
    """
    segment = entry.segment
    is_unsaid = entry.form is Form.OMITTED or bool(segment.covers)
    is_changed_section = is_section(kinds, segment) and not position.opening
    if is_unsaid or is_changed_section:
        return position
    if is_from_user(entry, kinds):
        if position.opening:
            return position
        if not continues_message(entry):
            return TurnPosition(turn=position.turn + 1, step=position.step + 1, opening=True)
    if segment.role is Role.ASSISTANT:
        begins_step = entry.opens or not position.talking
        step = position.step + int(begins_step)
        return TurnPosition(turn=position.turn, step=step, talking=True)
    if entry.role is Role.SYSTEM:
        return position
    return TurnPosition(turn=position.turn, step=position.step)


def _find_layer(entry: Entry, kinds: Kinds, *, opening: bool) -> Layer:
    """The layer inside the turn: the prompt, its attachments, or the steps that follow.

    The system text and the library have their places already. A changed section of the system text stands
    with the attachments, wherever it came.
    """
    if entry.layer in (Layer.SYSTEM, Layer.LIBRARY):
        return entry.layer
    is_message = entry.role is not Role.SYSTEM
    if opening and is_message:
        if kind_of(kinds, entry.segment).attachment:
            return Layer.TURN
        return Layer.PROMPT
    if is_section(kinds, entry.segment):
        return Layer.TURN
    return Layer.STEPS


def age_entries(entries: Iterable[Entry], turn: int) -> list[Entry]:
    """The entries, in which what belongs to a turn before `turn` is HISTORY.

    Only the layer changes. The bytes stay the same.
    """
    result: list[Entry] = []
    for entry in entries:
        if entry.turn < turn and entry.layer in (Layer.TURN, Layer.PROMPT, Layer.STEPS):
            entry = msgspec.structs.replace(entry, layer=Layer.HISTORY)  # noqa: PLW2901
        result.append(entry)
    return result


def is_from_user(entry: Entry, kinds: Kinds) -> bool:
    """Whether the user's side put it in: a message, an attachment, or a changed section of system text.

    A result that came late is quoted in the model's voice, and lamina's own lines are nobody's.
    """
    segment = entry.segment
    if is_section(kinds, segment):
        return True
    if entry.role is not Role.USER or segment.is_own:
        return False
    return segment.role is Role.USER


def is_question(entry: Entry, kinds: Kinds) -> bool:
    """Whether it is neither an attachment nor a section of the system text.

    The user's own message is what remains of a turn's opening then.
    """
    if is_attachment(entry, kinds):
        return False
    return not is_section(kinds, entry.segment)


def continues_message(entry: Entry) -> bool:
    """Whether an entry goes on with the message before it.

    It joins that message in the log, and nothing that was left out since has made it open one.
    """
    return entry.segment.joins and not entry.opens


def ends_turn(entry: Entry, kinds: Kinds) -> bool:
    """Whether an entry stands at the end of its own turn, and leaves with it.

    The time of day is such an attachment: it is true for one question only.
    """
    if entry.role is not Role.USER or not is_attachment(entry, kinds):
        return False
    return is_turn_scoped(kinds, entry.segment)


def count_leaving_tail(entries: Sequence[Entry], kinds: Kinds, layout: Layout) -> int:
    """How many of the entries that are sent, counted from the end, leave when this turn is over.

    The next request continues the stream before them.
    """
    if layout.context == "logged":
        return 0
    tail = 0
    for entry in reversed(entries):
        if entry.form is Form.OMITTED:
            continue
        if not ends_turn(entry, kinds):
            break
        tail += 1
    return tail


def find_leaving(entries: Sequence[Entry], kinds: Kinds, layout: Layout, *, bound: bool) -> frozenset[int]:
    """Positions of what stood in its own turn only, if that turn is over and leaving it out costs nothing.

    If the model answered at once, without a call, such an entry was the last thing sent: no cache holds
    anything behind it. After a call the next request went on behind it, so it stays until a cut leaves it
    out. It also stays if the answer has thinking that is `bound` to all that was sent before it, and if it
    came without a question. Only the log decides, not the forms of its entries, so every later build decides
    the same. The last turn is not over.
    """
    if layout.context == "logged":
        return frozenset()
    last_turn = find_last_turn(entries)
    turns: dict[int, list[int]] = {}
    turns_with_leaving: set[int] = set()
    for at, entry in enumerate(entries):
        if entry.turn == last_turn or _has_own_place(entry, kinds):
            continue
        turns.setdefault(entry.turn, []).append(at)
        if ends_turn(entry, kinds):
            turns_with_leaving.add(entry.turn)
    leaving: set[int] = set()
    for turn in turns_with_leaving:
        leaving.update(_find_leaving_in_turn(entries, turns[turn], kinds, bound=bound))
    return frozenset(leaving)


def _has_own_place(entry: Entry, kinds: Kinds) -> bool:
    """Whether an entry stands where it was put: a digest, a summary, a section that a cut may promote.

    Such an entry says nothing about where a turn begins and ends.
    """
    if entry.segment.is_own or entry.segment.covers:
        return True
    return is_section(kinds, entry.segment)


def _find_leaving_in_turn(
    entries: Sequence[Entry], turn: Sequence[int], kinds: Kinds, *, bound: bool
) -> Sequence[int]:
    """The positions of one turn at which something leaves.

    Read from its end, such a turn is: what opened no turn, the answer, what leaves, the question. What opened
    no turn is a reminder, or an attachment that newer content of the next turn replaces.
    """
    rest = list(turn)
    while rest and _opens_no_turn(entries[rest[-1]], kinds):
        rest.pop()
    answer_step: int | None = None
    while rest and _is_answer(entries[rest[-1]], answer_step, bound=bound):
        answer_step = entries[rest.pop()].step
    leaving: list[int] = []
    while rest and ends_turn(entries[rest[-1]], kinds):
        leaving.append(rest.pop())
    if answer_step is None or not rest:
        return ()
    if _is_users_question(entries[rest[-1]], kinds):
        return leaving
    return ()


def _is_users_question(entry: Entry, kinds: Kinds) -> bool:
    """Whether the user's side said this itself: neither an attachment nor a section of the system text."""
    return is_from_user(entry, kinds) and is_question(entry, kinds)


def _opens_no_turn(entry: Entry, kinds: Kinds) -> bool:
    """Whether an entry at the end of a turn is a reminder, or was put in by the user's side."""
    return entry.segment.role is Role.SYSTEM or is_from_user(entry, kinds)


def _is_answer(entry: Entry, answer_step: int | None, *, bound: bool) -> bool:
    """Whether this belongs to the model's last step, calls nothing, and has no bound thinking.

    `answer_step` is that step, if a later entry of it was seen.
    """
    if entry.segment.role is not Role.ASSISTANT:
        return False
    if answer_step not in (None, entry.step):
        return False
    ends_answer: tuple[type, ...] = (ToolCall,)
    if bound:
        ends_answer = (ToolCall, Thinking)
    return not any(isinstance(part, ends_answer) for part in entry.segment.parts)
