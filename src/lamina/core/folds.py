"""Folding: a run of old steps becomes one digest that stands where the run began.

A cut adds its digests after the earlier ones. Digests merge only when together they take more than one part
in `SHARE` of the free room. A digest that would not be smaller than its run is not made. System text is never
folded: it stands between the two voices of the digest, and the run goes on after it.

A digest speaks in two voices. The user's words come first, in a message of the user. What the model and the
tools said follows, quoted in a message of the model. If the model speaks next, a closing line of the user's
side ends the quotation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from lamina.core import hashing
from lamina.core.digests import DigestText, write_digest, write_title
from lamina.core.entries import find_sent, is_message, make_closing_line, make_own_entry, omit
from lamina.core.kinds import Kinds
from lamina.core.orders import CHARACTERS_PER_TOKEN, goes_last
from lamina.core.repair import find_side
from lamina.core.text.names import list_names
from lamina.core.text.tags import wrap_in_tag
from lamina.core.tokens import Scale
from lamina.core.values import OWN_ORIGIN, Entry, Fold, Layer, Ref, Role, Segment, Text
from lamina.core.wording import Wording, guard, text_of

FOLD_VERSION = 2

SHARE = 4
"""Digests may take one part in `SHARE` of the free room before they merge: of the room beside what no cut can
free."""

WORDS_SHARE, NOTES_SHARE, NAMES_SHARE = 50, 60, 60
"""Of the free room, in thousandths: what a digest may use for the user's words, for what was done, and for
names. docs/planner.md has what each of them is worth."""

LEAST, MOST = 400, 12_000
"""Characters that each part of a digest may use, at least and at most."""

TITLE_ROOM = 200
"""Characters of a digest's title and headings."""


class DigestSize(NamedTuple):
    """Characters that a digest may use: for the user's words, for what was done, and for names."""

    words: int
    notes: int
    names: int

    @property
    def total(self) -> int:
        """Characters of the whole digest."""
        return self.words + self.notes + self.names

    def scale(self, numerator: int, denominator: int) -> DigestSize:
        """The size times a fraction."""
        return DigestSize(*(part * numerator // denominator for part in self))


def find_digest_size(room: int) -> DigestSize:
    """The size of a digest in a room of so many tokens."""
    return DigestSize(
        words=_characters_for(room, WORDS_SHARE),
        notes=_characters_for(room, NOTES_SHARE),
        names=_characters_for(room, NAMES_SHARE),
    )


def _characters_for(room: int, share: int) -> int:
    """Characters for so many thousandths of a room in tokens, within the bounds for a part of a digest."""
    characters = room * share // 1000 * CHARACTERS_PER_TOKEN
    return max(LEAST // 2, min(MOST, characters))


def bound_digest(characters: int) -> DigestSize:
    """The size of a digest that may have so many characters in all, as a last resort."""
    return DigestSize(words=characters * 3 // 4, notes=characters // 4, names=0)


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


def make_fold(run: Sequence[Entry], *, size: DigestSize, cut: int, kinds: Kinds) -> Fold:
    """A digest of these entries in at most this size. If it is nothing, one line is left.

    The first and the newest words of the user weigh most; where there is no room for all of them, the others
    are shortened or counted. Everything can be recalled by the key of the digest.
    """
    covers = tuple(entry.ref for entry in run)
    segments = [entry.source for entry in run if not entry.segment.is_own]
    title = write_title(segments)
    words = title
    notes = ""
    if size.total:
        words_characters = _count_words(entry.source for entry in run if goes_last(entry, kinds))
        words_limit = TITLE_ROOM + min(words_characters, size.words)
        texts = write_digest(segments, words_limit=words_limit, notes_limit=size.notes, kinds=kinds)
        words = texts.words
        notes = _add_names(texts, segments, limit=size.names)
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


def _add_names(texts: DigestText, segments: Sequence[Segment], *, limit: int) -> str:
    """The notes, and a line with names that occur in the segments and not in the digest so far.

    By a name such as `parse_config` the model sees what it could recall.
    """
    shown = f"{texts.words}\n{texts.notes}"
    contents = (text_of(segment.parts) for segment in segments)
    listed = list_names(contents, limit=limit, shown=shown)
    if not listed:
        return texts.notes
    names_line = f"  names: {listed}"
    if not texts.notes:
        return names_line
    return f"{texts.notes}\n{names_line}"


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
    owners |= {Ref(fold.key): fold for fold in folds}
    groups: list[list[Fold]] = [[]]
    for entry in entries:
        owner = owners.get(entry.ref)
        if owner is None:
            if is_message(entry) and not entry.segment.is_own:
                groups.append([])
        elif owner not in groups[-1]:
            groups[-1].append(owner)
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
    return entry.segment.kind == "digest" and entry.segment.is_own


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
