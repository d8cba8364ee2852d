"""Elements of SVG as text: everything that is not markup already is escaped.

Session ids, paths, models and reasons come from other people's files. Only `tag` and `join` make markup, and
a text that is joined to markup is escaped, so that escaping cannot be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

Value = str | float | bool | None


def tag(name: str, /, *children: str, **attributes: Value) -> Markup:
    """An element. The attribute `data_value` is written data-value, `class_` is written class.

    Attributes that are None or False are left out.
    """
    written = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        written += f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
    if not children:
        return Markup(f"<{name}{written}/>")  # noqa: S704 - its parts are escaped
    return Markup(f"<{name}{written}>{join(children)}</{name}>")  # noqa: S704 - its parts are escaped


def join(children: Iterable[str]) -> Markup:
    """Elements and texts after each other."""
    return Markup().join(children)
