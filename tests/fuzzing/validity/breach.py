"""A broken rule, and small functions that the rules of all APIs need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

Json = Mapping[str, Any]


class Breach(msgspec.Struct, frozen=True):
    """A rule that a request breaks, where, and how."""

    rule: str
    place: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.place}: {self.detail}"


def repeated(values: Iterable[str]) -> list[str]:
    return [value for value, count in Counter(values).items() if count > 1]


def is_blank(text: Any) -> bool:
    """Whether a text says nothing; by the white space of ASCII."""
    return not isinstance(text, str) or not text.strip(" \t\r\n\f\v")
