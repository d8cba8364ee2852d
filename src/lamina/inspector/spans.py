"""Which requests of a session are meant: all of them, or those from one to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lamina.errors import BadInput
from lamina.inspector.built_values import BuiltCall


class RequestSpan(NamedTuple):
    """Requests by their numbers from 0, both ends included. None is without a limit."""

    first: int | None = None
    last: int | None = None

    def contains(self, number: int) -> bool:
        if self.first is not None and number < self.first:
            return False
        return self.last is None or number <= self.last

    def select(self, calls: Sequence[BuiltCall]) -> list[BuiltCall]:
        """The calls of the span. Raises BadInput if the session has none of them."""
        selected = [call for call in calls if self.contains(call.number)]
        if not selected:
            raise BadInput(
                "the session has no request of that span", place="from", hint="count from 0, from ≤ to"
            )
        return selected


WHOLE = RequestSpan()


def read_span(query: Mapping[str, str]) -> RequestSpan:
    """The span in the words of an address: `from=3&to=8`. A word that is no number raises BadInput."""
    return RequestSpan(_read_number(query, "from"), _read_number(query, "to"))


def _read_number(query: Mapping[str, str], name: str) -> int | None:
    word = query.get(name, "")
    if not word:
        return None
    if not word.isascii() or not word.isdigit():
        raise BadInput(f"{name} is {word!r}", place=name, hint="give the number of a request, from 0")
    return int(word)
