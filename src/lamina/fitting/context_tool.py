"""The context tool: the model sees how full its context is, and says what it needs and what it is done with.

    context(action="pin", what="kmzxw6…")        never lowered until it is released
    context(action="release", what="kmzxw6…")    lowered first at the next cut
    context(action="note", what="port is 8443")  a line of the model's own at the head of the digest
    context(action="status")                     used, room, pins, what would go next

The answer is all that happens here. What holds from then on is read from the call and its answer, which are
in the log (`lamina.core.wishes`). The tool can raise no text to another voice and lower nothing that the user
said, and its pins hold at most a quarter of the room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from lamina.core.cut_progress import find_spared, find_untouchable
from lamina.core.cut_target import SPARED, Sparing
from lamina.core.envelope import Envelope
from lamina.core.kinds import KINDS, Kinds
from lamina.core.ladder import ladder
from lamina.core.orders import OrderView
from lamina.core.text.characters import split_words
from lamina.core.text.excerpts import to_one_line
from lamina.core.turns import current_turn
from lamina.core.values import Entry, Form, Ledger, Ref, Segment, ToolCall, ToolResult
from lamina.core.wishes import (
    ACCEPTED,
    LEAST_QUOTE,
    NOTE_LIMIT,
    PINNED_PART,
    PINNED_TEXT,
    Wishes,
    choose_held,
    find_targets,
    may_release,
    read_arguments,
    read_wishes,
)
from lamina.core.wording import pick_name, text_of
from lamina.dialects.port import Tool
from lamina.errors import BadInput
from lamina.fitting.recalls import PIECE
from lamina.segments import result

_QUOTE = 60
"""Characters of a name or of a quotation in an answer."""

GAUGE_MARKS = (50, 70, 90)
"""Of the room, in hundredths: marks that a model with this tool is told of."""

_STATUS = "used: "
"""How a status begins."""

_LISTED = 8
"""How many pins, notes and next moves a status lists."""

CONTEXT = Tool(
    name="context",
    description=(
        "Manages your own context window. action=status: how full it is, what you pinned, what would be "
        "shortened next. action=pin: `what` is never shortened until you release it. action=release: you are "
        "done with `what`, so it is shortened first. action=note: `what` is a short line of your own that is "
        'kept when older steps are summed up. For pin and release, `what` is a key from recall("..."), or a '
        "few words exactly as they stand in the message. Pins may take a quarter of the window."
    ),
    schema={
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["pin", "release", "note", "status"]},
            "what": {
                "type": "string",
                "description": "A key, words that stand in the message, or the text of a note.",
            },
        },
        "required": ["action"],
    },
)
"""The tool with which a model has a say in what it sees. It stands after the recall tool."""


class _Situation(NamedTuple):
    """The last request, and what the model has asked for up to it."""

    envelope: Envelope
    room: int
    ledger: Ledger
    wishes: Wishes
    held: frozenset[Ref]

    @property
    def held_tokens(self) -> int:
        return sum(entry.tokens for entry in self.envelope.entries if entry.ref in self.held)


def answer_context(call: ToolCall, *, ledger: Ledger, envelope: Envelope | None) -> Segment:
    """The result of a call of the context tool. A problem is a result, too, and changes nothing."""
    action, what = read_arguments(call)
    try:
        text = _answer_action(action, what, _read_situation(envelope, ledger, call.name))
    except BadInput as error:
        return result(f"not done: {error}", id=call.id, name=call.name, error=True)
    return result(text, id=call.id, name=call.name, error=False)


def add_gauge(answer: Segment, envelope: Envelope) -> Segment:
    """The result of an own tool with a last line that says which mark of the window is passed.

    Below the first mark, without a window, and where the status says it already, the result stays as it is.
    """
    part = answer.parts[0]
    if envelope.room is None or not isinstance(part, ToolResult):
        return answer
    text = text_of(part.content)
    share = 100 * envelope.tokens // max(envelope.room, 1)
    passed_mark = max((mark for mark in GAUGE_MARKS if share >= mark), default=None)
    if passed_mark is None or text.startswith(_STATUS):
        return answer
    left = max(envelope.room - envelope.tokens, 0)
    line = f"[context: over {passed_mark} % of your window is used, {left:,} tokens are left]"
    return result(f"{text}\n{line}", id=part.id, name=part.name, error=part.error)


def _answer_action(action: str, what: str, situation: _Situation) -> str:
    match action:
        case "pin":
            return _answer_pin(what, situation)
        case "release":
            return _answer_release(what, situation)
        case "note":
            return write_note(what)
        case "status":
            return _write_status(situation)
    hint = 'give {"action": "pin", "release", "note" or "status"}, and `what`'
    raise BadInput("no such action", place="context", hint=hint)


def _read_situation(envelope: Envelope | None, ledger: Ledger, tool: str) -> _Situation:
    if envelope is None or envelope.room is None:
        raise BadInput("there is no window to manage here", place="context")
    wishes = read_wishes(envelope.entries, ledger, tool=tool)
    held = choose_held(wishes, envelope.entries, envelope.room)
    return _Situation(envelope, envelope.room, ledger, wishes, held)


def _answer_pin(what: str, situation: _Situation) -> str:
    """Say that something is pinned. What is not in the request any more comes back in the answer."""
    targets = _find_entries(what, situation)
    name = _name_entries(targets)
    if any(entry.form is not Form.FULL for entry in targets):
        text = "\n".join(text_of(entry.segment.parts) for entry in targets)
        if len(text) > PIECE:
            hint = "recall the part that you need, and pin a few words of it"
            raise BadInput(f"it has {len(text):,} characters", place="context", hint=hint)
        # The text is not in the request, so its tokens are estimated: most texts have more than three
        # characters for each.
        _check_pins(situation, len(text) // 3 + len(targets))
        return f"{PINNED_TEXT}, and is never shortened until you release it ({name})\n{text}"
    tokens = sum(entry.tokens for entry in targets if entry.ref not in situation.held)
    _check_pins(situation, tokens)
    used = situation.held_tokens + tokens
    return f"{ACCEPTED['pin']}{name}; pins take {used:,} of {situation.room // PINNED_PART:,} tokens"


def _check_pins(situation: _Situation, tokens: int) -> None:
    """Raise BadInput, in words for the model, if pins would take more than their part with these tokens."""
    allowed = situation.room // PINNED_PART
    left = allowed - situation.held_tokens
    if tokens > left:
        problem = f"it takes about {tokens:,} tokens, and of {allowed:,} for pins {max(left, 0):,} are left"
        raise BadInput(problem, place="context", hint="release something first")


def _answer_release(what: str, situation: _Situation) -> str:
    targets = _find_entries(what, situation, is_release=True)
    if not targets:
        return f"{ACCEPTED['release']}the note"
    releasable = [entry for entry in targets if may_release(entry)]
    was_held = any(entry.ref in situation.held for entry in targets)
    # What the user said is never lowered first. But a pin on it can be taken off.
    if not releasable and not was_held:
        hint = "it was not pinned, and stays as it is"
        raise BadInput("this is what the user said", place="context", hint=hint)
    freed = sum(entry.tokens for entry in releasable)
    return f"{ACCEPTED['release']}{_name_entries(targets)}; about {freed:,} tokens go first at the next cut"


def write_note(what: str) -> str:
    """The answer to a note. Raises BadInput, in words for the model, if it is empty or too long."""
    text = " ".join(split_words(what))
    if not text:
        raise BadInput("an empty note", place="context", hint="give the line in `what`")
    if len(text) > NOTE_LIMIT - 4:
        hint = f"give at most {NOTE_LIMIT - 4} characters"
        raise BadInput(f"the note has {len(text):,} characters", place="context", hint=hint)
    return f"{ACCEPTED['note']}{to_one_line(text, _QUOTE)}"


def _find_entries(what: str, situation: _Situation, *, is_release: bool = False) -> list[Entry]:
    """The entries that a key or a quotation names. Raises BadInput, in words for the model, without any."""
    entries = situation.envelope.entries
    targets = find_targets(entries, situation.ledger.folds, what, own=situation.wishes.own)
    named_entries = [entry for entry in entries if entry.ref in targets]
    if named_entries:
        return named_entries
    if is_release and " ".join(split_words(what)) in situation.wishes.notes.values():
        return []
    hint = f'give a key from recall("..."), or at least {LEAST_QUOTE} characters as they stand in the message'
    raise BadInput(f"nothing here is called {to_one_line(what, _QUOTE)!r}", place="context", hint=hint)


def _name_entries(entries: Sequence[Entry]) -> str:
    first = _name_entry(entries[0])
    if len(entries) == 1:
        return first
    return f"{first} and {len(entries) - 1} more"


def _name_entry(entry: Entry) -> str:
    """What an entry is, in a few words: its tool, its name, or how it begins. It is quoted, on one line."""
    if entry.asked is not None:
        return f"result of {to_one_line(f'{entry.asked.name} {entry.asked.arguments}', _QUOTE)}"
    name = pick_name(entry.segment.attrs) or text_of(entry.segment.parts)
    return f"{entry.segment.kind} {to_one_line(name, _QUOTE)!r}"


def _write_status(situation: _Situation) -> str:
    envelope = situation.envelope
    share = 100 * envelope.tokens // max(situation.room, 1)
    lines = [
        f"{_STATUS}{envelope.tokens:,} of {situation.room:,} tokens ({share} %)",
        f"pinned: {situation.held_tokens:,} of {situation.room // PINNED_PART:,} tokens",
    ]
    pinned = [entry for entry in envelope.entries if entry.ref in situation.held]
    lines += _list_lines(f"  {_name_entry(entry)}: {entry.tokens:,} tokens" for entry in pinned)
    notes = list(situation.wishes.notes.values())
    if notes:
        lines.append(f"notes: {len(notes)}")
        lines += _list_lines(f"  {note}" for note in notes)
    lines.append("goes next:")
    lines += _list_lines(_list_next(situation))
    return "\n".join(lines)


def _list_lines(lines: Iterable[str]) -> list[str]:
    """The first lines, and how many more there are."""
    listed = list(lines)
    if len(listed) <= _LISTED:
        return listed
    return [*listed[:_LISTED], f"  and {len(listed) - _LISTED} more"]


def _list_next(situation: _Situation) -> list[str]:
    """What the next cut would lower first, by lamina's own order.

    Right after a cut nothing is left but the steps that it spared. The next one spares fewer of them.
    """
    sparing = Sparing(tokens=round(situation.room * SPARED))
    lines = _list_moves(situation, sparing)
    while sparing and not lines:
        sparing = sparing.halve()
        lines = _list_moves(situation, sparing)
    return lines or ["  nothing"]


def _list_moves(situation: _Situation, sparing: Sparing, *, kinds: Kinds = KINDS) -> list[str]:
    entries = situation.envelope.entries
    current = current_turn(entries)
    view = OrderView(
        entries=entries,
        kinds=kinds,
        untouchable=find_untouchable(entries, current) | _find_indices(entries, situation.held),
        spared=find_spared(entries, sparing, current),
        current=current,
        released=_find_indices(entries, situation.wishes.released),
    )
    lines: dict[int, str] = {}
    for first, *_ in ladder(view):
        entry = entries[first.at]
        # The ladder names an entry again for each lower form. Here only the first of them counts.
        if first.at in lines or not entry.tokens:
            continue
        lines[first.at] = f"  {_name_entry(entry)}: {entry.tokens:,} tokens, {first.why}"
        if len(lines) == _LISTED:
            break
    return list(lines.values())


def _find_indices(entries: Sequence[Entry], refs: Collection[Ref]) -> frozenset[int]:
    return frozenset(index for index, entry in enumerate(entries) if entry.ref in refs)
