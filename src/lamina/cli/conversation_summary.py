"""`lamina conversations summary`: all conversations together, as the first page of the inspector has them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import msgspec

from lamina.cli.files import refuse_databases
from lamina.cli.output import emit, progress, show
from lamina.cli.stored_sessions import LogSource, open_recorded
from lamina.core.text.characters import make_printable
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput
from lamina.inspector.session_figures import FiguresOfSessions
from lamina.inspector.sessions import Sessions
from lamina.models.facts import AS_OF
from lamina.replay.account_columns import (
    GROUP_COLUMNS,
    align_columns,
    format_date,
    format_money,
    format_percent,
)
from lamina.replay.account_table import describe_reason
from lamina.replay.across import AcrossSessions, Place, SessionFigures, summarise_across
from lamina.replay.figures_folder import is_figures_folder

MOST_LINES = 8
"""Rows of each list that are printed; --json has more."""

LONGEST_NAME = 60


def print_summary(arguments: argparse.Namespace) -> int:
    """Print what all conversations cost, where it went, and why caches were lost."""
    summary = _summarise(arguments)
    if arguments.json:
        emit(msgspec.to_builtins(summary))
        return 0
    if not summary.sessions:
        hint = "name logs, a folder of figures, or a store with --store"
        raise BadInput("there is no conversation with a recorded call", place="summary", hint=hint)
    show(*_write_lines(summary))
    return 0


def _summarise(arguments: argparse.Namespace) -> AcrossSessions:
    """The sums over the named logs and folders of figures, or over the conversations of the store."""
    paths = arguments.names
    refuse_databases(paths, hint="a store is read with --store")
    folders = [path for path in paths if is_figures_folder(path)]
    sessions = Sessions([path for path in paths if path not in folders])
    if not paths:
        sessions = Sessions((), [LogSource(arguments), open_recorded(arguments)])
    all_figures = FiguresOfSessions(folders)
    since = arguments.since or 0.0
    chosen: dict[str, SessionFigures] = {}
    with progress("reading the conversations"):
        for figures in all_figures.collect(sessions):
            if (figures.reported.began or 0.0) >= since:
                chosen[figures.id] = figures
    replays = [replay for replay, figures in all_figures.replayed() if figures.id in chosen]
    return summarise_across(list(chosen.values()), replays=replays)


def _write_lines(summary: AcrossSessions) -> list[str]:
    reasons = []
    for reason in summary.reasons[:MOST_LINES]:
        reasons += [f"  {describe_reason(reason)}", f"      {reason.advice}"]
    losses = []
    for lost in summary.lost[:MOST_LINES]:
        losses.append(f"  ${format_money(lost.dollars)}  {make_printable(lost.why)}")
        losses.append(f"      {_describe_place(lost.place)}")
    return [
        *_headline(summary),
        *_titled("why caches were lost", reasons),
        *_group_lines(summary),
        *_titled("dearest lost caches", losses),
    ]


def _titled(title: str, lines: Sequence[str]) -> list[str]:
    """Lines with a title; nothing if there are none."""
    if not lines:
        return []
    return ["", title, *lines]


def _group_lines(summary: AcrossSessions) -> list[str]:
    """A table for each way to group the sessions. A single group says nothing."""
    lines: list[str] = []
    for by, rows in summary.groups.items():
        if len(rows) < 2:
            continue
        first_rows = rows[:MOST_LINES]
        if by == "day":
            first_rows = rows[-MOST_LINES:]
        lines += ["", f"by {by}", *align_columns(GROUP_COLUMNS, first_rows)]
        if len(rows) > len(first_rows):
            lines.append(f"  and {len(rows) - len(first_rows):,} more")
    return lines


def _headline(summary: AcrossSessions) -> list[str]:
    days = dict.fromkeys([format_date(summary.began), format_date(summary.ended)])
    counts = f"{count_noun(summary.sessions, 'session')}, {count_noun(summary.calls, 'call')}"
    if summary.began is not None:
        counts += f", {' to '.join(days)}"
    unpriced = ""
    if summary.priced < summary.sessions:
        unpriced = f" in {summary.priced:,} of them; the others have no price"
    return [
        counts,
        f"they cost      ${format_money(summary.dollars)}{unpriced}, prices of {AS_OF}",
        f"cached         {format_percent(summary.cached)} of {summary.sent:,} tokens sent",
        f"lost caches    {summary.losses:,}, for ${format_money(summary.lost_dollars)}",
        f"cuts           {summary.cuts:,}",
    ]


def _describe_place(place: Place) -> str:
    """The title of a session, the request, and the file or conversation."""
    words = make_printable(place.title)[:LONGEST_NAME]
    if place.request is not None:
        words += f", request {place.request + 1:,}"
    return f"{words} ({make_printable(place.file)})"
