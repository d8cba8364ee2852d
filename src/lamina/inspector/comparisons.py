"""Two requests side by side, and a session beside what other settings would have made of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

import msgspec

from lamina.caches.prefix_path import count_common_items
from lamina.diagnose.differences import diff
from lamina.dialects import DIALECTS
from lamina.errors import BadInput
from lamina.fitting.recalls import read_turns
from lamina.inspector.building import KEEP_ALL, build_session, find_call
from lamina.inspector.built_values import BuiltSession
from lamina.inspector.settings import LAMINA, BuildSettings
from lamina.inspector.views import Inspector, Json, find_limits, show_call, sum_calls


def compare_requests(
    inspector: Inspector, session_id: str, before: int, after: int, settings: BuildSettings
) -> Json:
    """Where and why two requests part, what that costs, and what to do.

    The requests are compared as they are sent, under the rules of the cache. If lamina made a cut between
    them, its own reason is the cause.
    """
    built = inspector.built(session_id, settings)
    calls = [find_call(built, before), find_call(built, after)]
    built_requests = [inspector.builder.build_call(built, number) for number in (before, after)]
    requests = [built_request.request for built_request in built_requests]
    for number, request in zip((before, after), requests, strict=True):
        if not request:
            raise BadInput(f"the body of request {number} is not kept", place="request", hint=KEEP_ALL)
    gap = None
    start = calls[0].at
    end = calls[1].at
    if start is not None and end is not None:
        gap = max(end - start, 0.0)
    dialect = DIALECTS[built.dialect]
    difference = diff(requests[0], requests[1], rules=built.rules, gap=gap, dialect=dialect)
    answer: Json = msgspec.to_builtins(difference)
    if any(call.cut for call in built.calls if before < call.number <= after):
        # What lamina did itself, it knows better than the bytes say.
        own_cause = diff(built_requests[0].envelope, built_requests[1].envelope)
        answer |= {name: getattr(own_cause, name) for name in ("cause", "sentence", "advice", "name")}
    answer["before"] = before
    answer["after"] = after
    answer["gap"] = gap
    answer["sides"] = list(_compare_messages(requests[0], requests[1]))
    return answer


def _compare_messages(before: Json, after: Json) -> Iterator[Json]:
    """The messages of two requests side by side, from the first that differs on; equal ones are counted."""
    one = read_turns(before)
    other = read_turns(after)
    shared = count_common_items(one, other)
    yield {"shared": shared}
    pairs = zip_longest(one[shared : shared + 40], other[shared : shared + 40])
    for at, (left, right) in enumerate(pairs, start=shared):
        yield {"at": at, "before": _clip(left), "after": _clip(right)}


def _clip(message: Json | None) -> Json | None:
    if message is None:
        return None
    role = message.get("role") or message.get("type", "")  # items of the Responses API may have no role
    return {"role": role, "text": msgspec.json.encode(message).decode()[:4_000]}


def show_what_if(inspector: Inspector, session_id: str, settings: BuildSettings) -> Json:
    """The session as it was beside the session under other settings, both priced by the same rules.

    What the provider reported stands apart: it is no simulation. Of a long session only some requests are
    built, and then the same ones on both sides. A session that lamina recorded is as it was sent on one side,
    and on the other what the settings make of the client's own history.
    """
    other = inspector.built(session_id, msgspec.structs.replace(settings, policy=LAMINA))
    recorded = inspector.built(session_id, BuildSettings(rules=other.rules.name))
    reported_dollars = recorded.session.summary.dollars
    if other.skipped:
        reported_dollars = None
        if not recorded.is_sent:
            numbers = [call.number for call in other.calls]
            recorded = build_session(recorded.session, recorded.settings, numbers=numbers)
    window = settings.window or recorded.session.window
    last = other.calls[-1]
    return {
        "reported_dollars": reported_dollars,
        "recorded": sum_calls(recorded.calls),
        "other": sum_calls(other.calls),
        "settings": msgspec.to_builtins(other.settings),
        "limits": find_limits(other),
        "calls": [show_call(call) for call in other.calls],
        "skipped": other.skipped,
        "over_window": sum(call.tokens + other.unrecorded > window for call in recorded.calls),
        "visible_names": _count_visible_names(other),
        "last": {"in_full": last.entries, "left_out": last.left_out},
    }


def _count_visible_names(built: BuiltSession) -> Json:
    """Of the names, paths and numbers that answers took from earlier context: how many stood in the request.

    Everything else could have been recalled.
    """
    needed = sum(call.needed for call in built.calls)
    return {"needed": needed, "visible": sum(call.visible for call in built.calls)}
