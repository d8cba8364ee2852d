"""Folding: a run of old steps becomes one digest that stands where the run began.

A cut adds its digests after the earlier ones. Digests merge only when together they take more than one part
in `SHARE` of the room. A digest that would not be smaller than its run is not made. System text is never
folded: it stands between the two voices of the digest, and the run goes on after it.

A digest speaks in two voices. The user's words come first, in a message of the user. What the model and the
tools said follows, quoted in a message of the model. If the model speaks next, a closing line of the user's
side ends the quotation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from lamina.core import hashing
from lamina.core.digests import write_digest, write_title
from lamina.core.entries import find_sent, is_message, make_closing_line, make_own_entry, omit
from lamina.core.kinds import Kinds
from lamina.core.orders import goes_last
from lamina.core.repair import find_side
from lamina.core.text.characters import ALPHANUMERIC, split_lines
from lamina.core.text.names import list_names
from lamina.core.text.tags import wrap_in_tag
from lamina.core.tokens import Scale
from lamina.core.values import Entry, Fold, Layer, Ref, Role, Segment, Text
from lamina.core.wording import Wording, guard, text_of

FOLD_VERSION = 2

SHARE = 10
"""Digests may take one part in `SHARE` of the room before they merge."""

LEAST, MOST = 400, 8_000
"""Characters that a digest may use besides the user's own words; half of them are for names."""

TITLE_ROOM = 200
"""Characters of a digest's title and headings."""

_BETWEEN_WORDS = re.compile(f"[^{ALPHANUMERIC}]+")
"""What is not a letter or digit: "a, b" and "a\\nb" have the same words."""


def find_digest_size(room: int) -> int:
    """Characters for what is not user text: one part in 32 of the room, at four characters a token."""
    return max(LEAST, min(MOST, room // 32 * 4))


def find_runs(entries: Sequence[Entry], folded: frozenset[int]) -> list[list[int]]:
    """Runs of positions to fold. What is omitted already, and system text, does not end a run.

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
        elif is_message(entry):
            in_run = False
    return runs


def make_fold(run: Sequence[Entry], *, spare: int, cut: int, kinds: Kinds, bounded: bool = False) -> Fold:
    """A digest of these entries. It has all words of the user, and `spare` characters for everything else.

    `bounded` is the last resort: even the user's words must fit into `spare`. With 0, one line is left.
    """
    covers = tuple(entry.ref for entry in run)
    segments = [entry.source for entry in run if entry.segment.origin != "lamina"]
    title = write_title(segments)
    words = title
    notes = ""
    if not bounded:
        words_limit = TITLE_ROOM + _count_words(entry.source for entry in run if goes_last(entry, kinds))
        texts = write_digest(segments, words_limit=words_limit, notes_limit=spare // 2, kinds=kinds)
        words = texts.words
        notes = _add_names(texts.notes, segments, limit=spare - spare // 2)
    elif spare:
        texts = write_digest(segments, words_limit=spare * 3 // 4, notes_limit=spare // 4, kinds=kinds)
        words = texts.words
        notes = texts.notes
    return Fold(
        key=f"fold-{hashing.digest(covers)[:20]}",
        covers=covers,
        text=words,
        notes=notes,
        speaks=words != title,
        cut=cut,
        version=FOLD_VERSION,
    )


def _count_words(segments: Iterable[Segment]) -> int:
    """Characters of words that must stay, with what printing them on lines of their own adds.

    A message in a digest has a label before it, and four spaces before each of its lines.
    """
    characters = 0
    for segment in segments:
        for part in segment.parts:
            if isinstance(part, Text):
                characters += len(part.text) + 4 * part.text.count("\n") + 40
    return characters


def _add_names(notes: str, segments: Sequence[Segment], *, limit: int) -> str:
    """The notes, and a line with names that occur in the segments.

    By a name such as `parse_config` the model sees what it could recall.
    """
    listed = list_names((text_of(segment.parts) for segment in segments), limit=limit)
    if not listed:
        return notes
    names_line = f"  names: {listed}"
    if not notes:
        return names_line
    return f"{notes}\n{names_line}"


def has_words(text: str, segments: Iterable[Segment]) -> bool:
    """Whether a digest has the words of these segments, whatever stands between them.

    A digest indents lines and may break them elsewhere, so only letters and digits are compared.
    """
    plain = _strip_to_words(text)
    for segment in segments:
        for line in split_lines(text_of(segment.parts)):
            if _strip_to_words(line) not in plain:
                return False
    return True


def _strip_to_words(text: str) -> str:
    """The letters and digits of a text, in their order."""
    return _BETWEEN_WORDS.sub("", text)


def measure_fold(fold: Fold, run: Sequence[Entry], scale: Scale, wording: Wording) -> int:
    """Tokens of a fold's digest, as messages of its own, at their most.

    In the request it may join another message, and cost a little less.
    """
    laid = lay_folds(run, (fold,), wording=wording)
    message_tokens = scale.counter.framing.message
    return sum(scale.body(entry) + message_tokens for entry in find_sent(laid))


def find_neighbours(entries: Sequence[Entry], folds: Sequence[Fold]) -> list[list[Fold]]:
    """Groups of folds whose digests stand side by side in `entries`.

    System text and lamina's own lines do not part two digests.
    """
    owners = map_covered(folds)
    for fold in folds:
        owners[Ref(fold.key)] = fold
    groups: list[list[Fold]] = []
    group: list[Fold] = []
    for entry in entries:
        owner = owners.get(entry.ref)
        if owner is not None:
            if owner not in group:
                group.append(owner)
        elif is_message(entry) and entry.segment.origin != "lamina":
            groups.append(group)
            group = []
    groups.append(group)
    return [group for group in groups if group]


# Where digests stand in a request.


def lay_folds(entries: Sequence[Entry], folds: Iterable[Fold], *, wording: Wording) -> list[Entry]:
    """Each fold's segments omitted, and its digest where the first of them stood.

    System text among them stays. It comes after the user's words and before what is said in the model's
    voice: every provider accepts it there.
    """
    owner = map_covered(folds)
    last_covered = {owner[entry.ref].key: entry.ref for entry in entries if entry.ref in owner}
    result: list[Entry] = []
    before: Role | None = None
    opened: set[str] = set()
    with_words: set[str] = set()
    for at, entry in enumerate(entries):
        fold = owner.get(entry.ref)
        if fold is None:
            result.append(entry)
            if is_message(entry):
                before = entry.role
            continue
        if fold.key not in opened:
            opened.add(fold.key)
            if _needs_words(fold, before):
                with_words.add(fold.key)
                result.append(_make_words_entry(fold, at=entry, wording=wording))
                before = Role.USER
        result.append(omit(entry, f"folded into {fold.key}"))
        if fold.notes and entry.ref == last_covered[fold.key]:
            stands_alone = fold.key not in with_words
            result.append(_make_notes_entry(fold, at=entry, wording=wording, stands_alone=stands_alone))
            before = Role.ASSISTANT
            if _next_role(entries, at + 1, owner) is Role.ASSISTANT:
                result.append(_make_closing_entry(fold, at=entry))
                before = Role.USER
    return result


def map_covered(folds: Iterable[Fold]) -> dict[Ref, Fold]:
    """The fold of each ref that a fold covers.

    No ref is in two folds: what is folded once is never folded again on its own.
    """
    return {ref: fold for fold in folds for ref in fold.covers}


def is_digest(entry: Entry) -> bool:
    """Whether an entry is a part of a fold's digest.

    A client may log digests of its own, which are segments like any other.
    """
    return entry.segment.kind == "digest" and entry.segment.origin == "lamina"


def _needs_words(fold: Fold, before: Role | None) -> bool:
    """Whether the first voice is needed: it has words of the user, or no message of the user comes before.

    Notes in the model's voice may not begin a conversation, nor follow the model's own message.
    """
    if fold.speaks or not fold.notes:
        return True
    return before is None or find_side(before) != "user"


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
    return Segment(
        role=role, kind="digest", parts=(Text(text),), key=key, origin="lamina", covers=fold.covers
    )


def _digest_layer(at: Entry) -> Layer:
    """The layer of what the digest covers; a digest never stands in the system text or the library.

    Both are more stable than a digest, which a later cut may merge.
    """
    if at.layer in (Layer.SYSTEM, Layer.LIBRARY):
        return Layer.HISTORY
    return at.layer
