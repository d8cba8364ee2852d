"""Keeps the values that were used last, up to some number of them: sessions, requests, rows of a table."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class LastUsed(Generic[_Key, _Value]):
    """State: up to `most` values, the one that was used last at the end. Callers in threads hold a lock."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[_Key, _Value] = OrderedDict()

    def get(self, key: _Key) -> _Value | None:
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key]

    def add(self, key: _Key, value: _Value) -> None:
        """Keep a value. If there are too many, the one that nobody used for longest goes."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._most:
            self._values.popitem(last=False)

    def get_or_make(self, key: _Key, make: Callable[[], _Value]) -> _Value:
        value = self.get(key)
        if value is None:
            value = make()
            self.add(key, value)
        return value
