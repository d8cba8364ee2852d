"""Takes off the cache markers that the API would refuse, and shortens lifetimes where their order is wrong.

As few markers as possible are changed. None gets a longer lifetime, which would cost the client money.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.dialects.anthropic.mark import mark
from lamina.dialects.anthropic.markers import (
    DEFAULT_LIFETIME,
    FIELD,
    LONG_LIFETIME,
    MARKER_LIMIT,
    PlacedMarker,
    find_markers,
)
from lamina.dialects.port import Marking


def remove_refused_markers(request: dict[str, Any]) -> dict[str, Any]:
    """The request with markers that the API takes; the same object if it takes all of them."""
    markers = list(find_markers(request))
    candidates = [marker for marker in markers if not marker.is_refused]
    allowed = _put_long_first(_choose_few(candidates))
    if allowed == markers:
        return request
    automatic = ""
    places: dict[str, str] = {}
    for marker in allowed:
        if marker.place == FIELD:
            automatic = marker.lifetime
        else:
            places[marker.place] = marker.lifetime
    return mark(request, Marking(places=places, automatic=automatic))


def _choose_few(markers: list[PlacedMarker]) -> list[PlacedMarker]:
    """At most as many markers as the API takes.

    Those on tools and system text are preferred to those on messages, later ones to earlier ones.
    """
    if len(markers) <= MARKER_LIMIT:
        return markers
    newest_first = markers[::-1]
    before_messages = [marker for marker in newest_first if marker.place.startswith(("tools[", "system["))]
    ranked = dict.fromkeys((*_choose_most_valuable(markers), *before_messages, *newest_first))
    chosen = frozenset(list(ranked)[:MARKER_LIMIT])
    return [marker for marker in markers if marker in chosen]


def _choose_most_valuable(markers: Sequence[PlacedMarker]) -> list[PlacedMarker]:
    """The newest marker, and the last ones on the tools and on the system text."""
    valuable = [markers[-1]]
    for place in ("tools[", "system["):
        on_place = [marker for marker in markers if marker.place.startswith(place)]
        valuable += on_place[-1:]
    return valuable


def _put_long_first(markers: list[PlacedMarker]) -> list[PlacedMarker]:
    """Long lifetimes before short ones, with the fewest changes.

    The markers are split at some place. Before it the short ones are taken off, after it the long ones are
    made short. For 5m, 1h, 1h it is cheapest to split after the first marker and take that one off; if it is
    one of the most valuable, both others are made short instead.
    """
    if not markers:
        return []
    valuable = frozenset(_choose_most_valuable(markers))

    def count_changes(split: int) -> int:
        taken_off = [marker for marker in markers[:split] if marker.lifetime != LONG_LIFETIME]
        made_short = [marker for marker in markers[split:] if marker.lifetime == LONG_LIFETIME]
        valuable_taken_off = sum(marker in valuable for marker in taken_off)
        return len(taken_off) + len(made_short) + valuable_taken_off * (MARKER_LIMIT + 1)

    split = min(range(len(markers) + 1), key=count_changes)
    ordered = [marker for marker in markers[:split] if marker.lifetime == LONG_LIFETIME]
    for marker in markers[split:]:
        if marker.lifetime == LONG_LIFETIME:
            ordered.append(marker._replace(lifetime=DEFAULT_LIFETIME))
        else:
            ordered.append(marker)
    return ordered
