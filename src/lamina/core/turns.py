"""Turns and steps: where each entry stands, what leaves when its turn is over, and what is current.

A turn begins when the user's side puts something in after the model spoke. A step is one message of the
assistant with its calls and their results, or what the user said before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from lamina.core.entries import begins_with, find_last_turn, is_attachment, is_empty
from lamina.core.kinds import Kinds, is_section, is_turn_scoped, kind_of
from lamina.core.layout import Layout
from lamina.core.values import Entry, Form, Layer, Raw, Role, Thinking, ToolCall

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
        # Words beside a result go on with the message of the results: they are no new question.
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
            result.append(msgspec.structs.replace(entry, layer=Layer.HISTORY))
        else:
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
    before_leaving = entries[rest[-1]]
    came_with_question = is_from_user(before_leaving, kinds) and is_question(before_leaving, kinds)
    return leaving if came_with_question else ()


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


# The prompt and the last step, which are sent as they came.


def current_turn(entries: Sequence[Entry]) -> frozenset[int]:
    """Positions of the prompt and of the last step, which are sent as they came.

    If the user spoke within the turn, beside the results of tools, the newest of these words belong to the
    prompt. Thinking, or an item of the provider's own, that follows the last step belongs to it.
    """
    last_turn, last_step = _find_last_turn_and_step(entries)
    last_words = _find_last_words(entries, last_turn)
    current: set[int] = set()
    for at, entry in enumerate(entries):
        if entry.layer is Layer.SYSTEM:
            continue
        is_prompt = entry.layer is Layer.PROMPT and entry.turn == last_turn
        is_last_words = entry.step == last_words and said_beside_results(entry)
        if is_prompt or is_last_words or entry.step >= last_step:
            current.add(at)
    return frozenset(current)


def _find_last_turn_and_step(entries: Sequence[Entry]) -> tuple[int, int]:
    """The last turn and the last step. Thinking alone does not begin a step.

    The system text has no turn of its own, so it does not count.
    """
    last_turn = 0
    last_step = 0
    for entry in entries:
        if entry.layer is Layer.SYSTEM:
            continue
        last_turn = max(last_turn, entry.turn)
        if entry.step > last_step and not is_aside(entry):
            last_step = entry.step
    return last_turn, last_step


def _find_last_words(entries: Sequence[Entry], last_turn: int) -> int:
    """The last step of this turn in which the user spoke beside results; -1 if there is none.

    An agent's user may type while tools run. Clients send such words together with the results.
    """
    last_words = -1
    for entry in entries:
        if entry.turn == last_turn and said_beside_results(entry):
            last_words = max(last_words, entry.step)
    return last_words


def is_aside(entry: Entry) -> bool:
    """Whether the model neither says nor does anything here: thinking, or an item of the provider's own.

    Such a block may stand after the last step without beginning a new one.
    """
    return entry.role is Role.ASSISTANT and begins_with(entry.segment.parts, Thinking | Raw)


def said_beside_results(entry: Entry) -> bool:
    """Whether the user says this in a message with results of tools, within a turn.

    What stands for older segments is no speech, and neither are lamina's own lines.
    """
    segment = entry.segment
    if entry.layer is not Layer.STEPS or entry.role is not Role.USER:
        return False
    if segment.role is not Role.USER or segment.is_own:
        return False
    if segment.covers:
        return False
    return not is_empty(segment.parts)
