"""Cache breakpoints on a Chat Completions request: exactly those that are asked for, all others taken off.

Whatever need not change stays the same object, and the request that was given is never written to. The key
and the mode of caching are set where they are asked for, and else stay the caller's. It does not know which
models take these fields: others refuse them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.dialects.openai_chat.parts import MARKER
from lamina.dialects.port import Marking, Request
from lamina.dialects.unmarked import changed_in, without
from lamina.errors import BadInput

MARKED = ("text", "image_url", "input_audio", "file", "refusal")
"""Parts that may have a breakpoint."""

KEY, OPTIONS = "prompt_cache_key", "prompt_cache_options"
MODES = ("implicit", "explicit")
_LISTS = (list, tuple)


def mark(request: Request, marking: Marking) -> dict[str, Any]:
    """The request with these breakpoints and no others. A string that must carry one becomes a text part."""
    left = dict(marking.places)
    messages = request.get("messages")
    changed: dict[str, Any] = {}
    if isinstance(messages, _LISTS):
        marked = [_message(message, f"messages[{at}].content", left) for at, message in enumerate(messages)]
        if any(a is not b for a, b in zip(marked, messages, strict=True)):
            changed["messages"] = marked
    if left:
        raise BadInput(
            f"no part at {next(iter(left))!r}", place="marking", hint="take places from the stream"
        )
    changed |= _whole(request, marking)
    if not changed and isinstance(request, dict):
        return request
    return {**request, **changed}


def _whole(request: Request, marking: Marking) -> dict[str, Any]:
    """What is said of the request as a whole: the key, and the mode or the lifetime."""
    changed: dict[str, Any] = {}
    if marking.key and request.get(KEY) != marking.key:
        changed[KEY] = marking.key
    if marking.automatic:
        given = request.get(OPTIONS)
        options = dict(given) if isinstance(given, Mapping) else {}
        options["mode" if marking.automatic in MODES else "ttl"] = marking.automatic
        if options != given:
            changed[OPTIONS] = options
    return changed


def _message(message: Any, place: str, left: dict[str, str]) -> Any:
    """A message with its parts marked. Only where one is asked for is an object of an SDK taken apart."""
    given = _plain(message)
    content = given.get("content") if given is not None else None
    if isinstance(content, str):
        named = [name for name in (place, f"{place}[0]") if name in left]
        if not named:
            return message
        return {**(given or {}), "content": [_with({"type": "text", "text": content}, left.pop(named[0]))]}
    if not isinstance(content, _LISTS):
        return message
    parts = [_part(part, left.pop(f"{place}[{at}]", None)) for at, part in enumerate(content)]
    same = all(a is b for a, b in zip(parts, content, strict=True))
    return message if same else {**(given or {}), "content": parts}


def _part(part: Any, lifetime: str | None) -> Any:
    given = _plain(part)
    marked = None if given is None else _with(given, lifetime)
    return part if marked is given else marked


def _with(given: Mapping[str, Any], lifetime: str | None) -> Mapping[str, Any]:
    """A part with this breakpoint, or without any; the same object where that is so already."""
    marker = given.get(MARKER)
    if lifetime is None:
        return given if marker is None else {name: given[name] for name in given if name != MARKER}
    wanted = {"mode": "explicit"} | ({"ttl": lifetime} if lifetime else {})
    return given if marker == wanted else {**given, MARKER: wanted}


def _plain(value: Any) -> Mapping[str, Any] | None:
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    dumped = dump(exclude_unset=True) if callable(dump) else None
    return dumped if isinstance(dumped, dict) else None


def with_allowed_marks(request: dict[str, Any]) -> dict[str, Any]:
    """The request without breakpoints where the API refuses them (C6); if there are none, the same object."""
    allowed = changed_in(changed_in(request, "tools", _tool), "messages", _allowed)
    return allowed if isinstance(allowed, dict) else dict(allowed)


def _tool(tool: Any) -> Any:
    bare = without(tool, MARKER)
    function = bare.get("function") if isinstance(bare, Mapping) else None
    inner = without(function, MARKER)
    return bare if inner is function else {**bare, "function": inner}


def _allowed(message: Any) -> Any:
    """A message with breakpoints on parts only, and only on those that may have one."""
    given = _plain(message)
    if given is None:
        return message
    bare = without(given, MARKER)
    bare = changed_in(bare, "tool_calls", _bare)
    bare = changed_in(bare, "content", _allowed_part)
    return message if bare is given else bare


def _allowed_part(part: Any) -> Any:
    given = _plain(part)
    takes = given is not None and given.get("type") in MARKED
    return part if takes else _bare(part)


def _bare(value: Any) -> Any:
    """A call or a part without a breakpoint; the same object where it has none."""
    given = _plain(value)
    bare = without(given, MARKER)
    return value if bare is given else bare
