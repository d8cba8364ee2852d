"""At which requests of a session a text was visible, and in which form."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.core.values import Entry, Form
from lamina.core.wording import describe_segment
from lamina.errors import BadInput
from lamina.inspector.built_values import BuiltCall
from lamina.inspector.segment_texts import join_texts
from lamina.inspector.settings import BuildSettings
from lamina.inspector.views import Inspector, Json

MOST_MATCHES = 200
"""Segments that a search lists."""

_VISIBILITY = ("", "recall", "part", "full")
"""How much of a text a request shows, from nothing to all of it."""


def find_visible(inspector: Inspector, session_id: str, text: str, settings: BuildSettings) -> Json:
    """At which requests a text was visible, in which form, and where it would have had to be recalled.

    Between two cuts requests only grow, so one request of each such run is looked at: its last one.
    """
    if not text.strip():
        raise BadInput("there is nothing to look for", place="text", hint="give a text or a path")
    built = inspector.built(session_id, settings)
    lowered_text = text.lower()
    states = dict.fromkeys((call.number for call in built.calls), "")
    matches: dict[str, Json] = {}
    for first, last in find_runs(built.calls):
        for entry in inspector.builder.build_call(built, last).entries:
            if lowered_text not in join_texts(entry.segment.parts).lower():
                continue
            arrived = built.arrivals.get(entry.ref, first)
            state = _visibility(entry, lowered_text)
            for number in states:
                is_in_run = max(arrived, first) <= number <= last
                if is_in_run and _VISIBILITY.index(state) > _VISIBILITY.index(states[number]):
                    states[number] = state
            if len(matches) < MOST_MATCHES:
                what = describe_segment(entry.segment)
                matches.setdefault(str(entry.ref), {"ref": str(entry.ref), "what": what, "arrived": arrived})
    states_in_order = list(states.values())
    return {
        "text": text,
        "states": states_in_order,
        "matches": list(matches.values()),
        "visible": states_in_order.count("full") + states_in_order.count("part"),
        "hidden": states_in_order.count("recall"),
        "turns": _states_of_turns(built.calls, states_in_order),
    }


def _states_of_turns(calls: Sequence[BuiltCall], states: Sequence[str]) -> list[Json]:
    """What the last request of each turn showed."""
    last_states: dict[int, str] = {}
    for call, state in zip(calls, states, strict=True):
        last_states[call.turn] = state
    return [{"turn": turn, "state": state} for turn, state in last_states.items()]


def _visibility(entry: Entry, lowered_text: str) -> str:
    """How much of a text can be seen in an entry: all of it, a part, or nothing before a recall."""
    if entry.form is Form.FULL:
        return "full"
    if entry.form is not Form.OMITTED and lowered_text in join_texts(entry.parts).lower():
        return "part"
    return "recall"


def find_runs(calls: Sequence[BuiltCall]) -> list[tuple[int, int]]:
    """The first and the last request of each run in which every request continues the one before it.

    A request that could not be built belongs to no run.
    """
    runs: list[tuple[int, int]] = []
    for call in calls:
        if call.error:
            continue
        begins = bool(call.cut) or not call.continues
        if begins or not runs:
            runs.append((call.number, call.number))
        else:
            runs[-1] = (runs[-1][0], call.number)
    return runs
