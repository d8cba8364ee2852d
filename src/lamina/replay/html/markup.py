"""Elements of HTML and SVG as text: everything that is not markup already is escaped.

Session ids, paths, models and reasons come from other people's files, so there is no way to forget it: only
`tag` and `join` make `Safe`, and whatever is not `Safe` is text.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

_EMPTY = frozenset("meta circle line path rect".split())


class Safe(str):
    """Text that is markup."""

    __slots__ = ()


Value = str | float | bool | None


def tag(name: str, /, *children: str, **attributes: Value) -> Safe:
    """An element; `data_value` is written data-value, a last underscore dropped, None and False left out."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _EMPTY and not children:
        return Safe(f"<{name}{written}/>")
    return Safe(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Safe:
    """Elements and texts after each other."""
    return Safe("".join(child if isinstance(child, Safe) else html.escape(child) for child in children))


def _attribute(key: str, value: Value) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'
