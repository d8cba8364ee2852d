"""How often the model itself wrote each name: in its texts, and in what it asked of tools.

What a model needs next is most often what it worked with itself. Of the names that a cut hides, those that it
wrote often and not long ago are listed first (notes/planner.md has what that is worth).
"""

from __future__ import annotations

from collections import Counter as Tally
from operator import is_
from typing import NamedTuple

from lamina.core.text.names import count_written_names
from lamina.core.values import Role, Segment, Text, ToolCall
from lamina.core.wording import text_of

HALF_LIFE = 50
"""Messages after which a use weighs half as much as a new one."""

_PRECISION = 1_000_000
"""Weights are whole numbers, so that every machine agrees."""


class NameUses(NamedTuple):
    """The uses of names in a log: how often each was written, and the position where it was written last."""

    log: tuple[Segment, ...]
    counts: Tally[str]
    last: dict[str, int]

    def read(self, log: tuple[Segment, ...]) -> NameUses:
        """The uses in a log. Only its new part is read if it continues the log of these uses."""
        start = len(self.log)
        continues = start <= len(log) and all(map(is_, self.log, log))
        if not continues:
            return NO_USES.read(log)
        counts = self.counts.copy()
        last = self.last.copy()
        for at in range(start, len(log)):
            written = count_written_names(text_of(find_written(log[at])))
            counts.update(written)
            last.update(dict.fromkeys(written, at))
        return NameUses(log, counts, last)

    def rank(self, names: Tally[str]) -> list[str]:
        """The names, those first that the model wrote often and lately; the others by how often they stand.

        A name weighs `uses / (HALF_LIFE + age)`, with the age of its last use in messages.
        """
        by_frequency = [name for name, _ in names.most_common()]
        return sorted(by_frequency, key=self._weigh, reverse=True)

    def _weigh(self, name: str) -> int:
        uses = self.counts[name]
        if not uses:
            return 0
        age = len(self.log) - self.last[name]
        return uses * _PRECISION // (HALF_LIFE + age)


NO_USES = NameUses((), Tally(), {})


def find_written(segment: Segment) -> list[Text | ToolCall]:
    """The parts of a segment that the model wrote: texts and calls, no results and no thinking."""
    if segment.role is not Role.ASSISTANT or segment.is_own:
        return []
    return [part for part in segment.parts if isinstance(part, Text | ToolCall)]
