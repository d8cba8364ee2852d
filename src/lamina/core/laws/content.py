"""Laws of what is in a request: calls with their results, everything of the log, and nothing twice."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence

from lamina.core.digests import map_covered
from lamina.core.entries import (
    find_attachments,
    find_first_answer,
    find_logged,
    identify_attachment,
    index_by_ref,
    is_attachment,
    is_long_message,
    may_repeat,
    name_attachment,
)
from lamina.core.envelope import find_unpaired, find_wrong_parts
from lamina.core.hashing import handle
from lamina.core.laws.case import (
    Case,
    find_large_in_full,
    find_lowered_now,
    is_unrecoverable,
    list_logged_refs,
)
from lamina.core.passages import SHORT_MESSAGE
from lamina.core.recall import identify_segments, index_by_name
from lamina.core.references import is_named_in_library, is_reference
from lamina.core.text.characters import split_words
from lamina.core.text.excerpts import clean_text
from lamina.core.text.sentences import split_sentences
from lamina.core.turns import continues_message
from lamina.core.values import Digest, Entry, Form, Layer, Role
from lamina.core.wording import text_of

QUOTED = 30
"""Characters of a sentence that do not stand somewhere else by chance."""


def calls_and_results_pair(case: Case) -> Iterator[str]:
    """Each call has its one result before anything else is said; no result stands alone.

    Every provider refuses a request in which they do not pair, whatever the log looked like.
    """
    yield from find_unpaired(case.envelope.sent)


def conservation(case: Case) -> Iterator[str]:
    """Every segment is exactly one entry with a reason, and the parts sum to the total.

    Nothing disappears without an explanation, and no token of the account belongs to two of its lines.
    """
    entry_refs = Tally(list_logged_refs(case.envelope))
    segment_refs = Tally(each.ref for each in identify_segments(case.log))
    if entry_refs != segment_refs:
        difference = (entry_refs - segment_refs) + (segment_refs - entry_refs)
        yield f"segments and entries differ: {sorted(difference)[:5]}"
    yield from find_wrong_parts(case.envelope.entries)
    tokens = 0
    for entry in case.envelope.entries:
        tokens += entry.tokens
        if entry.form is Form.OMITTED and entry.tokens:
            yield f"{entry.ref} is {entry.form} with {entry.tokens} tokens"
    if tokens != case.envelope.account.entries:
        yield "tokens of the entries do not sum to the account"


def nothing_is_lost(case: Case) -> Iterator[str]:
    """What was lowered comes back in full by its handle, or by the key of its digest.

    The log is the only store for that: it has every segment, so a handle never expires.
    """
    by_name = index_by_name(identify_segments(case.log))
    for entry in find_logged(case.envelope.entries):
        if entry.form is Form.FULL:
            continue
        segment = by_name.get(handle(entry.content))
        if segment is None or segment.parts != entry.segment.parts:
            yield f"{entry.ref} does not come back"
    logged_refs = index_by_ref(case.envelope.entries).keys()
    for fold in case.envelope.ledger.folds:
        if not logged_refs >= set(fold.covers):
            yield f"{fold.key} does not bring back all that it covers"


def what_cannot_be_recovered_goes_last(case: Case) -> Iterator[str]:
    """What cannot be recovered is never summarised, and lowered only when everything else is.

    The user's words may be quoted instead: in a digest, or in the shortened form of a long message.

    A window over history takes out all that is beyond it.
    """
    lost = _find_lost(case)
    for entry in lost:
        is_covered = entry.why.startswith("covered by")
        if is_covered or entry.form is Form.COMPACT:
            yield f"{entry.ref} is summarised"
    lost_for_room = _find_lost_for_room(lost, case)
    if not lost_for_room:
        return
    for entry in find_large_in_full(case):
        if not is_unrecoverable(entry, case):
            yield f"{lost_for_room[0].ref} was lowered while {entry.ref} stands in full"


def _find_lost(case: Case) -> list[Entry]:
    """Entries that cannot be recovered and are lowered, unless they are words of the user that are quoted.

    Those are not lost: a digest quotes the first and the newest of them, and a long message after the first
    answer that is shortened quotes itself. The key recalls them all.
    """
    entries = case.envelope.entries
    fold_of = map_covered(case.envelope.ledger.folds)
    first_answer = find_first_answer(entries)
    lost: list[Entry] = []
    for position, entry in enumerate(entries):
        if entry.form is Form.FULL or not is_unrecoverable(entry, case):
            continue
        is_users = entry.segment.role is Role.USER
        may_be_quoted = is_users and not is_attachment(entry, case.kinds)
        if may_be_quoted and entry.ref in fold_of:
            continue
        # What came before the first answer is the task: it is never shortened in its own place.
        may_be_shortened = may_be_quoted and position > first_answer
        if may_be_shortened and entry.form is Form.COMPACT and is_long_message(entry):
            continue
        lost.append(entry)
    return lost


def _find_lost_for_room(lost: Sequence[Entry], case: Case) -> list[Entry]:
    """Those of the lost entries that the cut of this request lowered for want of room.

    An older cut had its own reasons, and what stood in full then may be gone now.
    """
    lowered_now = find_lowered_now(case)
    window = case.options.window
    if window is not None:
        lowered_now -= window.may_take(case.envelope.entries)
    return [entry for entry in lost if entry.ref in lowered_now]


def once_in_full(case: Case) -> Iterator[str]:
    """Equal content of attachments is sent in full once, however short. What is pinned may repeat it.

    Later appearances refer to the copy in full, which stands above them in the same request and is the newest
    of its name. Changed content is sent anew, and the old bytes stay where they are.
    """
    attachments = find_attachments(case.envelope.entries, case.kinds)
    yield from _check_references(attachments, case)
    # A name shows one content in the library.
    library = [entry for entry in attachments if entry.layer is Layer.LIBRARY]
    yield from _find_names_twice(library)
    yield from _check_turn_names(case)
    yield from _check_library(library, attachments)
    yield from _find_repeated_reminder(case)


def _find_repeated_reminder(case: Case) -> Iterator[str]:
    """What a reminder quotes and stands in the request besides, when its question has just been asked.

    A tool that is called later may return the same sentence, and the user may say it next: that cannot be
    helped. A short message is quoted as a whole, and may have a sentence that a digest has too.
    """
    reminders = case.envelope.ledger.reminders
    sent = case.envelope.sent
    if not reminders or sent[-1].role is Role.ASSISTANT or sent[-1].layer is Layer.STEPS:
        return
    newest = reminders[-1]
    questions = [entry for entry in sent if entry.layer is Layer.PROMPT and not continues_message(entry)]
    if not questions or questions[-1].ref != newest.before:
        return
    others = [entry for entry in sent if entry.segment.key.partition("!")[0] != newest.key]
    in_sight = " ".join(split_words(" ".join(text_of(entry.parts) for entry in others)))
    sources = [entry for entry in case.envelope.entries if entry.ref in newest.sources]
    texts = [clean_text(text_of(entry.segment.parts)) for entry in sources]
    messages = [" ".join(split_words(text)) for text in texts if len(text) <= SHORT_MESSAGE]
    quoted = list(messages)
    for line in f"{newest.text}\n{newest.notes}".split("\n"):
        sentences = [sentence.text for sentence in split_sentences(line.partition(": ")[2])]
        quoted += [text for text in sentences if not any(text in message for message in messages)]
    for text in quoted:
        if len(text) > QUOTED and text in in_sight:
            yield f"{newest.key} repeats {text[:40]!r}"


def _check_references(attachments: Iterable[Entry], case: Case) -> Iterator[str]:
    """What stands in full twice, and references to what is not in sight.

    `in_full` has, for each name, the content that a reader has read last, if it was sent in full. `changed`
    are names of which other content came since: what comes back after it is sent anew, and stays so.
    """
    in_full: dict[str, Digest] = {}
    changed: set[str] = set()
    for entry in attachments:
        name = name_attachment(entry)
        identity = identify_attachment(entry)
        is_known = in_full.get(name) == identity
        if is_reference(entry, case.kinds):
            if not is_known and not is_named_in_library(entry):
                yield f"{entry.ref} refers to what is not sent in full above it"
        elif entry.form is Form.FULL:
            if is_known and name not in changed and not may_repeat(entry):
                yield f"{entry.ref} stands in full twice"
            in_full[name] = identity
            changed.discard(name)
        elif not is_known:
            changed.add(name)
            if entry.form is not Form.OMITTED:
                in_full.pop(name, None)


def _check_library(library: Iterable[Entry], attachments: Iterable[Entry]) -> Iterator[str]:
    """Attachments of this turn and the library: what has its words there is named, and nothing else is.

    If a cut has left only a handle in the library, the words are sent again where they are asked for.
    """
    in_library = {identify_attachment(entry) for entry in library if entry.form >= Form.COMPACT}
    for entry in attachments:
        stands_there = identify_attachment(entry) in in_library
        if is_named_in_library(entry) and not stands_there:
            yield f"{entry.ref} is said to stand in the library"
        if entry.layer is not Layer.TURN or may_repeat(entry):
            continue
        if entry.form >= Form.COMPACT and stands_there:
            yield f"{entry.ref} stands in the turn and in the library"


def _check_turn_names(case: Case) -> Iterator[str]:
    """A name shows one content among the attachments of each question.

    A turn can have several questions, if the model's answer between them was empty. What came with the first
    of them was sent before the second came, so it stays. So does what came before a reminder of the system,
    or before an empty answer: a request may have ended there, and what was sent keeps its bytes.
    """
    with_question: list[Entry] = []
    for entry in case.envelope.entries:
        if entry.layer is Layer.PROMPT or _may_end_request(entry):
            yield from _find_names_twice(with_question)
            with_question.clear()
        elif entry.layer is Layer.TURN and is_attachment(entry, case.kinds):
            with_question.append(entry)
    yield from _find_names_twice(with_question)


def _may_end_request(entry: Entry) -> bool:
    """Whether a request may have ended with this, although no question was put in behind it.

    An empty answer is not sent, but it came after a request.
    """
    if entry.segment.role is Role.ASSISTANT:
        return True
    return entry.role is Role.SYSTEM and entry.layer is Layer.STEPS


def nothing_crosses(case: Case) -> Iterator[str]:
    """What lamina adds to a request stands on what is in its log, so it came from that same conversation.

    The ledger is all that a request has of earlier ones. A digest in it stands on the messages that it covers
    and on those that replace its rules. The doors see to the rest: they put a hidden call back only after the
    same messages, under the same system text.
    """
    logged_refs = index_by_ref(case.envelope.entries).keys()
    for entry in case.envelope.sent:
        if entry.segment.is_own and not logged_refs >= set(entry.segment.covers):
            yield f"{entry.ref} says what nothing in the log says"
    for fold in case.envelope.ledger.folds:
        if not logged_refs >= {*fold.covers, *fold.replaced_by}:
            yield f"{fold.key} stands on what is not in the log"
    for reminder in case.envelope.ledger.reminders:
        if not logged_refs >= {reminder.before, *reminder.sources}:
            yield f"{reminder.key} stands on what is not in the log"


def _find_names_twice(attachments: Iterable[Entry]) -> Iterator[str]:
    """Attachments whose key another one of them has. Pinned ones and overrides may repeat.

    A reader who is shown two things under one name cannot tell which of them is meant.
    """
    keys: set[str] = set()
    for entry in attachments:
        key = entry.segment.key
        if not key or may_repeat(entry) or entry.form is Form.OMITTED:
            continue
        if key in keys:
            yield f"{key} stands twice in the {entry.layer} layer"
        keys.add(key)
