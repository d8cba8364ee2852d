"""Says what a table of requests holds, for a terminal and as JSON: what was paid, lost, and would have been.

The closing lines of `lamina run` and `lamina log -f` are in these words, too, so that no two surfaces differ.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from lamina.core.text.characters import make_printable
from lamina.costs.savings import compare_settings, saving_lines
from lamina.costs.table import RequestTable
from lamina.dialects.usage import count_noun
from lamina.models.facts import AS_OF

UNDER_LAMINA = "door != ''"
LOST = "cause != ''"

WIDTH = 80
_INDENT = 6 * " "

GROUPINGS = {
    "user": "user",
    "project": "project",
    "client": "client",
    "model": "model",
    "month": "strftime('%Y-%m', at, 'unixepoch')",
    "day": "date(at, 'unixepoch')",
}
"""What requests are grouped by, as an expression of their columns."""

MOST_CAUSES = 3
"""Causes of lost caches in a terminal. The JSON has all."""

MOST_GROUPS = 40
"""Rows of a table of groups in a terminal. The JSON has all."""

_SUMS = """
count(distinct file || ' ' || root) as conversations,
count(*) filter (where not recalled) as calls,
count(*) as requests,
coalesce(sum(tokens), 0) as tokens,
coalesce(sum(read), 0) as read,
coalesce(sum(written), 0) as written,
coalesce(sum(output), 0) as output,
coalesce(sum(is_cut), 0) as cuts,
count(*) filter (where cause != '') as losses,
sum(lost_dollars) as lost_dollars,
sum(dollars) as dollars,
sum(dollars_uncut) as dollars_uncut,
sum(dollars_without) as dollars_without
"""
_CONVERSATION = """
file, root as conversation, max(door) as door, max(client) as client, max(model) as model,
max(project) as project, max(user) as user, max(title) as title, min(at) as began, max(at) as ended,
"""


class Column(NamedTuple):
    """A figure of a group: its name, its head, and how it is written."""

    name: str
    head: str
    write: Callable[[Any], str]


def format_money(dollars: float | None) -> str:
    """Two digits after the point, four for less than a dollar, "-" if it is not known."""
    if dollars is None:
        return "-"
    if abs(dollars) >= 1:
        return f"{dollars:,.2f}"
    return f"{dollars:.4f}"


def _format_whole(number: float) -> str:
    return f"{number:,.0f}"


def _format_share(share: float) -> str:
    return f"{100 * share:.1f} %"


_COLUMNS = (
    Column("name", "", str),
    Column("conversations", "conversations", _format_whole),
    Column("calls", "calls", _format_whole),
    Column("tokens", "tokens sent", _format_whole),
    Column("cached", "cached", _format_share),
    Column("output", "output", _format_whole),
    Column("dollars", "USD", format_money),
    Column("losses", "misses", _format_whole),
    Column("lost_dollars", "USD of misses", format_money),
)


def sum_requests(table: RequestTable, where: str = "true") -> dict[str, Any]:
    """All figures of some requests. Money is None where not all of it is known."""
    [sums] = table.select(f"{_SUMS}, min(at) as began, max(at) as ended", where)
    for name in ("dollars", "dollars_uncut", "dollars_without"):
        sums[name] = table.sum_money(name, where).amount
    if table.explain_too_long(where):
        sums["dollars_uncut"] = sums["dollars_without"] = None
    return sums


def list_conversations(table: RequestTable) -> list[dict[str, Any]]:
    """Each conversation with its figures, the most expensive first."""
    return table.select(_CONVERSATION + _SUMS, rest="group by file, root order by total(dollars) desc, began")


def group_requests(table: RequestTable, by: str, where: str = "true") -> list[dict[str, Any]]:
    """Requests by one of `GROUPINGS`: the most expensive first, days and months in order."""
    order = "total(dollars) desc, tokens desc, name"
    if by in ("day", "month"):
        order = "name"
    named = f"coalesce(nullif({GROUPINGS[by]}, ''), '(not named)') as name"
    rows = table.select(f"{named}, {_SUMS}", where, f"group by name order by {order}")
    for row in rows:
        row["cached"] = row["read"] / max(row["tokens"], 1)
    return rows


def list_causes(table: RequestTable, where: str = LOST) -> list[dict[str, Any]]:
    """Why caches were lost: how often, what was paid again, and what to do. The most expensive first."""
    return table.select(
        "cause, lost_by, advice, place, count(*) as times, sum(lost) as tokens, "
        "sum(lost_dollars) as dollars, min(rowid) as first",
        where,
        "group by cause order by total(lost_dollars) desc, tokens desc, first",
    )


def costs_as_json(table: RequestTable, by: Sequence[str] = ()) -> dict[str, Any]:
    """Everything as plain JSON, under the names of the columns."""
    return {
        "as_of": AS_OF,
        "sums": sum_requests(table),
        "under_lamina": sum_requests(table, UNDER_LAMINA),
        "saving": msgspec.to_builtins(compare_settings(table)),
        "causes": list_causes(table),
        "conversations": list_conversations(table),
        "groups": {name: group_requests(table, name) for name in ("model", *by)},
    }


def cost_lines(table: RequestTable, by: Sequence[str] = ()) -> list[str]:
    """The answer first, then why caches were lost, what other settings would have cost, and the groups."""
    lines = [_describe_count(table), f"cost: {table.sum_money()}"]
    recorded = table.sum("count(*)", UNDER_LAMINA)
    if recorded:
        of_it = ""
        if recorded < table.sum("count(*)"):
            of_it = f"of it under lamina: {table.sum_money(where=UNDER_LAMINA)}\n"
        lines += f"{of_it}without lamina: {describe_without(table, UNDER_LAMINA)}".split("\n")
    lines += [*_list_lost(table), ""]
    saving = compare_settings(table)
    if saving is not None:
        lines += saving_lines(saving)
    for name in dict.fromkeys(["model", *by]):
        lines += _group_lines(table, name)
    return lines


def _describe_count(table: RequestTable) -> str:
    """Such as "12 conversations, 340 calls, 2026-01-02 to 2026-02-03"; the days only where they are known."""
    sums = sum_requests(table)
    words = [count_noun(sums["conversations"], "conversation"), count_noun(sums["calls"], "call")]
    if sums["requests"] > sums["calls"]:
        words.append(count_noun(sums["requests"], "request"))
    if sums["cuts"]:
        words.append(count_noun(sums["cuts"], "cut"))
    [days] = table.select("date(min(at), 'unixepoch') as began, date(max(at), 'unixepoch') as ended")
    words.append(" to ".join(dict.fromkeys(filter(None, days.values()))))
    return ", ".join(filter(None, words))


def find_cost_without(table: RequestTable, where: str = "true") -> float | None:
    """USD for the same calls without lamina; None if it is not known."""
    if table.explain_too_long(where):
        return None
    return table.sum_money("dollars_without", where).amount


def find_cut_saving(table: RequestTable, where: str = "true") -> float | None:
    """USD that cuts saved, less what they cost; None if it is not known."""
    uncut = table.sum_money("dollars_uncut", where).amount
    cost = table.sum_money("dollars", where).amount
    if uncut is None or cost is None or table.explain_too_long(where):
        return None
    return uncut - cost


def describe_without(table: RequestTable, where: str = "true") -> str:
    """The price without lamina, and which part of what was saved its markers and its cuts saved."""
    too_long = table.explain_too_long(where)
    if too_long:
        return f"not known: {too_long}"
    without = table.sum_money("dollars_without", where)
    text = str(without)
    cut_saving = find_cut_saving(table, where)
    if without.amount is None or cut_saving is None:
        return text
    cost = table.sum_money("dollars", where).least
    marker_saving = without.amount - table.sum_money("dollars_uncut", where).least
    first_cuts = table.sum("count(*)", f"{where} and is_read_unknown and not unmarked")
    cuts = table.sum("total(is_cut)", where)
    if first_cuts:
        first = count_noun(first_cuts, "request")
        text += f" at most: what the cache held before {first} with a first cut is not known"
    elif marker_saving and not table.sum("count(*)", f"{where} and is_read_unknown"):
        saved_by_cuts = "nothing was cut"
        if cuts or cut_saving:
            saved_by_cuts = f"its cuts {_describe_saving(cut_saving)}"
        saved = _describe_saving(marker_saving)
        text += f": the cache breakpoints that lamina placed {saved}; {saved_by_cuts}"
    elif not cuts and without.amount == cost:
        text += ", the same: nothing was cut"
    return text


def _describe_saving(dollars: float) -> str:
    if dollars < 0:
        return f"cost ${-dollars:.4f} more"
    return f"saved ${dollars:.4f}"


def describe_losses(table: RequestTable) -> str:
    """How often the provider's cache was lost and what was paid again; "" if it never was."""
    [lost] = table.select("count(*) as times, sum(lost) as tokens, total(lost_dollars) as dollars", LOST)
    if not lost["times"]:
        return ""
    paid = ""
    if lost["tokens"]:
        paid = f", {lost['tokens']:,} tokens paid again (${lost['dollars']:.4f} more)"
    return f"cache lost {count_noun(lost['times'], 'time')}{paid}"


def _list_lost(table: RequestTable) -> list[str]:
    lost = describe_losses(table)
    if not lost:
        return ["no cache was lost: every request read at least 3/4 of what it could"]
    lines = [f"{lost}, mostly:"]
    for cause in list_causes(table)[:MOST_CAUSES]:
        price = f"{cause['tokens']:,} tokens"
        if cause["dollars"] is not None:
            price = f"${format_money(cause['dollars'])}"
        lines.append(f"  {price}, {count_noun(cause['times'], 'time')}: {cause['cause']}")
        lines += textwrap.wrap(cause["advice"], WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
    return lines


def _group_lines(table: RequestTable, by: str) -> list[str]:
    """A table by user, say. That of models stands only where there are several."""
    groups = group_requests(table, by)
    if by == "model" and len(groups) < 2:
        return []
    listed = groups[:MOST_GROUPS]
    if by in ("day", "month"):
        listed = groups[-MOST_GROUPS:]
    lines = [f"by {by}", *_align(listed)]
    if len(groups) > len(listed):
        lines.append(f"  and {len(groups) - len(listed):,} more {by}s; the JSON file has all")
    return [*lines, ""]


def _align(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Rows in columns: the first to the left, figures to the right."""
    cells = [[column.head for column in _COLUMNS]]
    cells += [[make_printable(column.write(row[column.name])) for column in _COLUMNS] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines: list[str] = []
    for first, *figures in cells:
        aligned = [figure.rjust(width) for figure, width in zip(figures, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *aligned]))
    return lines
