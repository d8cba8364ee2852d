"""Folding: a run of old steps becomes one digest that stands where the run began.

Folds append: a cut adds a digest after the earlier ones. They merge only when together they take more
than `SHARE` of the room. A digest that would not be smaller than what it stands for is not made. System text
is never folded: it stands among the digest's two voices, and a run goes on behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lamina.core.digests import digest, smallest
from lamina.core.hashing import digest as hashed
from lamina.core.kinds import Kinds
from lamina.core.ledger import lay_folds
from lamina.core.orders import goes_last
from lamina.core.scale import Scale
from lamina.core.text.characters import ALPHANUMERIC, split_lines
from lamina.core.text.names import names
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


def extra(room: int) -> int:
    """Characters for what is not user text: one part in 32 of the room, at four characters a token."""
    return max(LEAST, min(MOST, room // 32 * 4))


def runs(entries: Sequence[Entry], chosen: frozenset[int]) -> list[list[int]]:
    """Neighbouring chosen positions. What is omitted already, and system text, does not part them."""
    found: list[list[int]] = []
    open_run = False
    for i, entry in enumerate(entries):
        if i in chosen:
            if not open_run:
                found.append([])
            found[-1].append(i)
            open_run = True
        elif entry.form is not Form.OMITTED and entry.role is not Role.SYSTEM:
            open_run = False
    return found


def fold(run: Sequence[Entry], *, spare: int, cut: int, kinds: Kinds, bounded: bool = False) -> Fold:
    """A digest of these entries. `spare` characters go to calls, paths and the rest; the user's words stay.

    `bounded`: the last resort, in which even these must fit into `spare`; with none, one line is left.
    """
    covers = tuple(entry.ref for entry in run)
    key = f"fold-{hashed(covers)[:20]}"
    segments = [entry.source for entry in run if entry.segment.origin != "lamina"]
    title = smallest(segments)
    if bounded and not spare:
        return Fold(key=key, covers=covers, text=title, cut=cut, speaks=False, version=FOLD_VERSION)
    if bounded:
        texts = digest(segments, words_limit=spare * 3 // 4, notes_limit=spare // 4, kinds=kinds)
        notes = texts.notes
    else:
        words_limit = TITLE_ROOM + said(entry.source for entry in run if goes_last(entry, kinds))
        texts = digest(segments, words_limit=words_limit, notes_limit=spare // 2, kinds=kinds)
        listed = names((text_of(segment.parts) for segment in segments), limit=spare - spare // 2)
        notes = "\n".join(filter(None, (texts.notes, f"  names: {listed}" if listed else "")))
    return Fold(
        key=key,
        covers=covers,
        text=texts.words,
        notes=notes,
        speaks=texts.words != title,
        cut=cut,
        version=FOLD_VERSION,
    )


def keeps(text: str, segments: Iterable[Segment]) -> bool:
    """Whether a digest has the words of these segments, whatever stands between them."""
    there = _plain(text)
    return all(_plain(line) in there for s in segments for line in split_lines(text_of(s.parts)))


def _plain(text: str) -> str:
    return _BETWEEN_WORDS.sub("", text)


def said(segments: Iterable[Segment]) -> int:
    """Characters of words that must stay, with what printing them on lines of their own adds."""
    texts = (part.text for segment in segments for part in segment.parts if isinstance(part, Text))
    return sum(len(text) + 4 * text.count("\n") + 40 for text in texts)


def cost(made: Fold, run: Sequence[Entry], scale: Scale, wording: Wording) -> int:
    """Tokens of a fold's digest, as messages of its own, at their most."""
    laid = lay_folds(run, (made,), wording=wording)
    digests = [entry for entry in laid if entry.form is not Form.OMITTED]
    return sum(scale.body(entry) + scale.counter.framing.message for entry in digests)


def neighbours(entries: Sequence[Entry], folds: Sequence[Fold], *, least: int) -> list[list[Fold]]:
    """Folds whose digests stand side by side in `entries`, in runs of at least `least`."""
    by_key = {Ref(each.key): each for each in folds}
    by_covered = {ref: each for each in folds for ref in each.covers}
    groups: list[list[Fold]] = [[]]
    for entry in entries:
        owner = by_key.get(entry.ref) or by_covered.get(entry.ref)
        if owner is not None:
            if owner not in groups[-1]:
                groups[-1].append(owner)
        elif entry.form is not Form.OMITTED and not _is_transparent(entry):
            groups.append([])
    return [group for group in groups if len(group) >= least]


def _is_transparent(entry: Entry) -> bool:
    """System text and lamina's own lines do not part two digests."""
    return entry.role is Role.SYSTEM or entry.segment.origin == "lamina"
