"""Cache breakpoints on a Responses request: exactly those that are asked for, all others taken off.

Whatever need not change stays the same object, and the request that was given is never written to. The key
and the mode of caching are set where they are asked for, and else stay the caller's. It does not know which
models take these fields: others refuse them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.dialects.openai_responses.items import sort_of
from lamina.dialects.openai_responses.parts import MARKED, MARKER, plain
from lamina.dialects.port import Marking, Request
from lamina.dialects.unmarked import changed_in, without
from lamina.errors import BadInput

KEY, OPTIONS, RETENTION = "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"
MODES, RETENTIONS = ("implicit", "explicit"), ("in_memory", "24h")
LIFETIMES = ("30m", "12h")

_LISTS = (list, tuple)
_HOLDERS = {
    "message": "content",
    "function_call_output": "output",
    "custom_tool_call_output": "output",
}


def mark(request: Request, marking: Marking) -> dict[str, Any]:
    """The request with these breakpoints and no others. A string that must carry one becomes a text part."""
    left = dict(marking.places)
    given = request.get("input")
    items = given
    if isinstance(given, str) and "input[0].content[0]" in left:
        items = _items([{"type": "message", "role": "user", "content": given}], left)
    elif isinstance(given, list | tuple):
        items = _items(given, left)
    changed: dict[str, Any] = {} if items is given else {"input": items}
    if left:
        raise BadInput(
            f"no part at {next(iter(left))!r} takes a marker",
            place="marking",
            hint="take places from the stream",
        )
    changed |= _whole(request, marking)
    if not changed and isinstance(request, dict):
        return request
    return {**request, **changed}


def _items(given: Sequence[Any], left: dict[str, str]) -> Sequence[Any]:
    items = [_item(item, f"input[{at}]", left) for at, item in enumerate(given)]
    return given if all(a is b for a, b in zip(items, given, strict=True)) else items


def _whole(request: Request, marking: Marking) -> dict[str, Any]:
    """What is said of the request as a whole: the key, and the mode or the lifetime."""
    changed: dict[str, Any] = {}
    if marking.key and request.get(KEY) != marking.key:
        changed[KEY] = marking.key
    if marking.automatic in RETENTIONS:
        changed |= {} if request.get(RETENTION) == marking.automatic else {RETENTION: marking.automatic}
    elif marking.automatic:
        given = request.get(OPTIONS)
        options = dict(given) if isinstance(given, Mapping) else {}
        options["mode" if marking.automatic in MODES else "ttl"] = marking.automatic
        changed |= {} if options == given else {OPTIONS: options}
    return changed


def _item(item: Any, place: str, left: dict[str, str]) -> Any:
    """An item with its parts marked. Only where one is asked for is an object of an SDK taken apart."""
    given = _plain(item)
    holder = _HOLDERS.get(sort_of(given)) if given is not None else None
    if given is None or holder is None:
        return item
    content, place = given.get(holder), f"{place}.{holder}"
    spoken = given.get("role") == "assistant"
    if isinstance(content, str):
        if f"{place}[0]" not in left or spoken or not content:
            return item
        return {**given, holder: [_with({"type": "input_text", "text": content}, left.pop(f"{place}[0]"))]}
    if not isinstance(content, _LISTS):
        return item
    parts = [_part(part, f"{place}[{at}]", left, spoken=spoken) for at, part in enumerate(content)]
    same = all(a is b for a, b in zip(parts, content, strict=True))
    return item if same else {**given, holder: parts}


def _part(part: Any, place: str, left: dict[str, str], *, spoken: bool) -> Any:
    given = _plain(part)
    if given is None:
        return part
    takes = not spoken and str(given.get("type")) in MARKED
    marked = _with(given, left.pop(place, None) if takes else None)
    return part if marked is given else marked


def _with(given: Mapping[str, Any], lifetime: str | None) -> Mapping[str, Any]:
    """A part with this breakpoint, or without any; the same object where that is so already."""
    marker = given.get(MARKER)
    if lifetime is None:
        return given if marker is None else {name: given[name] for name in given if name != MARKER}
    wanted = {"mode": "explicit"} | ({"ttl": lifetime} if lifetime in LIFETIMES else {})
    return given if marker == wanted else {**given, MARKER: wanted}


def _plain(value: Any) -> dict[str, Any] | None:
    try:
        return plain(value)
    except BadInput:
        return None


def with_allowed_marks(request: dict[str, Any]) -> dict[str, Any]:
    """The request without breakpoints where the API refuses them; the same object where there are none."""
    bare = changed_in(request, "tools", lambda tool: without(tool, MARKER))
    bare = changed_in(bare, "input", _allowed)
    return bare if isinstance(bare, dict) else dict(bare)


def _allowed(item: Any) -> Any:
    """An item with breakpoints on parts only, and only on those that may have one."""
    given = _plain(item)
    if given is None:
        return item
    bare = without(given, MARKER)
    holder = _HOLDERS.get(sort_of(given))
    if holder is not None:
        bare = changed_in(bare, holder, _allowed_part)
    return item if bare is given else bare


def _allowed_part(part: Any) -> Any:
    given = _plain(part)
    if given is None or str(given.get("type")) in MARKED:
        return part
    bare = without(given, MARKER)
    return part if bare is given else bare
