"""Cache markers on a request of the Messages API: exactly those that are asked for, all others taken off.

Whatever need not change stays the same object, and the request that was given is never written to. It
knows where a marker may stand in a request, and not where one pays. Of markers that the API would refuse, the
fewest are taken off or given a shorter lifetime; none gets a longer one, which would cost the client money.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lamina.dialects.anthropic.blocks import LISTS, plain
from lamina.dialects.port import Marking, Request
from lamina.errors import BadInput

MOST = 4
"""Markers that the API takes in one request, the one for the whole of it included."""

FIELD = "cache_control"
OWN = "5m"
"""The lifetime of a marker that names none."""


LONG = "1h"
"""The lifetime that must stand before all shorter ones."""

THOUGHTS = ("thinking", "redacted_thinking")
"""Blocks that take no marker."""


def mark(request: Request, marking: Marking) -> dict[str, Any]:
    """The request with these markers and no others. A string that must carry one becomes a text block."""
    if len(marking.places) + bool(marking.automatic) > MOST:
        raise BadInput(
            f"{len(marking.places) + bool(marking.automatic)} cache markers",
            place="marking",
            hint=f"the API takes {MOST}, the automatic one included",
        )
    left = dict(marking.places)
    marked = _with(request, marking.automatic or None)
    for name, each in (("tools", _block), ("system", _block), ("messages", _message)):
        marked = _changed(marked, name, _listed(marked.get(name), name, left, each))
    if left:
        raise BadInput(
            f"no block at {next(iter(left))!r}", place="marking", hint="take places from the stream"
        )
    return marked if isinstance(marked, dict) else dict(marked)


Each = Callable[[Any, str, dict[str, str]], Any]


def _listed(value: Any, place: str, left: dict[str, str], each: Each) -> Any:
    """A list with each of its items marked; the same object where none changed."""
    if isinstance(value, str):
        return _text(value, place, left)
    if not isinstance(value, LISTS):
        return value
    items = [each(item, f"{place}[{at}]", left) for at, item in enumerate(value)]
    return value if all(a is b for a, b in zip(items, value, strict=True)) else items


def _text(text: str, place: str, left: dict[str, str]) -> Any:
    """A string, or the one text block that it stands for; its place may be written as either."""
    named = [name for name in (place, f"{place}[0]") if name in left]
    if not named:
        return text
    return [_with({"type": "text", "text": text}, left.pop(named[0]))]


def _message(message: Any, place: str, left: dict[str, str]) -> Any:
    given = message if isinstance(message, dict) else plain(message)
    if given is None:
        return message
    content = _listed(given.get("content"), f"{place}.content", left, _block)
    return message if content is given.get("content") else {**given, "content": content}


def _block(block: Any, place: str, left: dict[str, str]) -> Any:
    """One block, and those inside a result: they may carry markers too."""
    given = block if isinstance(block, dict) else plain(block)
    if given is None:
        return block
    marked = _with(given, left.pop(place, None))
    inner = given.get("content")
    if isinstance(inner, LISTS):
        marked = _changed(marked, "content", _listed(inner, f"{place}.content", left, _inner))
    return block if marked is given else marked


def _inner(piece: Any, place: str, left: dict[str, str]) -> Any:
    given = piece if isinstance(piece, dict) else plain(piece)
    marked = None if given is None else _with(given, left.pop(place, None))
    return piece if marked is given else marked


def _changed(given: Mapping[str, Any], name: str, value: Any) -> Mapping[str, Any]:
    return given if value is given.get(name) else {**given, name: value}


def _with(given: Mapping[str, Any], lifetime: str | None) -> Mapping[str, Any]:
    """A block, or a request, with this marker or without any; the same object where that is so already."""
    if lifetime == _lifetime(given):
        return given
    if lifetime is None:
        return {name: value for name, value in given.items() if name != FIELD}
    own = {"ttl": lifetime} if lifetime else {}
    if not lifetime and _lifetime(given) == OWN:
        return given
    return {**given, FIELD: {"type": "ephemeral", **own}}


def _lifetime(given: Mapping[str, Any]) -> str | None:
    """What its marker asks for; None without one. A field that is null is none."""
    marker = given.get(FIELD)
    if marker is None:
        return None
    lifetime = (plain(marker) or {}).get("ttl")
    return lifetime if isinstance(lifetime, str) else OWN


class Placed(NamedTuple):
    """A marker where it stands: on which block, for how long, and whether it may stand there at all."""

    place: str
    lifetime: str
    refused: bool = False


def marks_in(request: Request) -> Iterator[Placed]:
    """The markers of a request in the order of the stream, the one for the whole of it last."""
    yield from marks_before(request)
    for at, message in enumerate(_items(request.get("messages"))):
        given = message if isinstance(message, dict) else plain(message) or {}
        for i, block in enumerate(_items(given.get("content"))):
            yield from marks_on(block, f"messages[{at}].content[{i}]")
    yield from marks_after(request)


def marks_before(request: Request) -> Iterator[Placed]:
    """The markers before the messages."""
    for name in ("tools", "system"):
        for at, block in enumerate(_items(request.get(name))):
            yield from marks_on(block, f"{name}[{at}]")


def marks_after(request: Request) -> Iterator[Placed]:
    """The marker for the whole request."""
    lifetime = _lifetime(request)
    if lifetime is not None:
        yield Placed(FIELD, lifetime)


def with_allowed_marks(request: dict[str, Any]) -> dict[str, Any]:
    """The request with markers that the API takes; the same object where it takes them all."""
    found = list(marks_in(request))
    kept = _in_order(_few([one for one in found if not one.refused]))
    if kept == found:
        return request
    automatic = next((one.lifetime for one in kept if one.place == FIELD), "")
    places = {one.place: one.lifetime for one in kept if one.place != FIELD}
    return mark(request, Marking(places=places, automatic=automatic))


def _few(found: list[Placed]) -> list[Placed]:
    """At most as many as the API takes: tools and system text before messages, later ones before earlier."""
    if len(found) <= MOST:
        return found
    head = [one for one in reversed(found) if one.place.startswith(("tools[", "system["))]
    ranked = dict.fromkeys((*_worth_most(found), *head, *reversed(found)))
    chosen = frozenset(list(ranked)[:MOST])
    return [one for one in found if one in chosen]


def _worth_most(found: Sequence[Placed]) -> list[Placed]:
    """The newest marker, and those at the end of the tools and of the system text."""
    ends = [[one for one in found if one.place.startswith(name)][-1:] for name in ("tools[", "system[")]
    return [found[-1], *ends[0], *ends[1]]


def _in_order(found: list[Placed]) -> list[Placed]:
    """Long lifetimes before short ones, with the fewest changes.

    Before some place the short ones are taken off, after it the long ones are made short. For 5m, 1h, 1h
    that is one change before the second marker, unless the first is worth keeping: then both are made short.
    """
    spared = frozenset(_worth_most(found)) if found else frozenset()

    def changes(split: int) -> int:
        taken_off = [one for one in found[:split] if one.lifetime != LONG]
        made_short = [one for one in found[split:] if one.lifetime == LONG]
        dear = sum(one in spared for one in taken_off)
        return len(taken_off) + len(made_short) + dear * (MOST + 1)

    split = min(range(len(found) + 1), key=changes)
    long = [one for one in found[:split] if one.lifetime == LONG]
    return long + [one._replace(lifetime=OWN) if one.lifetime == LONG else one for one in found[split:]]


def marks_on(block: Any, place: str) -> Iterator[Placed]:
    """The marker of a block, after those of what it holds."""
    given = block if isinstance(block, dict) else plain(block)
    if given is None:
        return
    if given.get("type") == "tool_result":
        for at, piece in enumerate(_items(given.get("content"))):
            yield from marks_on(piece, f"{place}.content[{at}]")
    lifetime = _lifetime(given)
    if lifetime is not None:
        yield Placed(place, lifetime, refused=given.get("type") in THOUGHTS)


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, LISTS) else ()
