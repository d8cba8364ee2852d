"""What the readers of the SDKs' streams share. Only for this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.clients.events import CallEvent, Event, Reason, UsageEvent
from lamina.dialects.usage import read_usage


def make_usage(usage: Any) -> UsageEvent:
    """Return the event for a usage object of any API."""
    tokens = read_usage(usage)
    return UsageEvent(input=tokens.input, cached=tokens.cached, written=tokens.written, output=tokens.output)


def read_stop(word: str, reasons: Mapping[str, Reason], *, has_calls: bool = False) -> Reason:
    """Return why an answer stopped, from the API's own word for it.

    Without a word the answer broke off. Some APIs have only one word for an answer that is finished and for
    one that calls tools.
    """
    if not word:
        return "error"
    reason = reasons.get(word, "other")
    if reason == "end" and has_calls:
        return "tool"
    return reason


def value_at(value: Any, *path: str | int) -> Any:
    """Return what is at a path of an SDK's object or of plain JSON; None if there is nothing."""
    for name in path:
        if isinstance(name, int):
            value = _item_at(value, name)
        elif isinstance(value, Mapping):
            value = value.get(name)
        else:
            value = getattr(value, name, None)
    return value


def _item_at(value: Any, index: int) -> Any:
    """Return an item of a list, or None if it is no list or too short."""
    if isinstance(value, list | tuple) and index < len(value):
        return value[index]
    return None


def text_at(value: Any, *path: str | int) -> str:
    """Return the text at a path, or ""."""
    text = value_at(value, *path)
    if isinstance(text, str):
        return text
    return ""


def count_at(value: Any, *path: str | int) -> int:
    """Return the positive number at a path, or 0."""
    number = value_at(value, *path)
    if isinstance(number, int) and number > 0:
        return number
    return 0


class _GrowingCall:
    """A call whose arguments arrive in pieces."""

    def __init__(self, id_: str, name: str) -> None:
        self.id = id_
        self.name = name
        self.pieces: list[str] = []


class GrowingCalls:
    """The calls of one answer, in the order in which they began."""

    def __init__(self) -> None:
        self._calls: list[_GrowingCall] = []
        self._by_index: dict[Any, _GrowingCall] = {}

    def add(self, index: Any, id_: str, name: str, piece: str) -> None:
        """Add a piece to the call at an index. Some servers give no index: then it is the last call.

        Another id at the same index begins a new call.
        """
        call = self._find(index)
        if call is None or (id_ and call.id and call.id != id_):
            call = _GrowingCall(id_, name)
            self._calls.append(call)
            self._by_index[index] = call
        call.id = call.id or id_
        call.name = call.name or name
        call.pieces.append(piece)

    def _find(self, index: Any) -> _GrowingCall | None:
        if index is not None:
            return self._by_index.get(index)
        if not self._calls:
            return None
        return self._calls[-1]

    def __bool__(self) -> bool:
        return bool(self._calls)

    def events(self) -> list[Event]:
        return [
            CallEvent(id=call.id, name=call.name, arguments="".join(call.pieces) or "{}")
            for call in self._calls
        ]
