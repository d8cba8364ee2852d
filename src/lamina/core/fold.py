"""Folding: a run of old steps becomes one digest that stands where the run began.

Folds append: a cut adds a digest after the earlier ones. They merge only when together they take more
than `SHARE` of the room. A digest that would not be smaller than what it stands for is not made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lamina.core.digest import digest, smallest
from lamina.core.hashing import digest as hashed
from lamina.core.kinds import Kinds
from lamina.core.ladder import goes_last
from lamina.core.ledger import digest_entry
from lamina.core.values import Entry, Fold, Form, Ref, Segment, Text
from lamina.core.weigh import Scale
from lamina.core.wording import Wording, text_of
from lamina.text.characters import ALPHANUMERIC, split_lines
from lamina.text.names import names

SHARE = 10
"""Digests may take one part in `SHARE` of the room before they merge."""

LEAST, MOST = 400, 8_000
"""Characters that a digest may use besides the user's own words; half of them are for names."""

_BETWEEN_WORDS = re.compile(f"[^{ALPHANUMERIC}]+")


def extra(room: int) -> int:
    """Characters for what is not user text: one part in 32 of the room, at four characters a token."""
    return max(LEAST, min(MOST, room // 32 * 4))


def runs(entries: Sequence[Entry], chosen: frozenset[int]) -> list[list[int]]:
    """Neighbouring chosen positions, where what is omitted already does not part them."""
    found: list[list[int]] = []
    open_run = False
    for i, entry in enumerate(entries):
        if i in chosen:
            if not open_run:
                found.append([])
            found[-1].append(i)
            open_run = True
        elif entry.form is not Form.OMITTED:
            open_run = False
    return found


def fold(run: Sequence[Entry], *, spare: int, cut: int, kinds: Kinds, bounded: bool = False) -> Fold:
    """A digest of these entries. `spare` characters go to calls, paths and the rest; the user's words stay.

    `bounded`: the last resort, in which even these must fit into `spare`; with none, one line is left.
    """
    covers = tuple(entry.ref for entry in run)
    segments = [entry.source for entry in run if entry.segment.origin != "lamina"]
    if bounded:
        text = digest(segments, limit=spare) if spare else smallest(segments)
    else:
        limit = spare // 2 + said(entry.source for entry in run if goes_last(entry, kinds))
        named = names((text_of(segment.parts) for segment in segments), limit=spare - spare // 2)
        text = digest(segments, limit=limit) + (f"\n  names: {named}" if named else "")
    return Fold(key=f"fold-{hashed(covers)[:12]}", covers=covers, text=text, cut=cut)


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


def cost(fold_: Fold, at: Entry, scale: Scale, wording: Wording) -> int:
    """Tokens of a fold's digest, as a message of its own."""
    framing = scale.counter.framing
    return scale.body(digest_entry(fold_, at=at, wording=wording)) + framing.message


def neighbours(entries: Sequence[Entry], folds: Sequence[Fold], *, least: int) -> list[list[Fold]]:
    """Folds whose digests stand side by side in `entries`, in runs of at least `least`."""
    known = {Ref(f.key): f for f in folds}
    groups: list[list[Fold]] = [[]]
    for entry in entries:
        if entry.ref in known:
            groups[-1].append(known[entry.ref])
        elif entry.form is not Form.OMITTED:
            groups.append([])
    return [group for group in groups if len(group) >= least]
