"""Folding: a run of old steps becomes one digest that stands where the run began.

A cut adds its digests after the earlier ones. Digests merge only when together they take more than one part
in `SHARE` of the room. A digest that would not be smaller than its run is not made. System text is never
folded: it stands between the two voices of the digest, and the run goes on after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lamina.core import hashing
from lamina.core.digest_entries import lay_folds, map_covered
from lamina.core.digests import write_digest, write_title
from lamina.core.entries import find_sent
from lamina.core.kinds import Kinds
from lamina.core.orders import goes_last
from lamina.core.scale import Scale
from lamina.core.text.characters import ALPHANUMERIC, split_lines
from lamina.core.text.names import list_names
from lamina.core.values import Entry, Fold, Form, Ref, Role, Segment, Text
from lamina.core.wording import Wording, text_of

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
    """Runs of positions to fold. What is omitted already, and system text, does not end a run."""
    runs: list[list[int]] = []
    in_run = False
    for at, entry in enumerate(entries):
        if at in folded:
            if not in_run:
                runs.append([])
            runs[-1].append(at)
            in_run = True
        elif entry.form is not Form.OMITTED and entry.role is not Role.SYSTEM:
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
    """Characters of words that must stay, with what printing them on lines of their own adds."""
    characters = 0
    for segment in segments:
        for part in segment.parts:
            if isinstance(part, Text):
                characters += len(part.text) + 4 * part.text.count("\n") + 40
    return characters


def _add_names(notes: str, segments: Sequence[Segment], *, limit: int) -> str:
    """The notes, and a line with names that occur in the segments."""
    listed = list_names((text_of(segment.parts) for segment in segments), limit=limit)
    if not listed:
        return notes
    names_line = f"  names: {listed}"
    if not notes:
        return names_line
    return f"{notes}\n{names_line}"


def has_words(text: str, segments: Iterable[Segment]) -> bool:
    """Whether a digest has the words of these segments, whatever stands between them."""
    plain = _strip_to_words(text)
    for segment in segments:
        for line in split_lines(text_of(segment.parts)):
            if _strip_to_words(line) not in plain:
                return False
    return True


def _strip_to_words(text: str) -> str:
    return _BETWEEN_WORDS.sub("", text)


def measure_fold(fold: Fold, run: Sequence[Entry], scale: Scale, wording: Wording) -> int:
    """Tokens of a fold's digest, as messages of its own, at their most."""
    laid = lay_folds(run, (fold,), wording=wording)
    message_tokens = scale.counter.framing.message
    return sum(scale.body(entry) + message_tokens for entry in find_sent(laid))


def find_neighbours(entries: Sequence[Entry], folds: Sequence[Fold]) -> list[list[Fold]]:
    """Groups of folds whose digests stand side by side in `entries`."""
    by_key = {Ref(fold.key): fold for fold in folds}
    by_covered = map_covered(folds)
    groups: list[list[Fold]] = []
    group: list[Fold] = []
    for entry in entries:
        owner = by_key.get(entry.ref) or by_covered.get(entry.ref)
        if owner is not None:
            if owner not in group:
                group.append(owner)
        elif entry.form is not Form.OMITTED and not _is_transparent(entry):
            groups.append(group)
            group = []
    groups.append(group)
    return [group for group in groups if group]


def _is_transparent(entry: Entry) -> bool:
    """System text and lamina's own lines do not part two digests."""
    return entry.role is Role.SYSTEM or entry.segment.origin == "lamina"
