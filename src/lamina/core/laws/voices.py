"""Laws of who speaks: nobody's words are changed, given to another, or lost in silence."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lamina.core.arrange import is_worded
from lamina.core.cut_target import count_fixed
from lamina.core.digests import RULES_SHARE, VERBATIM_PART, map_covered
from lamina.core.entries import VERBATIM_LIMIT, begins_with, is_users_text
from lamina.core.envelope import find_gained_authority
from lamina.core.kinds import has_tag, is_section
from lamina.core.laws.case import Case, find_large_in_full, find_lowered_now, is_unrecoverable
from lamina.core.text.characters import split_words
from lamina.core.text.excerpts import clean_text
from lamina.core.text.gist import find_proposal
from lamina.core.text.sentences import split_sentences
from lamina.core.text.standing_rules import find_rules, is_agreement
from lamina.core.values import Entry, Fold, Form, Layer, Part, Ref, Role, Segment, Text, ToolResult
from lamina.core.wording import has_balanced_tags, text_of

QUOTED = 30
"""Characters of a line that a digest cannot have by chance."""


def untouched_means_untouched(case: Case) -> Iterator[str]:
    """What was not lowered or repaired has the parts that it came with; a result may have another id.

    Signatures and unknown fields are among these parts. They are never rebuilt.
    """
    options = case.options
    if options.wording.tagged or options.repairs.strip_tags:
        return
    repairs = case.envelope.ledger.repairs
    for entry in case.envelope.entries:
        if f"{entry.ref}:id" in repairs:
            continue
        if _is_sent_as_logged(entry, case) and _logged_parts(entry) != entry.parts:
            yield f"{entry.ref} was changed"


def _is_sent_as_logged(entry: Entry, case: Case) -> bool:
    """Whether an entry should have the parts that it came with: it is in full, in its own voice and words."""
    if entry.form is not Form.FULL or entry.role is not entry.segment.role:
        return False
    if is_section(case.kinds, entry.segment) and entry.layer is not Layer.SYSTEM:
        return False  # it says which older text it replaces
    return not is_worded(entry.segment, case.options.wording)


def _logged_parts(entry: Entry) -> tuple[Part, ...]:
    """The parts that an entry came with. A result has the id that is sent: its call may have another one."""
    logged = entry.segment.parts
    match logged, entry.parts:
        case (ToolResult() as result, *_), (ToolResult(id=sent_id), *_):
            return (msgspec.structs.replace(result, id=sent_id),)
        case _:
            return logged


def no_authority_is_gained(case: Case) -> Iterator[str]:
    """Content stays in its role and closes or opens no tag; no tool is quoted in the user's voice.

    Text of a file, a result or a digest is data. It can become neither system text nor the user's words,
    whatever it says.
    """
    sent = case.envelope.sent
    yield from find_gained_authority(sent)
    for entry in sent:
        if _is_result_in_users_voice(entry):
            yield f"{entry.ref} is a result in the user's voice"
        if has_tag(case.kinds, entry.segment) and not has_balanced_tags(entry.parts, case.kinds):
            yield f"{entry.ref} breaks out of its tag"
    by_ref = {entry.ref: entry.segment for entry in case.envelope.entries}
    ledger = case.envelope.ledger
    for fold in ledger.folds:
        yield from _check_users_voice(fold.key, fold.text, fold.covers, by_ref)
    for reminder in ledger.reminders:
        yield from _check_users_voice(reminder.key, reminder.text, reminder.sources, by_ref)


def _is_result_in_users_voice(entry: Entry) -> bool:
    """Whether an entry came as a result and the user says it, as text. Late results are sent as text too.

    Those are quoted in the model's voice.
    """
    if entry.role is not Role.USER:
        return False
    return begins_with(entry.segment.parts, ToolResult) and begins_with(entry.parts, Text)


def _check_users_voice(
    key: str, text: str, sources: tuple[Ref, ...], by_ref: dict[Ref, Segment]
) -> Iterator[str]:
    """In the user's voice a digest or a reminder has a title, headings, and words of the user.

    A sentence of somebody else's that is long enough not to be there by chance must not be in it, unless the
    user said the same.
    """
    texts_of_user: list[str] = []
    texts_of_others: list[str] = []
    for segment in filter(None, map(by_ref.get, sources)):
        texts = texts_of_user if segment.role is Role.USER else texts_of_others
        texts.append(text_of(segment.parts))
    users_words = "\n".join(texts_of_user)
    for sentence in split_sentences("\n".join(texts_of_others)):
        words = sentence.text
        is_telling = len(words) > QUOTED
        if is_telling and words in text and words not in users_words:
            yield f"{key} says {words[:40]!r} in the user's voice"


def what_the_user_said_is_not_lost_in_silence(case: Case) -> Iterator[str]:
    """The user's words stand word for word while they are few; of more of them, the standing rules do.

    Few are those that together take at most a tenth of the room, or of the working window. Nobody can ask
    for a rule that nobody knows of, so a cut gives up everything else before it. A yes says nothing without
    what it accepts, so that can be read too. What was lowered by an older cut had its own room then, and a
    window over history takes out what its caller chose.
    """
    room = case.envelope.room
    if case.envelope.cut is None or room is None or case.options.window is not None:
        return
    unsaid = list(_find_unsaid(case, room))
    if not unsaid:
        return
    for entry in find_large_in_full(case):
        if not is_unrecoverable(entry, case):
            yield f"{unsaid[0]}, while {entry.ref} stands in full"
            return


def _find_unsaid(case: Case, room: int) -> Iterator[str]:
    """Words of the user that should be readable after this cut, and are not."""
    entries = case.envelope.entries
    users_entries = [entry for entry in entries if is_users_text(entry)]
    tokens = sum(case.counter.count(text_of(entry.segment.parts)) for entry in users_entries)
    free = room - min(count_fixed(entries), room)
    working = case.inputs.budget.working if case.inputs and case.inputs.budget else None
    if working is not None:
        room = min(room, working)
        free = min(free, working)
    are_few = tokens <= room // VERBATIM_PART
    rules_room = free * RULES_SHARE // 1000
    longest = rules_room // max(len(users_entries), 1)  # a longer rule may have had no room beside the others
    fold_of = map_covered(case.envelope.ledger.folds)
    lowered_now = find_lowered_now(case)
    for entry in users_entries:
        if entry.form is Form.FULL or entry.ref not in lowered_now:
            continue
        fold = fold_of.get(entry.ref)
        if fold is None:
            yield from _find_unsaid_rules(entry, text_of(entry.parts), longest)
            continue
        yield from _find_unsaid_agreement(case, entry, fold, longest)
        text = text_of(entry.segment.parts)
        if not are_few or len(text) > VERBATIM_LIMIT:
            yield from _find_unsaid_rules(entry, fold.text, longest)
        elif _join_words(clean_text(text)) not in _join_words(fold.text):
            yield f"{entry.ref} is not quoted word for word"


def _find_unsaid_rules(entry: Entry, visible_text: str, longest: int) -> Iterator[str]:
    """The rules in a message that should be readable in what is sent of it, and are not."""
    readable = _join_words(visible_text)
    for rule in find_rules(text_of(entry.segment.parts)):
        if len(rule) <= longest and _join_words(clean_text(rule)) not in readable:
            yield f"the rule {rule[:40]!r} of {entry.ref} cannot be read"


def _find_unsaid_agreement(case: Case, entry: Entry, fold: Fold, longest: int) -> Iterator[str]:
    """What the user accepted with this message, if it is short and the digest of both does not show it."""
    at = fold.covers.index(entry.ref)
    if at == 0 or not is_agreement(text_of(entry.segment.parts)):
        return
    segments = {each.ref: each.segment for each in case.envelope.entries}
    reply = segments.get(fold.covers[at - 1])
    if reply is None or reply.role is not Role.ASSISTANT:
        return
    if not all(isinstance(part, Text) for part in reply.parts):
        return
    proposal = find_proposal(text_of(reply.parts))
    if 0 < len(proposal) <= longest and proposal not in _join_words(fold.notes):
        yield f"what {entry.ref} accepts, {proposal[:40]!r}, cannot be read"


def _join_words(text: str) -> str:
    """The words of a text with one space between two: a digest indents the lines that it quotes."""
    return " ".join(split_words(text))
