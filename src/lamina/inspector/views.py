"""Shows sessions as plain JSON values: the list of them, and the strip of one.

Every figure comes from the functions behind `explain`, `diff` and the lab, so that the page, the command line
and a program agree. The other views are in `request_views`, `segment_views`, `comparisons`, `visibility` and
`exports`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from lamina.caches import all_rules
from lamina.core.values import Layer
from lamina.inspector.alternative_rows import AlternativeRows
from lamina.inspector.building import SessionBuilder
from lamina.inspector.built_values import BuiltCall, BuiltSession
from lamina.inspector.logged_sessions import usages_by_call
from lamina.inspector.progress import AnswerProgress
from lamina.inspector.recorded_sessions import ListedSession, RecordedSession, StoredSession
from lamina.inspector.session_figures import FiguresOfSessions
from lamina.inspector.sessions import Sessions
from lamina.models.facts import AS_OF
from lamina.replay.account_sums import sum_fields

Json = dict[str, Any]

MOST_LANES = 40
"""Sub-agents that are drawn under their parent."""


class Inspector:
    """Answers what the page asks. It holds the sessions and what was built of them."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.builder = SessionBuilder()
        self.progress = AnswerProgress()
        self.figures = FiguresOfSessions()
        self.alternatives = AlternativeRows()

    def built(self, session_id: str, rules: str = "") -> BuiltSession:
        return self.builder.build(self.sessions.get(session_id), rules)


def show_sessions(inspector: Inspector, *, rows: int | None = None) -> Json:
    """The newest sessions, or all of them. With them go the names that the page offers in its menus."""
    summaries = inspector.sessions.summaries()
    listed = inspector.sessions.complete(summaries[:rows])
    return {
        "sessions": [msgspec.to_builtins(summary) for summary in listed],
        "more": len(summaries) - len(listed),
        "problems": [msgspec.to_builtins(problem) for problem in inspector.sessions.problems()],
        "rules": sorted(all_rules()),
        "prices_as_of": AS_OF,
        "layers": [layer.value for layer in Layer],
    }


def show_session(inspector: Inspector, session_id: str, *, rules: str = "") -> Json:
    """The strip: one bar for each request, with its layers, its cache and its cost."""
    built = inspector.built(session_id, rules)
    return {
        "session": msgspec.to_builtins(built.session.summary),
        "rules": built.rules.name,
        "all_rules": sorted(all_rules()),
        "window": built.session.window,
        "calls": [show_call(call) for call in built.calls],
        "totals": sum_calls(built.calls),
        "tools": [] if built.is_sent else list(find_tool_use(built)),
        "compacted": find_compacted_calls(built.session),
        "head_recorded": built.session.has_head,
        "unrecorded": built.unrecorded,
        "as_sent": built.is_sent,
        "relatives": list(list_relatives(inspector, built.session)),
        "lanes": [show_lane(child) for child in inspector.sessions.children(built.session)[:MOST_LANES]],
    }


def list_relatives(inspector: Inspector, session: RecordedSession) -> Iterator[Json]:
    """The session that this one is a part of, and those in which its client went on."""
    parent = inspector.sessions.parent(session)
    if parent is not None:
        yield {"id": parent.id, "name": parent.name, "first_words": parent.first_words, "is_parent": True}
    for fork in inspector.sessions.forks(session):
        yield {"id": fork.id, "name": fork.name, "first_words": fork.first_words, "is_parent": False}


def show_tools(inspector: Inspector, session_id: str) -> Json:
    """The tools of a session. Of a record only this tells them: the client's whole history is read for it."""
    return {"tools": list(find_tool_use(inspector.built(session_id)))}


def show_lane(session: ListedSession) -> Json:
    """The requests of a sub-agent: when each was sent, and how large it was where that is recorded."""
    calls: list[Json] = []
    for number, (moment, tokens) in enumerate(_list_sizes(session)):
        calls.append({"number": number, "at": moment, "tokens": tokens})
    return {
        "id": session.summary.id,
        "name": session.summary.name,
        "first_words": session.summary.first_words,
        "calls": calls,
    }


def _list_sizes(session: ListedSession) -> Iterator[tuple[float | None, int | None]]:
    """The time and the tokens of each request, None where they are not known."""
    if isinstance(session, StoredSession):
        yield from session.sizes
        return
    for call, usage in zip(session.conversation.calls, usages_by_call(session), strict=True):
        if usage is None:
            yield call.at, None
        else:
            yield call.at, usage.total


def find_compacted_calls(session: RecordedSession) -> list[int]:
    """The calls before which the client itself replaced what stood there.

    The records have the place of a compaction among the items. The next answer after it is the call.
    """
    if session.sent is not None:
        return []
    starts = sorted(session.conversation.trace.used)
    numbers = {bisect_left(starts, place) for place in session.conversation.trace.compacted}
    calls = len(session.conversation.calls)
    return sorted(number for number in numbers if number < calls)  # not one after the last answer


def show_call(call: BuiltCall) -> Json:
    view: Json = msgspec.to_builtins(call)
    return view


def sum_calls(calls: Sequence[BuiltCall]) -> Json:
    """The sums of a session. Money is None if no request has a price, and "at least" if some have none.

    A request whose answer was not recorded is not part of the money: nobody knows what it took.
    """
    prices = [call.dollars for call in calls if not call.is_open]
    known_prices = [price for price in prices if price is not None]
    return {
        "calls": len(calls),
        "sent": sum(call.tokens for call in calls),
        **sum_fields(calls, ["read", "written", "uncached", "output"]),
        "dollars": sum(known_prices) if known_prices else None,
        "is_at_least": 0 < len(known_prices) < len(prices),
        "cuts": sum(bool(call.cut) and not call.is_refused for call in calls),
        "refused": sum(call.is_refused for call in calls),
        "open": sum(call.is_open for call in calls),
        "largest": max((call.tokens for call in calls), default=0),
    }


def find_tool_use(built: BuiltSession) -> Iterator[Json]:
    """Each tool with the size of its definition, and how often it was called; the unused ones first.

    A tool that was called without a definition has no size.
    """
    calls: Tally[str] = Tally()
    for message in built.session.conversation.messages:
        for call in message.get("tool_calls") or ():
            calls[str(call.get("function", {}).get("name", ""))] += 1
    sizes: dict[str, int] = {}
    for tool in built.session.conversation.tools:
        function = tool.get("function", tool)  # a tool that the provider runs has no function
        name = str(function.get("name", ""))
        sizes[name] = built.counter.count(msgspec.json.encode(tool).decode())
    names = sorted({*sizes, *calls}, key=lambda name: (calls[name], -sizes.get(name, 0), name))
    for name in names:
        yield {"name": name, "tokens": sizes.get(name), "calls": calls[name]}
