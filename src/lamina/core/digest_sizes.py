"""How large a digest may be: its part of the free room, and what of that is for words, notes and names."""

from __future__ import annotations

from typing import NamedTuple

from lamina.core.orders import CHARACTERS_PER_TOKEN

SHARE = 4
"""Digests may take one part in `SHARE` of the free room before they merge: of the room beside what no cut can
free."""

VERBATIM_PART = 10
"""While all that the user said takes at most one part in so many of the room, digests quote it word for
word."""

WORDS_SHARE, NOTES_SHARE, NAMES_SHARE = 110, 60, 80
"""Of the free room, in thousandths: what a digest may use for the user's words, for what was done, and for
names: together one part in `SHARE`. Words may also use what the other two leave. notes/planner.md has what
each of them is worth."""

RULES_SHARE = 20
"""Of the free room, in thousandths: what standing rules may take even as a last resort."""

LEAST, MOST = 400, 12_000
"""Characters that each part of a digest may use, at least and, of notes and names, at most."""

ONLY_RULES, ONE_LINE = 0, -1
"""Limits of a digest in characters that leave the rules of the user, and that leave one line."""

TITLE_ROOM = 200
"""Characters of a digest's title and headings."""


class DigestSize(NamedTuple):
    """Characters that a digest may use: for the user's words, for what was done, and for names.

    `rules`: the words that fit into their limit are rules and nothing else, as a last resort.
    """

    words: int
    notes: int
    names: int
    rules: bool = False

    @property
    def total(self) -> int:
        """Characters of the whole digest."""
        return self.words + self.notes + self.names

    def scale(self, numerator: int, denominator: int) -> DigestSize:
        """The size times a fraction."""
        return DigestSize(
            words=self.words * numerator // denominator,
            notes=self.notes * numerator // denominator,
            names=self.names * numerator // denominator,
            rules=self.rules,
        )


NO_DIGEST = DigestSize(words=0, notes=0, names=0)
"""One line, with the number of messages."""


def choose_digest_size(room: int, digest_limit: int | None) -> DigestSize:
    """The size of a digest in a room of so many tokens: a share of it, or less as a last resort.

    A `digest_limit` bounds the whole digest in characters. Even with none of them, the rules of the user
    stay, in their share of the room.
    """
    if digest_limit is None:
        return find_digest_size(room)
    if digest_limit == ONE_LINE:
        return NO_DIGEST
    if digest_limit == ONLY_RULES:
        return DigestSize(words=_characters_for(room, RULES_SHARE), notes=0, names=0, rules=True)
    return DigestSize(words=digest_limit * 3 // 4, notes=digest_limit // 4, names=0)


def find_digest_size(room: int) -> DigestSize:
    """The size of a digest in a room of so many tokens."""
    return DigestSize(
        words=max(_characters_for(room, WORDS_SHARE), LEAST // 2),
        notes=max(LEAST // 2, min(MOST, _characters_for(room, NOTES_SHARE))),
        names=max(LEAST // 2, min(MOST, _characters_for(room, NAMES_SHARE))),
    )


def _characters_for(room: int, share: int) -> int:
    """Characters for so many thousandths of a room in tokens."""
    return room * share // 1000 * CHARACTERS_PER_TOKEN
