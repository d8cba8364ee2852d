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
    """Rows of values, as the terminal's table has them.

    `key` names the figure that a row is found by; the row whose key is `own` stands out.
    """
    body = []
    for row in rows:
        cells = [figure_cell(column.name, getattr(row, column.name), column.write) for column in columns]
        row_key = getattr(row, key) if key else None
        style = "own" if own and row_key == own else None
        body.append(tag("tr", *cells, data_key=row_key, class_=style))
    heads = [column_head(column.head, column.meaning, figure=at > 0) for at, column in enumerate(columns)]
    return table_frame(heads, body, about=about, caption=caption)


def table_frame(heads: Iterable[Safe], body: Iterable[Safe], *, about: str, caption: str = "") -> Safe:
    """A table that can be sorted, and scrolled where the screen is narrow."""
    captions = [tag("caption", caption)] if caption else []
    element = tag(
        "table",
        *captions,
        tag("thead", tag("tr", *heads)),
        tag("tbody", *body),
        class_="sortable",
        data_table=about,
    )
    return tag("div", element, class_="scroll", tabindex=0, role="region", aria_label=caption or about)


def column_head(text: str, meaning: str = "", *, figure: bool = True) -> Safe:
    return tag("th", text, scope="col", title=meaning or None, class_="n" if figure else None)


def figure_cell(name: str, value: float | str | None, write: Any = str) -> Safe:
    """One figure, to the right; or a name, which heads its row."""
    if isinstance(value, str):
        return tag("th", write(value), scope="row", data_name=name)
    exact = "" if value is None else repr(value)
    return tag("td", write(value), class_="n", data_name=name, data_value=exact)


def text_cell(name: str, text: str) -> Safe:
    """A text that does not head its row."""
    return tag("td", text, data_name=name)


def details(summary: str, *children: str, opened: bool = False) -> Safe:
    """What is shown once its summary is clicked."""
    return tag("details", tag("summary", summary), join(children), open=opened)
