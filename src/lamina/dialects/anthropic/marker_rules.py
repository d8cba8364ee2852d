"""Rules of the Messages API about cache markers. Each docstring begins with the rule's number."""

from __future__ import annotations

from lamina.dialects.anthropic.markers import LONG_LIFETIME, MARKER_LIMIT
from lamina.dialects.anthropic.readings import Breaches, MessagesReading


def marks_are_few(reading: MessagesReading) -> Breaches:
    """A12: at most four cache markers, the one for the whole request included."""
    count = len(reading.markers)
    if count > MARKER_LIMIT:
        first_too_many = reading.markers[MARKER_LIMIT]
        yield first_too_many.place, f"at most {MARKER_LIMIT} blocks may have cache_control; found {count}"


def long_marks_come_first(reading: MessagesReading) -> Breaches:
    """A12: markers with ttl 1h come before those with 5m.

    5m, 1h breaks the rule; 1h, 5m and 1h, 1h do not.
    """
    short_seen = False
    for marker in reading.markers:
        if marker.lifetime != LONG_LIFETIME:
            short_seen = True
        elif short_seen:
            yield marker.place, "a ttl='1h' cache_control block must not come after a ttl='5m' one"


def marks_are_allowed(reading: MessagesReading) -> Breaches:
    """A12: no marker on thinking."""
    for marker in reading.markers:
        if marker.is_refused:
            yield marker.place, "cache_control cannot be set for thinking blocks"
