"""A span of requests: all of a session, or those from one number to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lamina.errors import BadInput
from lamina.inspector.built_values import BuiltCall
from lamina.inspector.settings import read_whole


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
    hint = "give the number of a request, from 0"
    return RequestSpan(read_whole(query, "from", hint=hint), read_whole(query, "to", hint=hint))
