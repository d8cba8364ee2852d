"""Finds the requests of a session in which a text was visible, and in which form."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial

from lamina.core.values import Entry, Form
from lamina.core.wording import describe_segment
from lamina.errors import BadInput
from lamina.inspector.built_values import BuiltCall, BuiltSession
from lamina.inspector.progress import report_steps
from lamina.inspector.segment_texts import join_texts
from lamina.inspector.sent_conversations import SentConversation
from lamina.inspector.sent_history import number_turns
from lamina.inspector.sent_requests import SentRequests
from lamina.inspector.views import Inspector, Json

MOST_MATCHES = 200
"""Segments that a search lists."""

_VISIBILITY = ("", "recall", "part", "full")
"""How much of a text a request shows, from nothing to all of it."""


def find_visible(inspector: Inspector, session_id: str, text: str) -> Json:
    """At which requests a text was visible, in which form, and where it would have had to be recalled.

    Between two cuts requests only grow, so one request of each such run is looked at: its last one. Whether a
    request only grows is told by its bytes if lamina recorded it, so that this holds for what was sent.
    """
    if not text.strip():
        raise BadInput("there is nothing to look for", place="text", hint="give a text or a path")
    built = inspector.built(session_id)
    search = _Search(built, text.lower())
    turns = [call.turn for call in built.calls]
    if built.sent is not None:
        _look_at_sent(inspector, built.sent, search, find_runs(built.calls))
        turns = number_turns(built.sent)
    else:
        for first, last in report_steps(find_runs(built.calls), "looking into requests"):
            entries = inspector.builder.build_call(built, last).envelope.entries
            search.look_at(entries, first, last, partial(_find_arrival, built, first))
    states_in_order = list(search.states.values())
    return {
        "text": text,
        "states": states_in_order,
        "matches": list(search.matches.values()),
        "visible": states_in_order.count("full") + states_in_order.count("part"),
        "hidden": states_in_order.count("recall"),
        "turns": _states_of_turns(turns, states_in_order),
    }


def _find_arrival(built: BuiltSession, first: int, entry: Entry) -> int:
    return built.arrivals.get(entry.ref, first)


def _look_at_sent(
    inspector: Inspector, conversation: SentConversation, search: _Search, runs: Sequence[tuple[int, int]]
) -> None:
    """Look at the last request of each run, as it was sent."""
    requests = SentRequests(conversation)
    history = inspector.builder.find_history(conversation)
    for first, last in report_steps(runs, "looking into requests"):
        envelope = requests.read(last).envelope
        if envelope is None:
            continue

        def find_arrival(entry: Entry, first: int = first, last: int = last) -> int:
            if history.was_sent_by_client(entry.ref, last):
                return history.find_arrival(entry.ref, first=first, last=last)
            return _find_own_arrival(requests, entry, first, last)

        search.look_at(envelope.entries, first, last, find_arrival)


def _find_own_arrival(requests: SentRequests, own: Entry, first: int, last: int) -> int:
    """The first request with an entry that no client sent, such as a reminder or a recall; `last` has it.

    Its words tell it: the name of a recall changes with the first request that the client sends after it.
    """

    def is_there(number: int) -> bool:
        envelope = requests.read(number).envelope
        return envelope is not None and any(entry.sent == own.sent for entry in envelope.entries)

    return first + bisect_left(range(first, last), True, key=is_there)  # noqa: FBT003 - what is sought


class _Search:
    """Where a text, in lower case, was found so far, and how much of it each request showed."""

    def __init__(self, built: BuiltSession, lowered_text: str) -> None:
        self.states = dict.fromkeys((call.number for call in built.calls), "")
        self.matches: dict[str, Json] = {}
        self._text = lowered_text
        self._outcomes: dict[int, tuple[Entry, str]] = {}

    def look_at(
        self, entries: Sequence[Entry], first: int, last: int, find_arrival: Callable[[Entry], int]
    ) -> None:
        """Look at the entries that the requests from `first` to `last` have, each since it arrived."""
        for entry in entries:
            state = self._find(entry)
            if not state:
                continue
            arrived = find_arrival(entry)
            for number in range(max(arrived, first), last + 1):
                self._raise_state(number, state)
            if len(self.matches) < MOST_MATCHES:
                what = describe_segment(entry.segment)
                ref = str(entry.ref)
                self.matches.setdefault(ref, {"ref": ref, "what": what, "arrived": arrived})

    def _raise_state(self, number: int, state: str) -> None:
        """Several entries may have the text: a request shows as much of it as the best of them."""
        self.states[number] = max(self.states[number], state, key=_VISIBILITY.index)

    def _find(self, entry: Entry) -> str:
        """How much of the text an entry shows; "" if it has nothing to do with it.

        Requests share their entries, so each is searched once. The entry is held beside its outcome: another
        object could have its identity later.
        """
        outcome = self._outcomes.get(id(entry))
        if outcome is not None:
            return outcome[1]
        state = _visibility(entry, self._text)
        self._outcomes[id(entry)] = (entry, state)
        return state


def _states_of_turns(turns: Sequence[int], states: Sequence[str]) -> list[Json]:
    """What the last request of each turn showed."""
    last_states = dict(zip(turns, states, strict=True))  # of equal turns the last one stays
    return [{"turn": turn, "state": state} for turn, state in last_states.items()]


def _visibility(entry: Entry, lowered_text: str) -> str:
    """How much of a text can be seen in an entry: all of it, a part, or nothing before a recall.

    A digest has a text of its own, which quotes what it stands for.
    """
    if entry.form is not Form.OMITTED and lowered_text in join_texts(entry.parts).lower():
        if entry.form is Form.FULL and not entry.segment.is_own:
            return "full"
        return "part"
    if entry.segment.is_own:
        return ""
    if lowered_text in join_texts(entry.segment.parts).lower():
        return "recall"
    return ""


def find_runs(calls: Sequence[BuiltCall]) -> list[tuple[int, int]]:
    """The first and the last request of each run in which every request continues the one before it."""
    runs: list[tuple[int, int]] = []
    for call in calls:
        begins = bool(call.cut) or not call.continues
        if begins or not runs:
            runs.append((call.number, call.number))
        else:
            runs[-1] = (runs[-1][0], call.number)
    return runs
