"""The laws, as code: each takes a case and yields what breaks it.

`seal` checks on every build what the build or the ledger could have broken. `audit` checks every law as
strictly as it is written, on one request or on two in a row. The name of a function is the name of its law.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from lamina.core.arrange import is_worded
from lamina.core.build import build
from lamina.core.cut_moves import find_untouchable
from lamina.core.cut_target import count_fixed
from lamina.core.entries import (
    OWN_TURN_ONLY,
    VERBATIM_LIMIT,
    begins_with,
    find_attachments,
    find_first_answer,
    find_logged,
    identify_attachment,
    index_by_ref,
    is_attachment,
    is_long_message,
    is_users_text,
    may_repeat,
)
from lamina.core.envelope import (
    Envelope,
    find_gained_authority,
    find_overflow,
    find_unpaired,
    find_wrong_parts,
    prefix_at,
)
from lamina.core.folds import FOLD_VERSION, RULES_SHARE, VERBATIM_PART, map_covered
from lamina.core.hashing import canonical_json, handle
from lamina.core.kinds import Kinds, has_tag
from lamina.core.ledger import current_turn, said_beside_results
from lamina.core.options import DEFAULT_OPTIONS, Options
from lamina.core.orders import goes_last
from lamina.core.recall import identify_segments, index_by_name
from lamina.core.text.characters import WHITE_SPACE, split_words
from lamina.core.text.excerpts import clean_text
from lamina.core.text.gist import find_proposal
from lamina.core.text.standing_rules import find_rules, is_agreement
from lamina.core.tokens import ESTIMATE, Counter, part_cost
from lamina.core.values import (
    Budget,
    Cut,
    Digest,
    Entry,
    Fold,
    Form,
    Layer,
    Ledger,
    Part,
    Ref,
    Role,
    Segment,
    Text,
    ToolCall,
    ToolResult,
)
from lamina.core.wording import has_balanced_tags, text_of
from lamina.errors import LawBroken

SMALL = 100
"""Tokens below which lowering may not pay, so an entry may be sent in full at the floor."""

QUOTED = 30
"""Characters of a line that a digest cannot have by chance."""

BY_CHOICE = frozenset(("empty", OWN_TURN_ONLY))
"""Reasons of entries that are left out for another reason than the room."""


class BuildInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What a request was built with, besides its log and head: enough to build it once more."""

    budget: Budget | None = None
    ledger: Ledger = Ledger()
    idle: float = 0


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A request, the log that it was built from, and the request before it, if any."""

    log: tuple[Segment, ...]
    envelope: Envelope
    before: Envelope | None = None
    counter: Counter = ESTIMATE
    options: Options = DEFAULT_OPTIONS
    inputs: BuildInputs | None = None

    @property
    def kinds(self) -> Kinds:
        """The table of kinds that the request was built with."""
        return self.options.kinds

    @property
    def has_new_cut(self) -> bool:
        """Whether a cut was recorded since the request before.

        Without a request before there is nothing that a cut could have changed.
        """
        if self.before is None:
            return False
        return len(self.envelope.ledger.cuts) > len(self.before.ledger.cuts)

    @property
    def history_continues(self) -> bool:
        """Whether the log continues that of the request before: nothing in it was edited or taken back."""
        if self.before is None:
            return False
        refs_before = _logged_refs(self.before)
        return _logged_refs(self.envelope)[: len(refs_before)] == refs_before


def audit(case: Case) -> None:
    """Raises LawBroken with the first law that does not hold.

    The name in the error is that of the function, and of the property test for the law.
    """
    for name, law in LAWS.items():
        for problem in law(case):
            raise LawBroken(name, problem)


def deterministic(case: Case) -> Iterator[str]:
    """Built again from the same inputs, it is the same; and its hashes say what was sent.

    Equal log, head, budget, ledger, counter and idle time give equal bytes, whatever the clock, the hash
    seed, the process or the machine. A memo may make a build faster, and never changes it.
    """
    envelope = case.envelope
    if prefix_at(envelope.entries, len(envelope.sent), envelope.root) != envelope.prefix:
        yield "the prefix hash is not that of the last entry sent"
    if case.inputs is None:
        return
    again = build(
        case.log,
        head=envelope.head,
        budget=case.inputs.budget,
        ledger=Ledger.load(case.inputs.ledger.dump()),
        counter=case.counter,
        idle=case.inputs.idle,
        options=case.options,
    )
    if not is_same_request(envelope, again):
        yield "built again from the same inputs, it is another request"


def is_same_request(one: Envelope, other: Envelope) -> bool:
    """Whether two requests are equal byte for byte: entries, account and ledger."""
    return canonical_json(_comparable_fields(one)) == canonical_json(_comparable_fields(other))


def _comparable_fields(envelope: Envelope) -> tuple[object, ...]:
    """What must be equal when a request is built again."""
    return (envelope.entries, envelope.account, envelope.ledger, envelope.root, envelope.notes)


def within_the_room(case: Case) -> Iterator[str]:
    """A request has at most as many tokens as its room.

    The room is the window less the reserve, by the counter in use. If a request cannot be that small, the
    build raises `BudgetExceeded` and there is nothing to audit.
    """
    yield from find_overflow(case.envelope)


def append_only_within_an_epoch(case: Case) -> Iterator[str]:
    """Without a new cut, the last stream, up to its tail, is a prefix of this one.

    When a turn ends, its entries become history in the same order and with the same bytes. What leaves with
    its turn is the tail, behind which nothing was cached.
    """
    if case.before is None or case.has_new_cut:
        return
    sent_before = _list_sent(case.before.lasting)
    sent_now = _list_sent(case.envelope.sent)
    if sent_now[: len(sent_before)] != sent_before:
        yield "bytes already sent have changed and no cut is recorded"


def _list_sent(entries: Iterable[Entry]) -> list[tuple[Digest, bool]]:
    """The bytes of each entry, and whether they open a message: what a provider would compare."""
    return [(entry.sent, entry.opens) for entry in entries]


def forms_never_rise(case: Case) -> Iterator[str]:
    """While the history is unchanged, no form rises. The prompt is whole, whatever the client changed.

    A line or fold of the ledger holds only as long as everything that it covers is in the log, unchanged and
    in order. If the client edited its history, what no longer holds is undone at a recorded cut.
    """
    yield from _check_prompt(case)
    yield from _check_folds(case)
    if case.before is None or not case.history_continues:
        return
    entries_before = {entry.ref: entry for entry in case.before.entries}
    for entry in find_logged(case.envelope.entries):
        before = entries_before.get(entry.ref, entry)  # what is new has nothing to be compared with
        yield from _compare_forms(before, entry, case)


def _compare_forms(before: Entry, entry: Entry, case: Case) -> Iterator[str]:
    """What is wrong with the form of an entry, beside that of the same entry in the request before.

    Other words in the same form are allowed only at a recorded cut.
    """
    if entry.form < before.form:
        return
    if entry.form > before.form:
        if not _may_move(entry, case):
            yield f"{entry.ref} rose from {before.form} to {entry.form}"
        return
    if entry.sent != before.sent and not case.has_new_cut:
        yield f"{entry.ref} was reworded"


def _may_move(entry: Entry, case: Case) -> bool:
    """Whether the hoisted layout may put an attachment elsewhere, which it does at a recorded cut.

    An attachment is only named while it stands in the library. If a cut lowers it there, it is sent in full
    in its own turn.
    """
    if case.options.layout.library != "hoisted" or not case.has_new_cut:
        return False
    return is_attachment(entry, case.kinds)


def _check_prompt(case: Case) -> Iterator[str]:
    """The prompt is sent in full, and of the last step only results that do not fit are touched.

    Thinking may be left out even there: a provider refuses it if its past has changed.
    """
    for entry in _find_touched_now(case):
        is_prompt = entry.layer is Layer.PROMPT or said_beside_results(entry)
        is_thinking = entry.segment.kind == "thinking"
        if is_prompt:
            yield f"the prompt {entry.ref} is sent {entry.form}"
        elif entry.form is Form.OMITTED and not is_thinking:
            yield f"{entry.ref} of the last step is not sent"
        elif begins_with(entry.segment.parts, ToolCall):
            yield f"the call {entry.ref} of the last step is sent {entry.form}"


def _find_touched_now(case: Case) -> Iterator[Entry]:
    """What belongs to the prompt or the last step, and is not sent in full although it came in order.

    A filter, or a format that cannot express everything, may leave out anything. An attachment may be
    replaced by a reference to equal content.
    """
    options = case.options
    if options.layout.include or options.layout.exclude:
        return
    if options.carries is not None:
        return
    entries = case.envelope.entries
    repairs = case.envelope.ledger.repairs
    for at in current_turn(entries):
        entry = entries[at]
        if entry.form is Form.FULL or entry.ref in repairs:
            continue
        if not is_attachment(entry, case.kinds):
            yield entry


def _check_folds(case: Case) -> Iterator[str]:
    """A fold covers what is in the log, in order, and nothing that must be sent.

    Otherwise its digest would speak of something that the user took back, or instead of the prompt.
    """
    entries = case.envelope.entries
    position_of = index_by_ref(entries)
    must_stand = _find_protected(entries)
    for fold in case.envelope.ledger.folds:
        covered = [position_of.get(ref) for ref in fold.covers]
        positions = [at for at in covered if at is not None]
        if len(positions) < len(covered):
            yield f"{fold.key} covers what is not in the log"
        if positions != sorted(positions):
            yield f"{fold.key} covers what stands in another order"
        for ref in must_stand.intersection(fold.covers):
            yield f"{fold.key} covers {ref}, which must stand"


def _find_protected(entries: Sequence[Entry]) -> set[Ref]:
    """What must be sent: the prompt, the last step, system text and what is pinned.

    No fold may cover any of it, whatever was current when the fold was made.
    """
    protected = {entries[at].ref for at in current_turn(entries)}
    for entry in entries:
        if entry.role is Role.SYSTEM or entry.segment.pinned:
            protected.add(entry.ref)
    return protected


def calls_and_results_pair(case: Case) -> Iterator[str]:
    """Each call has its one result before anything else is said; no result stands alone.

    Every provider refuses a request in which they do not pair, whatever the log looked like.
    """
    yield from find_unpaired(case.envelope.sent)


def conservation(case: Case) -> Iterator[str]:
    """Every segment is exactly one entry with a reason, and the parts sum to the total.

    Nothing disappears without an explanation, and no token of the account belongs to two of its lines.
    """
    entry_refs = Tally(_logged_refs(case.envelope))
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
    for entry in _find_large_in_full(case):
        if not _is_unrecoverable(entry, case):
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
        if entry.form is Form.FULL or not _is_unrecoverable(entry, case):
            continue
        is_users = entry.segment.role is Role.USER
        may_be_quoted = is_users and not is_attachment(entry, case.kinds)
        is_folded = entry.ref in fold_of
        is_shortened = entry.form is Form.COMPACT and position > first_answer and is_long_message(entry)
        if not may_be_quoted or not (is_folded or is_shortened):
            lost.append(entry)
    return lost


def _find_lost_for_room(lost: Sequence[Entry], case: Case) -> list[Entry]:
    """Those of the lost entries that the cut of this request lowered for want of room.

    An older cut had its own reasons, and what stood in full then may be gone now.
    """
    lowered_now = _find_lowered_now(case)
    window = case.options.window
    if window is not None:
        lowered_now -= window.may_take(case.envelope.entries)
    return [entry for entry in lost if entry.ref in lowered_now]


def _find_lowered_now(case: Case) -> set[Ref]:
    """Everything that the cut of this request put under a digest or gave a line in the ledger.

    A line or fold has the number of its cut, so older ones can be told apart.
    """
    cut = case.envelope.cut
    if cut is None:
        return set()
    ledger = case.envelope.ledger
    lowered_now = {ref for ref, line in ledger.lines.items() if line.cut == cut.number}
    for fold in ledger.folds:
        if fold.cut == cut.number:
            lowered_now.update(fold.covers)
    return lowered_now


def _find_large_in_full(case: Case) -> Iterator[Entry]:
    """Entries that are sent in full, although a cut may lower them and would gain by it.

    Lowering something small may not make it smaller, so small entries prove nothing.
    """
    protected = find_untouchable(case.envelope.entries)
    for at, entry in enumerate(case.envelope.entries):
        if at in protected or entry.segment.is_own:
            continue
        is_large = entry.tokens > SMALL
        if is_large and entry.form is Form.FULL:
            yield entry


def _is_unrecoverable(entry: Entry, case: Case) -> bool:
    """Whether an entry cannot be had again, and was not left out by choice.

    System text cannot be had again either, but no cut touches it.
    """
    if entry.segment.is_own or entry.role is Role.SYSTEM:
        return False
    if entry.why in BY_CHOICE:
        return False
    return goes_last(entry, case.kinds)


def once_in_full(case: Case) -> Iterator[str]:
    """Equal content of attachments is sent in full once, however short. What is pinned may repeat it.

    Later appearances refer to the first. Changed content is sent anew, and the old bytes stay where they are.
    """
    attachments = find_attachments(case.envelope.sent, case.kinds)
    identities: set[str] = set()
    for entry in attachments:
        if entry.form is not Form.FULL:
            continue
        identity = identify_attachment(entry)
        if identity in identities and not may_repeat(entry):
            yield f"{entry.ref} stands in full twice"
        identities.add(identity)
    # A name shows one content in the library.
    library = [entry for entry in attachments if entry.layer is Layer.LIBRARY]
    yield from _find_names_twice(library)
    yield from _check_turn_names(case)
    yield from _find_repeated_library(library, attachments)


def _find_repeated_library(library: Iterable[Entry], attachments: Iterable[Entry]) -> Iterator[str]:
    """Attachments of this turn whose words stand in the library too: they are named there, not repeated.

    If a cut has left only a handle in the library, the words are sent again where they are asked for.
    """
    in_library = {identify_attachment(entry) for entry in library if entry.form >= Form.COMPACT}
    for entry in attachments:
        if entry.layer is not Layer.TURN or entry.form < Form.COMPACT or may_repeat(entry):
            continue
        if identify_attachment(entry) in in_library:
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


def lowering_shrinks(case: Case) -> Iterator[str]:
    """A lower form has fewer tokens than the full one, in a tag or not, in the library or not.

    What the format cannot express has no full form there, so its stub is compared with nothing.
    """
    carries = case.options.carries
    for entry in find_logged(case.envelope.entries):
        if entry.form in (Form.FULL, Form.OMITTED):
            continue
        if carries is not None and carries(entry.segment):
            continue
        tokens_in_full = _count_tokens(_find_full_parts(entry, case), case)
        tokens = _count_tokens(entry.parts, case)
        if tokens > tokens_in_full:
            yield f"{entry.ref} has {tokens} tokens lowered and {tokens_in_full} in full"
    yield from _check_cut_shrinks(case.envelope.cut)


def _check_cut_shrinks(cut: Cut | None) -> Iterator[str]:
    """A cut that lowered something left fewer tokens than there were.

    An edit by the client is recorded as a cut as well, and lowers nothing.
    """
    if cut is None or not cut.lowered:
        return
    if cut.after >= cut.before:
        yield f"cut {cut.number} went from {cut.before} to {cut.after} tokens"


def _find_full_parts(entry: Entry, case: Case) -> Sequence[Part]:
    """The parts of an entry as they would be sent in full."""
    wording = case.options.wording
    if entry.layer is Layer.LIBRARY:
        length = len(text_of(entry.source.parts))
        return wording.prior(entry.source, entry.content, limit=length)
    if is_worded(entry.segment, case.options.wording):
        return wording(entry.source, Form.FULL, entry.content)
    return entry.source.parts


def _count_tokens(parts: Sequence[Part], case: Case) -> int:
    """Tokens of these parts, without the framing of a message."""
    return sum(part_cost(part, case.counter) for part in parts)


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
    for fold in case.envelope.ledger.folds:
        if fold.version >= FOLD_VERSION:
            yield from _check_digest_voices(fold, by_ref)


def _is_result_in_users_voice(entry: Entry) -> bool:
    """Whether an entry came as a result and the user says it, as text. Late results are sent as text too.

    Those are quoted in the model's voice.
    """
    if entry.role is not Role.USER:
        return False
    return begins_with(entry.segment.parts, ToolResult) and begins_with(entry.parts, Text)


def _check_digest_voices(fold: Fold, by_ref: dict[Ref, Segment]) -> Iterator[str]:
    """In the user's voice a digest has a title, headings, and words of the user.

    A line of somebody else's that is long enough not to be there by chance must not be in it, unless the user
    said the same.
    """
    texts_of_user: list[str] = []
    lines_of_others: list[str] = []
    for ref in fold.covers:
        segment = by_ref.get(ref)
        if segment is None:
            continue
        text = text_of(segment.parts)
        if segment.role is Role.USER:
            texts_of_user.append(text)
        else:
            lines_of_others += text.split("\n")
    users_words = "\n".join(texts_of_user)
    for line in lines_of_others:
        words = line.strip(WHITE_SPACE)
        is_telling = len(words) > QUOTED
        if is_telling and words in fold.text and words not in users_words:
            yield f"{fold.key} says {words[:40]!r} in the user's voice"


def what_the_user_said_is_not_lost_in_silence(case: Case) -> Iterator[str]:
    """The user's words stand word for word while they are few; of more of them, the standing rules do.

    Few are those that together take at most a tenth of the room. Nobody can ask for a rule that nobody knows
    of, so a cut gives up everything else before it. A yes says nothing without what it accepts, so that can
    be read too. What was lowered by an older cut had its own room then, and a window over history takes out
    what its caller chose.
    """
    room = case.envelope.room
    if case.envelope.cut is None or room is None or case.options.window is not None:
        return
    unsaid = list(_find_unsaid(case, room))
    if not unsaid:
        return
    for entry in _find_large_in_full(case):
        if not _is_unrecoverable(entry, case):
            yield f"{unsaid[0]}, while {entry.ref} stands in full"
            return


def _find_unsaid(case: Case, room: int) -> Iterator[str]:
    """Words of the user that should be readable after this cut, and are not."""
    entries = case.envelope.entries
    users_entries = [entry for entry in entries if is_users_text(entry)]
    tokens = sum(case.counter.count(text_of(entry.segment.parts)) for entry in users_entries)
    are_few = tokens <= room // VERBATIM_PART
    most_characters = (room - min(count_fixed(entries), room)) * RULES_SHARE // 1000
    fold_of = map_covered(case.envelope.ledger.folds)
    lowered_now = _find_lowered_now(case)
    for entry in users_entries:
        if entry.form is Form.FULL or entry.ref not in lowered_now:
            continue
        text = text_of(entry.segment.parts)
        fold = fold_of.get(entry.ref)
        visible_text = text_of(entry.parts)
        if fold is not None:
            visible_text = fold.text
        readable = _join_words(visible_text)
        if fold is not None:
            yield from _find_unsaid_agreement(
                case, entry, fold, most_characters // max(len(users_entries), 1)
            )
        if are_few and fold is not None and len(text) <= VERBATIM_LIMIT:
            if _join_words(clean_text(text)) not in readable:
                yield f"{entry.ref} is not quoted word for word"
            continue
        for rule in find_rules(text):
            is_bounded = len(rule) <= most_characters // max(len(users_entries), 1)
            if is_bounded and _join_words(clean_text(rule)) not in readable:
                yield f"the rule {rule[:40]!r} of {entry.ref} cannot be read"


def _find_unsaid_agreement(case: Case, entry: Entry, fold: Fold, most_characters: int) -> Iterator[str]:
    """What the user accepted with this message, if it is short and the digest of both does not show it."""
    if not is_agreement(text_of(entry.segment.parts)):
        return
    at = fold.covers.index(entry.ref)
    segments = {each.ref: each.segment for each in case.envelope.entries}
    reply = segments.get(fold.covers[at - 1]) if at else None
    if reply is None or reply.role is not Role.ASSISTANT:
        return
    if not all(isinstance(part, Text) for part in reply.parts):
        return
    proposal = find_proposal(text_of(reply.parts))
    if 0 < len(proposal) <= most_characters and proposal not in _join_words(fold.notes):
        yield f"what {entry.ref} accepts, {proposal[:40]!r}, cannot be read"


def _join_words(text: str) -> str:
    """The words of a text with one space between two: a digest indents the lines that it quotes."""
    return " ".join(split_words(text))


def _logged_refs(envelope: Envelope) -> list[Ref]:
    """The refs of what came from the log, in the order of the stream."""
    return [entry.ref for entry in find_logged(envelope.entries)]


LAWS: dict[str, Callable[[Case], Iterator[str]]] = {
    law.__name__: law
    for law in (
        deterministic,
        within_the_room,
        append_only_within_an_epoch,
        forms_never_rise,
        calls_and_results_pair,
        conservation,
        nothing_is_lost,
        what_cannot_be_recovered_goes_last,
        once_in_full,
        lowering_shrinks,
        untouched_means_untouched,
        no_authority_is_gained,
        what_the_user_said_is_not_lost_in_silence,
    )
}
"""Every law by its name, in the order in which `audit` checks them."""
