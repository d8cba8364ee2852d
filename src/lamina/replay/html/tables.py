"""Tables of the page: every figure as it is written, and exactly in `data-name` and `data-value`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lamina.replay.account_table import Column
from lamina.replay.html.markup import Safe, join, tag


def table(
    columns: Sequence[Column],
    rows: Iterable[Any],
    *,
    about: str,
    key: str = "",
    caption: str = "",
    own: str = "",
) -> Safe:
    """Rows of values, as the terminal's table has them; `key` names the figure that a row is found by."""
    body = [
        tag(
            "tr",
            *(cell(column.name, getattr(row, column.name), column.write) for column in columns),
            data_key=getattr(row, key) if key else None,
            class_="own" if own and getattr(row, key) == own else None,
        )
        for row in rows
    ]
    heads = [head(column.head, column.meaning, figure=at > 0) for at, column in enumerate(columns)]
    return framed(heads, body, about=about, caption=caption)


def framed(heads: Iterable[Safe], body: Iterable[Safe], *, about: str, caption: str = "") -> Safe:
    """A table that can be sorted, and scrolled where the screen is narrow."""
    titled = [tag("caption", caption)] if caption else []
    made = tag(
        "table",
        *titled,
        tag("thead", tag("tr", *heads)),
        tag("tbody", *body),
        class_="sortable",
        data_table=about,
    )
    return tag("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption or about)


def head(text: str, meaning: str = "", *, figure: bool = True) -> Safe:
    return tag("th", text, scope="col", title=meaning or None, class_="n" if figure else None)


def cell(name: str, value: float | str | None, write: Any = str) -> Safe:
    """One figure, to the right; or a name, which heads its row."""
    if isinstance(value, str):
        return tag("th", write(value), scope="row", data_name=name)
    return tag(
        "td", write(value), class_="n", data_name=name, data_value="" if value is None else repr(value)
    )


def words(name: str, text: str) -> Safe:
    """A text that is no name."""
    return tag("td", text, data_name=name)


def folded(summary: str, *children: str, opened: bool = False) -> Safe:
    return tag("details", tag("summary", summary), join(children), open=opened)
