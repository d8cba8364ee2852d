"""Puts cache markers on a request of the Messages API, and takes off those that the API would refuse.

`mark` places exactly the markers that a `Marking` names, and no others. Whatever need not change stays the
same object, and the caller's request is never written to. This module knows where a marker may stand, and not
where one pays.

`check` judges the markers that are found here, and this module removes what its rules refuse. So both see the
same markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lamina.dialects.anthropic.model import (
    DEFAULT_LIFETIME,
    LONG_LIFETIME,
    MARKER,
    MARKER_LIMIT,
    UNMARKABLE_TYPES,
    read_blocks,
)
from lamina.dialects.json_values import (
    LIST_TYPES,
    Json,
    change_object,
    drop_field,
    list_or_empty,
    to_dict_or_empty,
    to_same_dict,
)
from lamina.dialects.marking import Places, mark_field, require_all_placed
from lamina.dialects.port import Marking, Request
from lamina.errors import BadInput


def mark(request: Request, marking: Marking) -> dict[str, Any]:
    """The request with these markers and no others.

    A string that must carry a marker becomes a text block.
    """
    count = len(marking.places)
    if marking.automatic:
        # The automatic one takes a place too: beside four others the API refuses it (2026-09-26).
        count += 1
    if count > MARKER_LIMIT:
        raise BadInput(
            f"{count} cache markers",
            place="marking",
            hint=f"the API takes {MARKER_LIMIT}, the automatic one included",
        )
    places = dict(marking.places)
    marked = _set_marker(request, marking.automatic or None)
    marked = mark_field(marked, "tools", "tools", places, _mark_block)
    marked = mark_field(marked, "system", "system", places, _mark_block)
    marked = mark_field(marked, "messages", "messages", places, _mark_message, is_bare=marking.is_bare)
    require_all_placed(places)
    return to_same_dict(marked)


def _mark_message(message: Any, place: str, places: Places) -> Any:
    """A message with its blocks marked. An object of the SDK becomes a dict only if a block changes."""
    content_place = f"{place}.content"
    return change_object(
        message, lambda fields: mark_field(fields, "content", content_place, places, _mark_block)
    )


def _mark_block(block: Any, place: str, places: Places) -> Any:
    """A block, and the blocks inside it if it is a result: they may carry markers too.

    `messages[3].content[0].content[1]` is the second block inside a result.
    """

    def mark_all(fields: dict[str, Any]) -> Mapping[str, Any]:
        marked = _set_marker(fields, places.pop(place, None))
        if not isinstance(fields.get("content"), LIST_TYPES):
            return marked
        return mark_field(marked, "content", f"{place}.content", places, _mark_inner_block)

    return change_object(block, mark_all)


def _mark_inner_block(block: Any, place: str, places: Places) -> Any:
    """A block inside a result. Such a block holds no further blocks."""
    return change_object(block, lambda fields: _set_marker(fields, places.pop(place, None)))


def _set_marker(holder: Mapping[str, Any], lifetime: str | None) -> Mapping[str, Any]:
    """A block or request with a marker of this lifetime, or without one (None).

    "" stands for the API's default lifetime. The same object comes back if its marker is as it should be.

    `5m` on a block that has no marker gives `{…, "cache_control": {"type": "ephemeral", "ttl": "5m"}}`.
    """
    present_lifetime = read_lifetime(holder)
    if lifetime is None and present_lifetime is not None:
        changed: Mapping[str, Any] = drop_field(holder, MARKER)
        return changed
    means_the_same = (lifetime, present_lifetime) == ("", DEFAULT_LIFETIME)
    if means_the_same or lifetime == present_lifetime:
        return holder
    marker = {"type": "ephemeral"}
    if lifetime:
        marker["ttl"] = lifetime
    return {**holder, MARKER: marker}


def remove_refused_markers(request: dict[str, Any], markers: list[PlacedMarker]) -> dict[str, Any]:
    """The request, which has these markers, with those that the API takes; the same object if it takes all.

    As few markers as possible are changed. None gets a longer lifetime, which would cost the client money.
    """
    # A client that marks the last block of each message marks thinking too, which the API refuses (A12).
    candidates = [marker for marker in markers if not marker.is_refused]
    allowed = _put_long_first(_choose_few(candidates))
    if allowed == markers:
        return request
    places = {marker.place: marker.lifetime for marker in allowed}
    automatic = places.pop(MARKER, "")
    return mark(request, Marking(places=places, automatic=automatic))


def find_all_markers(request: Request) -> list[PlacedMarker]:
    """All markers of a request, in the order in which the API reads it.

    It is how a checker finds them, for a request that no checker has read.
    """
    return find_markers(request, find_message_markers(list_or_empty(request.get("messages"))))


def find_message_markers(messages: Sequence[Any], *, first: int = 0) -> list[PlacedMarker]:
    """The markers of messages, of which the first has this position in its request."""
    markers: list[PlacedMarker] = []
    for position, message in enumerate(messages, first):
        for index, block in enumerate(read_blocks(message)):
            if may_hold_markers(block):
                markers += find_markers_on_block(block, f"messages[{position}].content[{index}]")
    return markers


def _choose_few(markers: list[PlacedMarker]) -> list[PlacedMarker]:
    """At most as many markers as the API takes.

    Those on tools and system text are preferred to those on messages, later ones to earlier ones.

    Of five markers on messages the newest four stay.
    """
    if len(markers) <= MARKER_LIMIT:
        return markers
    newest_first = markers[::-1]
    before_messages = [marker for marker in newest_first if marker.place.startswith(("tools[", "system["))]
    ranked = dict.fromkeys((*_choose_most_valuable(markers), *before_messages, *newest_first))
    chosen = frozenset(list(ranked)[:MARKER_LIMIT])
    return [marker for marker in markers if marker in chosen]


def _choose_most_valuable(markers: Sequence[PlacedMarker]) -> list[PlacedMarker]:
    """The newest marker, and the last ones on the tools and on the system text.

    The newest leaves an entry for the next request. The others are read by other conversations too.
    """
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
        """What it costs to split there. To take off a valuable marker costs more than all other changes."""
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


class PlacedMarker(NamedTuple):
    """A marker in a request: on which block, for how long, and whether the API refuses it on such a block."""

    place: str
    lifetime: str
    is_refused: bool = False


def find_markers(request: Request, message_markers: Iterable[PlacedMarker]) -> list[PlacedMarker]:
    """The markers of a request in the order in which the API reads it, with these on its messages.

    Those on tools and on the system text come first, that of the whole request last.
    """
    markers: list[PlacedMarker] = []
    for name in ("tools", "system"):
        for position, block in enumerate(list_or_empty(request.get(name))):
            markers += find_markers_on_block(block, f"{name}[{position}]")
    markers += message_markers
    lifetime = read_lifetime(request)
    if lifetime is not None:
        markers.append(PlacedMarker(MARKER, lifetime))
    return markers


def may_hold_markers(block: Json) -> bool:
    """Whether a block may have a marker, on itself or inside: a result may hold blocks."""
    if MARKER in block:
        return True
    return block.get("type") == "tool_result" and not isinstance(block.get("content"), str)


def find_markers_on_block(block: Any, place: str) -> Iterator[PlacedMarker]:
    """The markers inside a tool result, then the block's own.

    `{"type": "tool_result", "content": [A], "cache_control": {…}}` may have two: one on A, one of its own.
    """
    mapping = to_dict_or_empty(block)
    block_type = mapping.get("type")
    if block_type == "tool_result":
        for position, piece in enumerate(list_or_empty(mapping.get("content"))):
            yield from find_markers_on_block(piece, f"{place}.content[{position}]")
    lifetime = read_lifetime(mapping)
    if lifetime is not None:
        yield PlacedMarker(place, lifetime, is_refused=block_type in UNMARKABLE_TYPES)


def read_lifetime(holder: Mapping[str, Any]) -> str | None:
    """The lifetime that the marker of a block or request asks for; None if it has no marker, or a null.

    `{"cache_control": {"type": "ephemeral"}}` asks for the default lifetime, `{"type": "ephemeral", "ttl":
    "1h"}` for the long one.
    """
    marker = holder.get(MARKER)
    if marker is None:
        return None
    lifetime = to_dict_or_empty(marker).get("ttl")
    if isinstance(lifetime, str):
        return lifetime
    return DEFAULT_LIFETIME
