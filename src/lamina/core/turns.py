"""Turns and steps: where each entry stands, what leaves when its turn is over, and what is current.

A turn begins when the user's side puts something in after the model spoke. A step is one message of the
assistant with its calls and their results, or what the user said before it.

Inside a turn, attachments stand beside their question, in whatever order they were logged. What stands in its
own turn only comes last: it leaves when its turn is over, and nothing that a cache holds may stand behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from lamina.core.entries import (
    begins_with,
    find_last_turn,
    identify_attachment,
    is_attachment,
    is_empty,
    may_repeat,
    omit,
)
from lamina.core.kinds import Kinds, is_section, is_turn_scoped, kind_of
from lamina.core.layout import Layout
from lamina.core.values import Digest, Entry, Form, Layer, Ledger, Raw, Ref, Role, Thinking, ToolCall

OWN_TURN_ONLY = "stands in its own turn only"
"""Why something is not sent any more whose turn is over."""

ATTACHED_TWICE = "attached twice with one question"
"""Why an attachment is left out that the same question has already."""


class TurnPosition(msgspec.Struct, frozen=True, kw_only=True):
    """How far the counting of turns and steps has come.

    `opening`: the user's side is putting things in. `talking`: the assistant's message is being written, and
    `calling`: it has calls already.
    """

    turn: int = -1
    step: int = -1
    opening: bool = False
    talking: bool = False
    calling: bool = False


START = TurnPosition()


def place_entries(
    entries: Iterable[Entry], kinds: Kinds, *, position: TurnPosition = START
) -> tuple[list[Entry], TurnPosition]:
    """Entries with their turn, their step and their layer inside that turn, and the position after them."""
    result: list[Entry] = []
    for entry in entries:
        in_section = is_section(kinds, entry.segment)
        position = _advance(position, entry, in_section=in_section)
        placed = msgspec.structs.replace(
            entry,
            turn=max(position.turn, 0),
            step=max(position.step, 0),
            layer=_find_layer(entry, kinds, opening=position.opening, in_section=in_section),
        )
        result.append(placed)
    return result, position


def _advance(position: TurnPosition, entry: Entry, *, in_section: bool) -> TurnPosition:
    """The position after this entry.

    What is left out and what stands for older segments belongs where the counting has come. So does a
    changed section of the system text: it is not a question, and opens no turn. Whatever else the user's
    side puts in opens one, unless it goes on with a message that does not, such as words beside a result.
    """
    segment = entry.segment
    is_unsaid = entry.form is Form.OMITTED or bool(segment.covers)
    is_changed_section = in_section and not position.opening
    if is_unsaid or is_changed_section:
        return position
    if in_section or _is_users_message(entry):
        if position.opening:
            return position
        # Words beside a result go on with the message of the results: they are no new question.
        if not continues_message(entry):
            return TurnPosition(turn=position.turn + 1, step=position.step + 1, opening=True)
    if segment.role is Role.ASSISTANT:
        # Messages that repair made one are steps of their own, so that a cut lowers the old ones among them.
        # Calls of one message are answered together, so they are one step.
        is_message = entry.opens or not (entry.segment.joins or position.calling)
        begins_step = is_message or not position.talking
        calling = begins_with(entry.parts, ToolCall) or (position.calling and not begins_step)
        step = position.step + int(begins_step)
        return TurnPosition(turn=position.turn, step=step, talking=True, calling=calling)
    if entry.role is Role.SYSTEM:
        return position
    return TurnPosition(turn=position.turn, step=position.step)


def _find_layer(entry: Entry, kinds: Kinds, *, opening: bool, in_section: bool) -> Layer:
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
    if in_section:
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
    return is_section(kinds, entry.segment) or _is_users_message(entry)


def _is_users_message(entry: Entry) -> bool:
    """Whether it came as the user's, and is sent so."""
    if entry.role is not Role.USER or entry.segment.is_own:
        return False
    return entry.segment.role is Role.USER


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
        if entry.turn == last_turn:
            continue
        # A digest, a summary and a section that a cut may promote stand where they were put. They say nothing
        # about where a turn begins and ends.
        if entry.segment.is_own or entry.segment.covers or is_section(kinds, entry.segment):
            continue
        turns.setdefault(entry.turn, []).append(at)
        if ends_turn(entry, kinds):
            turns_with_leaving.add(entry.turn)
    leaving: set[int] = set()
    for turn in turns_with_leaving:
        leaving.update(_find_leaving_in_turn(entries, turns[turn], kinds, bound=bound))
    return frozenset(leaving)


def _find_leaving_in_turn(
    entries: Sequence[Entry], turn: Sequence[int], kinds: Kinds, *, bound: bool
) -> Sequence[int]:
    """The positions of one turn at which something leaves.

    Read from its end, such a turn is: what opened no turn, the answer, what leaves, the question. What opened
    no turn is a reminder, or an attachment that newer content of the next turn replaces.
    """
    rest = list(turn)
    while rest:
        last = entries[rest[-1]]
        if last.segment.role is not Role.SYSTEM and not is_from_user(last, kinds):
            break
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
    # Not simply the last number: an aside has one of its own, and results before it are still to be answered.
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
    """Whether nobody says or does anything here: thinking, an item of the provider's own, or system text.

    Such a block may stand after the last step without beginning a new one. System text after loose thinking
    has the step of that thinking.
    """
    if entry.role is Role.SYSTEM:
        return True
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


def order_turns(entries: list[Entry], ledger: Ledger, layout: Layout, kinds: Kinds) -> list[Entry]:
    """Each turn's attachments before its question, or after it. With `context="logged"`, nothing is moved.

    Of attachments with one key that came with one question, the last is sent, and once. What an earlier
    request sent as a reference stays one.
    """
    references = frozenset(ref for ref, line in ledger.lines.items() if line.reference)
    result: list[Entry] = []
    for run in _find_opening_runs(entries, kinds):
        result += _order_run(run, references, layout, kinds)
    return result


def _find_opening_runs(entries: Iterable[Entry], kinds: Kinds) -> Iterator[list[Entry]]:
    """Run of what the user's side put in before the model spoke; everything else by itself.

    `question, file, reply, question` are three runs: the question with its file, the reply, the question.
    """
    run: list[Entry] = []
    for entry in entries:
        if is_from_user(entry, kinds) and (run or not continues_message(entry)):
            run.append(entry)
            continue
        if run:
            yield run
            run = []
        yield [entry]
    if run:
        yield run


def _order_run(run: list[Entry], references: frozenset[Ref], layout: Layout, kinds: Kinds) -> list[Entry]:
    """One run in its order: lasting attachments and the question, then what leaves with the turn."""
    if layout.context == "logged":
        return _omit_repeated(_keep_newest(run, _name_by_key(run, kinds)), references, kinds)
    lasting, leaving = _split_leaving(run, kinds)
    lasting = _keep_newest(lasting, _name_by_key(lasting, kinds))
    if layout.context == "before":
        lasting = _put_question_last(lasting, kinds)
    else:
        attached, rest = _split_attachments(lasting, kinds)
        lasting = rest + attached
    lasting = _omit_repeated(lasting, references, kinds)
    # Of two entries of one kind without a key, such as two times, the newer replaces the older.
    names = [f"{entry.segment.kind} {entry.segment.key}" for entry in leaving]
    return lasting + _keep_newest(leaving, names, replace_equal=True)


def _put_question_last(run: list[Entry], kinds: Kinds) -> list[Entry]:
    """Move the attachments that came after the question before it; sections stay behind it.

    A question of several blocks, of which the later ones join the first, moves as a whole.
    """
    questions = [at for at, entry in enumerate(run) if is_question(entry, kinds)]
    if not questions:
        return run
    end = questions[-1] + 1
    start = questions[-1]
    while start > 0 and run[start].segment.joins:
        start -= 1
    attached, sections = _split_attachments(run[end:], kinds)
    return run[:start] + attached + run[start:end] + sections


def _split_attachments(entries: Iterable[Entry], kinds: Kinds) -> tuple[list[Entry], list[Entry]]:
    """The attachments among these entries, and the rest of them, each in their order."""
    attached: list[Entry] = []
    rest: list[Entry] = []
    for entry in entries:
        if is_attachment(entry, kinds):
            attached.append(entry)
        else:
            rest.append(entry)
    return attached, rest


def _split_leaving(run: list[Entry], kinds: Kinds) -> tuple[list[Entry], list[Entry]]:
    """A run without what leaves with its turn, and what leaves.

    If an entry that leaves opened a message, the entry that continued it opens it now. If the whole run was
    one message, it stays one.
    """
    lasting: list[Entry] = []
    leaving: list[Entry] = []
    must_open = False
    is_one_message = False
    for entry in run:
        if ends_turn(entry, kinds):
            leaving.append(entry)
            must_open = must_open or entry.opens
            continue
        if must_open and not entry.opens:
            lasting.append(msgspec.structs.replace(entry, opens=True))
            is_one_message = not entry.segment.joins
        else:
            lasting.append(entry)
        must_open = False
    if is_one_message:
        leaving = [msgspec.structs.replace(entry, opens=False) for entry in leaving]
    return lasting, leaving


def _keep_newest(run: list[Entry], names: list[str], *, replace_equal: bool = False) -> list[Entry]:
    """A run in which older content of a name is replaced by the newest. An entry named "" has no name.

    Content that did not change stays, and the newer entry refers to it later. With `replace_equal`, the older
    entry is replaced even then. What was replaced once does not come back when the newest says it again.
    """
    newest = dict(zip(names, run, strict=True))
    changed: set[str] = set()
    result: list[Entry] = []
    # From the end: once some content of a name was replaced, all that came before it stays replaced.
    for entry, name in zip(reversed(run), reversed(names), strict=True):
        newer = newest[name]
        is_newest = newer.ref == entry.ref
        may_stay = not replace_equal and identify_attachment(newer) == identify_attachment(entry)
        if name and not is_newest and not may_stay:
            changed.add(name)
        if name in changed:
            result.append(omit(entry, f"replaced in the same turn by {newer.ref}"))
        else:
            result.append(entry)
    return result[::-1]


def _omit_repeated(run: list[Entry], references: frozenset[Ref], kinds: Kinds) -> list[Entry]:
    """A run in which an attachment that came twice with one question is sent once.

    If a question stands between the two, the second one becomes a reference later: that question names it.
    """
    with_question: set[Digest] = set()
    result: list[Entry] = []
    for entry in run:
        if is_question(entry, kinds):
            with_question.clear()
        if entry.form is Form.OMITTED or not is_attachment(entry, kinds):
            result.append(entry)
            continue
        identity = identify_attachment(entry)
        is_repeated = identity in with_question and entry.ref not in references
        if is_repeated and not may_repeat(entry):
            result.append(omit(entry, ATTACHED_TWICE))
        else:
            result.append(entry)
        with_question.add(identity)
    return result


def _name_by_key(run: Sequence[Entry], kinds: Kinds) -> list[str]:
    """The key of each attachment, "" for everything else.

    Only attachments replace each other: two messages with one key are two messages.
    """
    names: list[str] = []
    for entry in run:
        name = ""
        if is_attachment(entry, kinds):
            name = entry.segment.key
        names.append(name)
    return names
