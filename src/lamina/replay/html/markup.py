"""Elements of HTML and SVG as text: everything that is not markup already is escaped.

Session ids, paths, models and reasons come from other people's files, so escaping must be impossible to
forget: only `tag` and `join` make `Safe`, and whatever is not `Safe` is text.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

_EMPTY_ELEMENTS = frozenset("meta circle line path rect".split())


class Safe(str):
    """Text that is markup."""

    __slots__ = ()


Value = str | float | bool | None


def tag(name: str, /, *children: str, **attributes: Value) -> Safe:
    """An element. The attribute `data_value` is written data-value, `class_` is written class.

    Attributes that are None or False are left out.
    """
    written = "".join(_write_attribute(key, value) for key, value in attributes.items())
    if name in _EMPTY_ELEMENTS and not children:
        return Safe(f"<{name}{written}/>")
    return Safe(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Safe:
    """Elements and texts after each other."""
    return Safe("".join(_escape(child) for child in children))


def _escape(text: str) -> str:
    if isinstance(text, Safe):
        return text
    return html.escape(text)


def _write_attribute(key: str, value: Value) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    return f' {name}="{html.escape(str(value))}"'
