"""Reminding: what the question is about is brought back from what was lowered.

When a prompt arrives, everything that cuts have lowered is still at hand, and the words of the question are
known before the model answers. A reminder quotes the lowered passages that share rare words with it. It is
an entry of lamina's own right before the question. What was sent before it stays as it was, so the cache
holds, and the ledger keeps it, so the next requests carry the same bytes. At a cut it goes: its sources are
still in the log, and the question that is asked then has a reminder of its own.

The rules in force that cannot be read come back, too: nobody can ask for a rule that nobody knows of.

It quotes whole sentences and adds nothing but a title, so it cannot say what nobody said. `passages` finds
them, and `reminders` says where they stand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from lamina.core import hashing
from lamina.core.digests import map_covered
from lamina.core.draft import Draft
from lamina.core.entries import begins_with, find_last_sent, find_position, find_prefix, is_users_text
from lamina.core.epochs import find_first_new
from lamina.core.options import BuildContext
from lamina.core.passages import (
    GIANT,
    PassageChoice,
    PassageIndex,
    ends_with_mark,
    find_content,
    find_questions,
    is_about,
    rate_sentences,
    refers_back,
    weigh_terms,
)
from lamina.core.reminders import TITLE, is_reminder, make_entries
from lamina.core.scale import weigh_entries
from lamina.core.text.characters import split_words
from lamina.core.text.excerpts import clean_text
from lamina.core.text.tags import make_inert
from lamina.core.text.user_words import indent_lines
from lamina.core.tool_rules import ToolRules, find_silent
from lamina.core.turns import continues_message
from lamina.core.values import Entry, Form, Layer, Ref, Reminder, Role, Segment, Text, ToolResult
from lamina.core.wording import NAME_LIMIT, Wording, describe_segment, text_of

WINDOW_PART = 10
"""A reminder takes at most one part in so many of the room. On questions about long talks a twentieth brought
nearly as much, and a fifth little more."""

STANDING_PART = 6
"""All reminders since the last cut take at most one part in so many of the room, or twice what is useful.
They stay until the next cut, and each brings it nearer."""

USEFUL, MOST = 240, 800
"""Tokens that a reminder may take in a very small room, where a tenth would hold hardly one passage, and in a
very large one."""

LONGEST_REQUEST = 120
"""Characters of a prompt without a question mark. Whoever says more tells something, and asks for nothing."""

LEAST = 60
"""Tokens below which no reminder is written: its title and its tag take half of them."""

SHORT_QUESTION = 40
"""Characters of a question that may refer to what was said just before, such as "and the second one?"."""

LAST_OF_GIANT = 4_000
"""Characters of a giant message to which a short question may refer: those that were read last."""

_NAMED_TERMS = 5
"""Terms that a reminder shares with its question and names as its reason."""


def remind(draft: Draft, room: int, context: BuildContext) -> Draft:
    """The draft with a reminder before its prompt, if something that was lowered is about it.

    A prompt has one reminder, written when it arrives. If a cut has just been made, all reminders are gone,
    and the prompt has a new one even in the middle of its turn.
    """
    entries = draft.entries
    # A log with summaries, which lower what they cover, leaves no front.
    was_lowered = draft.lines or draft.ledger.lines or draft.folds or draft.next_front is None
    if not was_lowered:
        return draft
    prompt_at = _find_prompt(entries)
    if prompt_at is None:
        return draft
    if _is_settled(draft, prompt_at, context):
        return draft
    sources = find_sources(draft, prompt_at, context.options.tools)
    if not sources:
        return draft
    limits = _find_limits(draft, prompt_at, room, context)
    reminder = _write_reminder(draft, prompt_at, sources, limits, context)
    while reminder is not None:
        with_reminder = _insert(draft, reminder, prompt_at, context)
        if context.scale.total(with_reminder.tokens) <= room:
            return with_reminder
        limits = _Limits(limits.rules * 2 // 3, limits.about * 2 // 3)
        reminder = _write_reminder(draft, prompt_at, sources, limits, context)
    return draft


def _is_settled(draft: Draft, prompt_at: int, context: BuildContext) -> bool:
    """Whether the prompt has its reminder, or can have none any more.

    Without a cut nothing may come before what was sent, such as a message to which the client adds a block.
    """
    prompt = draft.entries[prompt_at]
    if any(reminder.before == prompt.ref for reminder in draft.reminders):
        return True
    has_steps = any(entry.role is Role.ASSISTANT for entry in draft.entries[prompt_at:])
    if draft.cut is not None:
        # Thinking of this turn may be bound to all that stands before it.
        return has_steps and context.binds_thinking
    return has_steps or prompt_at < find_first_new(draft, context)


class _Limits(NamedTuple):
    """Tokens that a reminder may take with rules about the prompt, and that it may take with all else."""

    rules: int
    about: int


def _find_limits(draft: Draft, prompt_at: int, room: int, context: BuildContext) -> _Limits:
    """What a reminder may take: its part of the room, less if others stand or little is free.

    A question always has some, however many stand: those of small talk must not take its place. So have the
    rules for what is asked. All else has half of what may stand if the prompt is a statement. Whoever types
    in haste leaves the question mark out, and so a prompt without a mark at its end counts as a question.
    """
    standing_tokens = sum(entry.tokens for entry in draft.entries if is_reminder(entry))
    own_part = min(max(room // WINDOW_PART, USEFUL), MOST)
    most = min(own_part, room - context.scale.total(draft.tokens))
    standing_part = max(room // STANDING_PART, 2 * USEFUL)
    left = standing_part - standing_tokens
    rules = min(most, max(left, 2 * USEFUL))
    prompt_text = _read_question(draft.entries[prompt_at:])
    if find_questions(prompt_text) or not ends_with_mark(prompt_text):
        return _Limits(rules, min(most, max(left, USEFUL)))
    return _Limits(rules, min(most, left - standing_part // 2))


def _find_prompt(entries: Sequence[Entry]) -> int | None:
    """The position of the question of the last turn: where the user's last message in it begins."""
    if not entries:
        return None
    last_turn = entries[-1].turn
    for at in range(len(entries) - 1, -1, -1):
        if entries[at].turn != last_turn:
            break
        if entries[at].layer is Layer.PROMPT:
            first = at
            while first and continues_message(entries[first]) and entries[first - 1].layer is Layer.PROMPT:
                first -= 1
            return first
    return None


def find_sources(draft: Draft, prompt_at: int, tool_rules: ToolRules) -> list[Entry]:
    """The lowered entries that a reminder may quote, in order.

    What came with the prompt was lowered for it, and is not quoted. Nor is what a tool with the rule "never"
    returned. All others stand before the last message
    of the model. So they are in the part of the log that a memo has compared, and what they say is still
    there as long as the memo holds.
    """
    end = prompt_at
    if draft.next_front is not None:
        end = min(end, find_position(draft.entries, draft.next_front.first_ref))
    folded = map_covered(draft.folds)
    silent = find_silent(draft.entries, tool_rules)
    sources: list[Entry] = []
    asked_in = draft.entries[prompt_at].turn
    for entry in draft.entries[:end]:
        if (
            entry.turn == asked_in
            or entry.form is Form.FULL
            or entry.role is Role.SYSTEM
            or entry.segment.is_own
            or entry.ref in silent
        ):
            continue
        line = draft.lines.get(entry.ref) or draft.ledger.lines.get(entry.ref)
        is_lowered = entry.ref in folded or entry.why.startswith("covered by")
        if line is not None and not line.reference:
            is_lowered = True
        if is_lowered and begins_with(entry.segment.parts, Text | ToolResult):
            sources.append(entry)
    return sources


def _write_reminder(
    draft: Draft, prompt_at: int, sources: Sequence[Entry], limits: _Limits, context: BuildContext
) -> Reminder | None:
    """The reminder for the prompt in so many tokens; None if nothing is about it."""
    if limits.rules < LEAST:
        return None
    prompt_text = _read_question(draft.entries[prompt_at:])
    questions = find_questions(prompt_text)
    if not questions and len(prompt_text) > LONGEST_REQUEST:
        return None
    index = context.find_passages([entry.ref for entry in sources])
    for entry in sources:
        if entry.ref not in index:
            index.add(entry.ref, clean_text(_text_to_quote(entry.segment)))
    count = context.scale.counter.count
    around = count(TITLE) + LEAST // 3
    order = [entry.ref for entry in sources]
    in_sight = _text_in_sight(draft.entries)
    choice = PassageChoice(
        index,
        order,
        in_sight=in_sight,
        limit=limits.rules - around,
        count=count,
        handles=context.wording.handles,
    )
    topic = questions or prompt_text
    weights = weigh_terms(index, prompt_text)
    if find_content(prompt_text):
        users = [entry.ref for entry in sources if is_users_text(entry)]
        choice.take_rules(users, weights, limits.about - around)
    is_short_question = bool(questions) and len(topic) <= SHORT_QUESTION
    if is_short_question and not weights and refers_back(index, topic):
        topic = _read_exchange(draft.entries[:prompt_at])
        weights = weigh_terms(index, topic)
    rated = rate_sentences(index, weights, order)
    about: set[int] = set()
    if is_about(index, rated, topic):
        about = choice.take_about(rated, limits.about - around)
    if not choice.sentences:
        return None
    words, notes, quoted = _quote_passages(choice, sources, context.wording)
    prompt = draft.entries[prompt_at]
    return Reminder(
        key=f"reminder-{hashing.digest((prompt.ref, quoted))[:20]}",
        before=prompt.ref,
        sources=quoted,
        text=words,
        notes=notes,
        about=_name_shared(index, about, weights),
    )


def _text_to_quote(segment: Segment) -> str:
    """What a reminder may quote of a segment: what somebody said, or what a tool returned.

    Thinking is bound to its place, and the arguments of a call are quoted by the digest.
    """
    return text_of(part for part in segment.parts if isinstance(part, Text | ToolResult))


def _read_question(entries: Sequence[Entry]) -> str:
    """What the user asks: the words of the prompt, without attachments."""
    return "\n".join(text_of(entry.segment.parts) for entry in entries if is_users_text(entry))


def _read_exchange(entries: Sequence[Entry]) -> str:
    """The last words of the user and of the model before the prompt, which a short question refers to."""
    texts: list[str] = []
    for entry in reversed(entries):
        if entry.segment.is_own or not begins_with(entry.segment.parts, Text):
            continue
        text = text_of(entry.segment.parts)
        if len(text) > GIANT:
            text = text[-LAST_OF_GIANT:]
        texts.append(text)
        if is_users_text(entry):
            break
    return "\n".join(texts)


def _text_in_sight(entries: Iterable[Entry]) -> str:
    """All text of the request, with one space between two words, as sentences are compared with it."""
    texts = [text_of(entry.parts) for entry in entries if entry.parts]
    return " ".join(split_words("\n".join(texts)))


def _quote_passages(
    choice: PassageChoice, sources: Sequence[Entry], wording: Wording
) -> tuple[str, str, tuple[Ref, ...]]:
    """The words of the user, what others said, and what was quoted, in the order in which it was said."""
    index = choice.index
    by_source: dict[Ref, list[int]] = defaultdict(list)
    for number in sorted(choice.sentences):
        by_source[index.sources[index.sentences[number].source].ref].append(number)
    words: list[str] = []
    notes: list[str] = []
    for entry in sources:
        if entry.ref not in by_source:
            continue
        line = _quote_source(choice, by_source[entry.ref], entry, wording)
        if is_users_text(entry):
            words.append(line)
        else:
            notes.append(line)
    quoted = tuple(entry.ref for entry in sources if entry.ref in by_source)
    return "\n".join(words), "\n".join(notes), quoted


def _quote_source(choice: PassageChoice, numbers: Sequence[int], entry: Entry, wording: Wording) -> str:
    """The chosen sentences of one source with its turn; `…` stands where something is missing.

    A source of which more was left out shows its handle. A rule is whole without what stands around it.
    """
    index = choice.index
    source = index.sources[index.sentences[numbers[0]].source]
    pieces: list[str] = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run_numbers = [number for _, number in run]
        start = index.sentences[run_numbers[0]].start
        end = index.sentences[run_numbers[-1]].end
        pieces.append(source.text[start:end])
    text = indent_lines(" … ".join(pieces)).lstrip(" ")
    label = str(entry.turn + 1)
    if entry.role is Role.ASSISTANT:
        label += ", assistant"
    elif not is_users_text(entry):
        label += f", {make_inert(describe_segment(entry.segment), NAME_LIMIT)}"
    is_whole = len(numbers) == source.end - source.first or choice.rules.issuperset(numbers)
    if wording.handles and not is_whole:
        label += f' (recall("{wording.handle(entry.content)}"))'
    return f"  {label}: {text}"


def _name_shared(index: PassageIndex, chosen: set[int], weights: Mapping[str, int]) -> tuple[str, ...]:
    """The terms that the question shares with what is quoted, the rarest first."""
    shared = [term for term in weights if not chosen.isdisjoint(index.sentences_with(term))]
    return tuple(sorted(shared, key=lambda term: (-weights[term], term))[:_NAMED_TERMS])


def _insert(draft: Draft, reminder: Reminder, prompt_at: int, context: BuildContext) -> Draft:
    """The draft with a reminder before its prompt."""
    entries = draft.entries
    laid = [*make_entries(reminder, at=entries[prompt_at], wording=context.wording), *entries[prompt_at:]]
    front = entries[:prompt_at]
    prefix = find_prefix(front, context.root)
    weighed = weigh_entries(laid, context.scale, prefix=prefix, last_sent=find_last_sent(front))
    return msgspec.structs.replace(
        draft,
        entries=front + weighed,
        tokens=sum(entry.tokens for entry in front) + sum(entry.tokens for entry in weighed),
        standing_tokens=None,
        reminders=(*draft.reminders, reminder),
    )
