"""A digest: what stands for a run of old steps, how large it may be, what it says, and where it stands.

A cut adds its digests after the earlier ones. Digests merge only when together they take too much of the free
room. Until then a digest stays as it was sent, but for a mark at a rule that the user replaced since. A
digest that would not be smaller than its run is not made. System text is never folded: it stands between the
two voices of the digest, and the run goes on after it.

A digest speaks in two voices. The user's words come first, in a message of the user. What the model and the
tools said follows, quoted in a message of the model. If the model speaks next, a closing line of the user's
side ends the quotation.

The text is deterministic and made of the segments alone: no model is asked, and only the order of claims in
`text.gist` decides what goes first. `run_text` reads the segments. `cut_digests` decides what is folded, and
searches for the largest digest within its tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from lamina.core import hashing
from lamina.core.entries import (
    find_sent,
    is_kept,
    is_message,
    is_users_text,
    make_closing_line,
    make_own_entry,
    omit,
)
from lamina.core.orders import CHARACTERS_PER_TOKEN
from lamina.core.repair import find_side
from lamina.core.run_text import Reader, ReadSegment, RunText
from lamina.core.scale import Scale
from lamina.core.text.excerpts import clean_text, find_shown_names, list_first_names
from lamina.core.text.gist import print_gist
from lamina.core.text.tags import wrap_in_tag
from lamina.core.text.user_words import (
    QUESTION_LABEL,
    SMALLEST_DIGEST,
    LaterRule,
    SpokenMessage,
    Talk,
    mark_replaced_rules,
    print_talk,
)
from lamina.core.values import OWN_ORIGIN, Entry, Fold, Layer, Ref, Role, Segment, Text
from lamina.core.wording import Wording, guard, text_of

NOTES_TITLE = "What was done in it:"
NAMES_LABEL, READ_LABEL = "  names: ", "  read: "
"""What a digest's lines of names and of results begin with. No quoted line of a digest begins with two spaces
only."""

SHARE = 4
"""Digests may take one part in `SHARE` of the free room before they merge: of the room beside what no cut can
free."""

VERBATIM_PART = 10
"""While all that the user said takes at most one part in so many of the room, digests quote it word for
word."""

NOTES_PART, NAMES_PART = 16, 22
"""Of a digest, in hundredths: what notes on what was done, and names, may take. notes/planner.md has what
each is worth."""

RULES_SHARE = 20
"""Of the free room, in thousandths: what standing rules may take even as a last resort."""

SMALLEST, MOST = 800, 12_000
"""Characters that a digest may have in any room, and that notes and names may have in the largest."""

LEAST = 200
"""Characters worth a line of what results said."""

ONLY_RULES, ONE_LINE = 0, -1
"""Limits of a digest in characters that leave the rules of the user, and that leave one line."""

TITLE_ROOM = 200
"""Characters of a digest's title and headings."""

FOLD_VERSION = 2


class DigestText(NamedTuple):
    """A digest in two voices: the `words` of the user, and `notes` on what the model and the tools said.

    `whole`: every message of the user stands in it as it was.
    """

    words: str
    notes: str = ""
    whole: bool = True


def write_digest(run: RunText, size: int, *, verbatim: bool = False) -> DigestText:
    """What a run of turns said, in so many characters, with one line on top.

    Notes on what was done and names have their parts of it, and all that they leave is for words. Where
    nothing was called, what was said has the first claim on all of it. `verbatim` asks for every word of the
    user, if the size allows it. Replies stand among the notes: they are in the model's voice.
    """
    talk = run.talk
    notes_limit, names_limit = size * NOTES_PART // 100, size * NAMES_PART // 100
    if not run.has_calls:
        # How a long answer began can be guessed from the question, and what looks like a decision in it is
        # most often a heading of some advice.
        firm_notes = [piece for piece in run.notes if piece.claim not in ("said", "noted", "path")]
        firm_size = len(print_gist(NOTES_TITLE, firm_notes, size // 4)) if firm_notes else 0
        notes_limit = names_limit = max(size - talk.size, firm_size)
    if verbatim:
        notes_limit = min(notes_limit, size - talk.users_size)
        names_limit = min(names_limit, size - talk.users_size)
    lines: list[str] = []
    if run.notes and notes_limit >= SMALLEST_DIGEST:
        lines.append(print_gist(NOTES_TITLE, run.notes, min(MOST, notes_limit)))
    if not run.has_calls:
        names_limit -= sum(map(len, lines))
    lines += _list_names_and_facts(run, "\n".join(lines), min(MOST, names_limit))
    done = "\n".join(lines)
    printed = print_talk(run.title, talk, len(run.title) + 1 + max(size - len(done), 0), verbatim=verbatim)
    return DigestText(printed.words, "\n".join(filter(None, (printed.replies, done))), printed.whole)


def _list_names_and_facts(run: RunText, notes: str, limit: int) -> Iterator[str]:
    """A line with names that `notes` do not show, and lines with what results said.

    By a name such as `parse_config` the model sees what it could recall. Which names are in sight elsewhere
    is known when the cut ends: `cut_digests` then puts others into their room. What names leave of it is for
    facts that were read.
    """
    names = (name for name, _ in run.hidden_names.most_common())
    listed = list_first_names(names, limit=limit, in_sight=find_shown_names(notes))
    if listed:
        yield f"{NAMES_LABEL}{listed}"
    left = limit - len(listed)
    if left < LEAST:
        return
    facts = run.choose_facts(left - len(READ_LABEL))
    if facts:
        yield f"{READ_LABEL}{facts}"


def write_rules(run: RunText, *, limit: int) -> str:
    """The standing rules of a run of turns under its title, in at most `limit` characters.

    It is what stays of the user's words when there is room for nothing else.
    """
    rules = run.with_rules_alone()
    if not rules.messages:
        return run.title
    return print_talk(run.title, rules, limit).words


def measure_rules(room: int) -> int:
    """Characters that rules may take in a room of so many tokens even as a last resort."""
    return TITLE_ROOM + room * RULES_SHARE // 1000 * CHARACTERS_PER_TOKEN


def measure_digest(room: int) -> int:
    """Characters that a digest may have in a room of so many tokens."""
    return max(room // SHARE * CHARACTERS_PER_TOKEN, SMALLEST)


# A run of entries as a fold: the digest that stands for them.


def find_runs(entries: Sequence[Entry], folded: frozenset[int]) -> list[list[int]]:
    """Run of positions to fold. What is omitted already, system text and kept messages do not end a run.

    If 2, 3 and 6 are to be folded and a message stands at 5, there are two runs: 2 and 3, and 6 alone.
    """
    runs: list[list[int]] = []
    in_run = False
    for at, entry in enumerate(entries):
        if at in folded:
            if not in_run:
                runs.append([])
            runs[-1].append(at)
            in_run = True
        # Only a message of somebody ends a run: two digests side by side would each have a title and tags.
        elif is_message(entry) and not is_kept(entry):
            in_run = False
    return runs


def read_run(
    run: Sequence[Entry],
    reader: Reader,
    *,
    silent: frozenset[Ref] = frozenset(),
    later_rules: Sequence[LaterRule] = (),
) -> RunText:
    """What is in a run of entries that a digest may show. Of `silent` entries it may show nothing."""
    segments: list[ReadSegment] = []
    turns: list[int] = []
    for entry in run:
        if not entry.segment.is_own:
            is_silent = entry.ref in silent
            segments.append(reader.read_segment(entry.ref, entry.source, is_silent=is_silent))
            turns.append(entry.turn + 1)
    return RunText(segments, turns=turns, reader=reader, later_rules=later_rules)


def make_fold(run: Sequence[Entry], run_text: RunText, texts: DigestText, *, cut: int) -> Fold:
    """A digest that stands for these entries. Everything can be recalled by its key."""
    covers = tuple(entry.ref for entry in run)
    return Fold(
        key=f"fold-{hashing.digest(covers)[:20]}",
        covers=covers,
        text=texts.words,
        notes=texts.notes,
        speaks=texts.words != run_text.title,
        cut=cut,
        version=FOLD_VERSION,
        rules=_find_rules(run, run_text),
        whole=texts.whole,
        replaced_by=tuple(map(Ref, run_text.talk.replaced_by)),
    )


def _find_rules(run: Sequence[Entry], run_text: RunText) -> tuple[tuple[Ref, int], ...]:
    """The messages of the user with a standing rule in them, each with its turn, counted from 1."""
    texts = {message.text for message in run_text.talk.messages if message.rules}
    if not texts:
        return ()
    messages: list[tuple[Ref, int]] = []
    for entry in filter(is_users_text, run):
        text = clean_text(text_of(entry.source.parts))
        if text in texts:
            messages.append((entry.ref, entry.turn + 1))
    return tuple(messages)


def mark_rules(fold: Fold, entry_of: Mapping[Ref, Entry], later_rules: Sequence[LaterRule]) -> Fold:
    """The fold with a mark at each rule that the user replaced after its digest was written.

    The rest of the digest stays as it was sent, and so does all of it if there is nothing to mark.
    """
    if not fold.rules or not later_rules:
        return fold
    messages: list[SpokenMessage] = []
    for ref, turn in fold.rules:
        if ref in entry_of:
            text = clean_text(text_of(entry_of[ref].source.parts))
            messages.append(SpokenMessage(turn, QUESTION_LABEL, text))
    text = mark_replaced_rules(fold.text, messages, later_rules)
    if text == fold.text:
        return fold
    replacing = map(Ref, Talk(messages, later_rules).replaced_by)
    replaced_by = dict.fromkeys((*fold.replaced_by, *replacing))
    return msgspec.structs.replace(fold, text=text, replaced_by=tuple(replaced_by))


def measure_fold(fold: Fold, run: Sequence[Entry], scale: Scale, wording: Wording) -> int:
    """Tokens of a fold's digest, as messages of its own, at their most.

    In the request it may join another message, and cost a little less. The digest is the same wherever its
    run ends, so the first entry of the run is enough to lay it on.
    """
    laid = lay_folds(run[:1], (fold,), wording=wording)
    message_tokens = scale.counter.framing.message
    return sum(scale.body(entry) + message_tokens for entry in find_sent(laid))


def find_neighbours(entries: Sequence[Entry], folds: Sequence[Fold]) -> list[list[Fold]]:
    """Groups of folds whose digests stand side by side in `entries`.

    System text, kept messages of the user and lamina's own lines do not part two digests.
    """
    # The words of a digest stand under the key of its fold. Its notes and closing line are lamina's own, too.
    owners = map_covered(folds)
    owners |= {Ref(fold.key): fold for fold in folds}
    groups: list[list[Fold]] = [[]]
    for entry in entries:
        owner = owners.get(entry.ref)
        if owner is None:
            if is_message(entry) and not entry.segment.is_own and not is_kept(entry):
                groups.append([])
        elif owner not in groups[-1]:
            groups[-1].append(owner)
    return [group for group in groups if group]


# Where digests stand in a request.


def lay_folds(entries: Sequence[Entry], folds: Sequence[Fold], *, wording: Wording) -> list[Entry]:
    """Each fold's segments omitted, and its digest where the first of them stood.

    System text among them stays. It comes after the user's words and before what is said in the model's
    voice: every provider accepts it there.
    """
    owner = map_covered(folds)
    rule_turns = dict(chain.from_iterable(fold.rules for fold in folds))
    last_covered = {owner[entry.ref].key: entry.ref for entry in entries if entry.ref in owner}
    result: list[Entry] = []
    before: Role | None = None
    has_words: dict[str, bool] = {}  # of each fold that has begun
    for at, entry in enumerate(entries):
        fold = owner.get(entry.ref)
        if fold is None:
            result.append(entry)
            if is_message(entry):
                before = entry.role
            continue
        if fold.key not in has_words:
            has_words[fold.key] = _needs_words(fold, before)
            if has_words[fold.key]:
                result.append(_make_words_entry(fold, at=entry, wording=wording))
                before = Role.USER
        result.append(omit(entry, why_folded(fold, rule_turns.get(entry.ref))))
        if fold.notes and entry.ref == last_covered[fold.key]:
            stands_alone = not has_words[fold.key]
            result.append(_make_notes_entry(fold, at=entry, wording=wording, stands_alone=stands_alone))
            before = Role.ASSISTANT
            # Two messages of the model in a row would be one on the wire, and the quotation would go on.
            if _next_role(entries, at + 1, owner) is Role.ASSISTANT:
                result.append(_make_closing_entry(fold, at=entry))
                before = Role.USER
    return result


def why_folded(fold: Fold, rule_turn: int | None) -> str:
    """Why an entry is not sent: a digest stands for it. If a rule of it stands there, the account says so."""
    if rule_turn is None:
        return f"folded into {fold.key}"
    return f"folded into {fold.key}; kept: a standing rule of turn {rule_turn}"


def map_covered(folds: Iterable[Fold]) -> dict[Ref, Fold]:
    """The fold of each ref that a fold covers.

    No ref is in two folds: what is folded once is never folded again on its own.
    """
    return {ref: fold for fold in folds for ref in fold.covers}


def is_digest(entry: Entry) -> bool:
    """Whether an entry is a part of a fold's digest.

    A client may log digests of its own, which are segments like any other.
    """
    return entry.segment.kind == "digest" and entry.segment.is_own


def _needs_words(fold: Fold, before: Role | None) -> bool:
    """Whether the first voice is needed: it has words of the user, or no message of the user comes before.

    Notes in the model's voice may not begin a conversation, nor follow the model's own message.
    """
    if fold.speaks or not fold.notes or before is None:
        return True
    return find_side(before) != "user"


def _next_role(entries: Sequence[Entry], start: int, owner: Mapping[Ref, Fold]) -> Role:
    """Who speaks after a digest. If nobody does, the model will.

    The next digest speaks in the user's voice, unless it has only notes.
    """
    for at in range(start, len(entries)):
        entry = entries[at]
        next_fold = owner.get(entry.ref)
        if next_fold is not None:
            return Role.USER if _needs_words(next_fold, Role.USER) else Role.ASSISTANT
        if is_message(entry):
            return entry.role
    return Role.ASSISTANT


def _make_words_entry(fold: Fold, *, at: Entry, wording: Wording) -> Entry:
    """What a digest says in the user's voice: fenced data, in a message of its own."""
    text = wrap_in_tag("digest", _digest_attributes(fold, wording), guard(fold.text, wording.kinds))
    why = f"stands for {len(fold.covers)} folded segments"
    segment = _make_segment(fold, key=fold.key, role=Role.USER, text=text)
    return make_own_entry(segment, why, layer=_digest_layer(at), turn=at.turn, step=at.step)


def _make_notes_entry(fold: Fold, *, at: Entry, wording: Wording, stands_alone: bool) -> Entry:
    """What a digest quotes of the model and the tools, in the model's voice.

    If it stands alone, its tag has the attributes that the tag of the user's words would have.
    """
    attributes: dict[str, str] = {}
    if stands_alone:
        attributes = _digest_attributes(fold, wording)
    text = wrap_in_tag("digest_notes", attributes, guard(fold.notes, wording.kinds))
    why = f"says what was done in {len(fold.covers)} folded segments"
    segment = _make_segment(fold, key=f"{fold.key}!notes", role=Role.ASSISTANT, text=text)
    return make_own_entry(segment, why, layer=_digest_layer(at), turn=at.turn, step=at.step)


def _make_closing_entry(fold: Fold, *, at: Entry) -> Entry:
    """The line of the user's side that ends the quotation."""
    return make_closing_line(
        f"{fold.key}!end",
        "[end of the digest]",
        kind="digest",
        layer=_digest_layer(at),
        turn=at.turn,
        step=at.step,
    )


def _digest_attributes(fold: Fold, wording: Wording) -> dict[str, str]:
    """How many segments a digest stands for, and the key to recall them by."""
    attributes = {"covers": str(len(fold.covers))}
    if wording.handles:
        attributes["recall"] = fold.key
    return attributes


def _make_segment(fold: Fold, *, key: str, role: Role, text: str) -> Segment:
    """A segment of lamina's own for one voice of a digest. It covers what the fold covers."""
    return Segment(
        role=role, kind="digest", parts=(Text(text),), key=key, origin=OWN_ORIGIN, covers=fold.covers
    )


def _digest_layer(at: Entry) -> Layer:
    """The layer of what the digest covers; a digest never stands in the system text or the library.

    Both are more stable than a digest, which a later cut may merge.
    """
    if at.layer in (Layer.SYSTEM, Layer.LIBRARY):
        return Layer.HISTORY
    return at.layer
