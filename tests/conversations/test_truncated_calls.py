"""Streams that are cut off beside a recall, in all five APIs.

A call that was shown makes the answer the client's, and the reason why the model stopped stays.

A stream is taken through the filter and the loop that a wrapped client and the gateway share.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import Budget, fit_request
from lamina.conversations.recall_answers import shows_client_call, strip_recalls
from lamina.conversations.recall_filter import RecallFilter
from lamina.conversations.recall_loop import RecallLoop
from lamina.dialects import DIALECTS
from lamina.fitting import Fitted
from tests.wrapped.scripted_api import APIS, Call, Said

OWN_NAMES = frozenset(("recall",))
RECALL = Call("recall", {"key": "k1"}, "rc_1")
OWN = Call("read_file", {"path": "a.py"}, "own_1")
OTHER_OWN = Call("grep", {"text": "b"}, "own_2")

APIS_OF_DIALECTS = {
    "anthropic": "messages",
    "openai_chat": "completions",
    "openai_responses": "responses",
    "gemini": "generateContent",
    "ollama": "chat",
}
STOP_FIELDS = ("stop_reason", "finish_reason", "finishReason", "done_reason")
CUT_OFF = {"stop_reason": "max_tokens", "finish_reason": "length", "finishReason": "MAX_TOKENS"}
REQUESTS = {
    "gemini": {"model": "gemini-3.8-flash", "contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    "openai_responses": {"model": "gpt-5", "input": [{"role": "user", "content": "Hi"}]},
}
NAMES = tuple(APIS_OF_DIALECTS)
CONTENT = st.builds(
    lambda pieces, count: pieces[:count],
    st.permutations([RECALL, OWN, OTHER_OWN, "Let me see. "]),
    st.integers(1, 4),
)


@cache
def fit(name: str) -> Fitted:
    """A request of a dialect, with lamina's own tool. Fitted when a test asks: counters are slow to load."""
    message = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    fitted = fit_request(REQUESTS.get(name, message), dialect=name, budget=Budget(window=8_000))
    return msgspec.structs.replace(fitted, has_recall=True)


class Outcome(NamedTuple):
    """What a client saw of a stream, what the upstream said, and the turns that the loop wants to add."""

    shown: list[Any]
    events: list[Any]
    turns: tuple[Any, ...]
    recall_filter: RecallFilter


def list_events(name: str, said: Said) -> list[dict[str, Any]]:
    """The events of a whole stream."""
    _, stream = APIS[APIS_OF_DIALECTS[name]]
    events: list[dict[str, Any]] = []
    for text in stream(said, 10):
        data = text.partition("data: ")[2] or text
        if "[DONE]" not in data:
            events.append(json.loads(data))
    return events


def set_stop_reason(events: list[Any]) -> None:
    """Say of a stream that its answer was cut off."""
    for value in walk(events):
        for field in CUT_OFF.keys() & value.keys():
            if value[field] is not None:
                value[field] = CUT_OFF[field]
        if value.get("type") == "response.completed":
            value["type"] = "response.incomplete"
            details = {"reason": "max_output_tokens"}
            value["response"] |= {"status": "incomplete", "incomplete_details": details}


def walk(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in a value."""
    if isinstance(value, dict):
        yield value
    inner = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for item in inner:
            yield from walk(item)


def take_stream(name: str, events: list[Any]) -> Outcome:
    """Take a stream as a wrapped client and the gateway do."""
    dialect = DIALECTS[name]
    recall_filter = RecallFilter(dialect, OWN_NAMES)
    shown: list[Any] = []
    for event in events:
        shown += recall_filter.take(event)
    loop = RecallLoop(dialect, streams=True)
    turns = loop.take(recall_filter.absorb(), fit(name), shows_call=recall_filter.shows_call)
    if turns:
        shown += recall_filter.next_round()
    else:
        shown += recall_filter.list_closing()
    return Outcome(shown, events, turns, recall_filter)


def list_stops(events: list[Any]) -> list[str]:
    """The reasons why an answer stopped, as its events say them."""
    stops = []
    for value in walk(events):
        stops += [value[field] for field in STOP_FIELDS if value.get(field)]
        if value.get("type") in ("response.completed", "response.incomplete"):
            stops.append(value["response"]["status"])
    return stops


def names_call(events: list[Any], call: Call) -> bool:
    return any(value.get("name") == call.name for value in walk(events))


def shorten_arguments(events: list[Any], call: Call, length: int) -> None:
    """Cut off the arguments of a call that arrive as text."""
    whole = json.dumps(call.arguments)
    for value in walk(events):
        for field, content in value.items():
            if content == whole:
                value[field] = whole[:length]


@pytest.mark.parametrize("name", NAMES)
@given(
    said=CONTENT,
    end=st.integers(1, 40),
    length=st.integers(0, 18),
    keeps_end=st.booleans(),
    is_cut_off=st.booleans(),
)
def test_a_call_that_was_shown_makes_the_answer_the_clients(
    name: str, said: Said, *, end: int, length: int, keeps_end: bool, is_cut_off: bool
) -> None:
    events = list_events(name, said)
    shorten_arguments(events, OWN, length)
    if is_cut_off:
        set_stop_reason(events)
    last_events = events[-2:] if name == "anthropic" else events[-1:]
    cut_events = events[:end]
    if keeps_end and end < len(events):
        cut_events += last_events
    outcome = take_stream(name, cut_events)
    assert not names_call(outcome.shown, RECALL)
    shows_own = names_call(outcome.shown, OWN) or names_call(outcome.shown, OTHER_OWN)
    if shows_own:
        assert outcome.turns == ()
    if outcome.recall_filter.shows_call:
        assert list_stops(outcome.shown) == list_stops(outcome.events)
    if outcome.turns:
        assert names_call(outcome.events, RECALL)
        assert not outcome.recall_filter.shows_call


@pytest.mark.parametrize("order", [[RECALL, OWN], [OWN, RECALL]])
@pytest.mark.parametrize("name", NAMES)
def test_the_reason_why_a_cut_off_answer_stopped_stays(name: str, order: Said) -> None:
    events = list_events(name, ["See: ", *order])
    shorten_arguments(events, OWN, 9)
    set_stop_reason(events)
    outcome = take_stream(name, events)
    assert outcome.turns == ()
    assert list_stops(outcome.shown) == list_stops(events)
    assert names_call(outcome.shown, OWN)


@pytest.mark.parametrize("name", NAMES)
def test_a_recall_alone_is_answered_though_its_stream_says_more(name: str) -> None:
    outcome = take_stream(name, list_events(name, ["See: ", RECALL]))
    assert outcome.turns
    assert not outcome.recall_filter.shows_call


@pytest.mark.parametrize("said", [["See: ", RECALL, OWN], ["See: ", OWN], [OWN, RECALL]])
@pytest.mark.parametrize("name", NAMES)
def test_a_whole_answer_with_an_own_call_is_the_clients(name: str, said: Said) -> None:
    write, _ = APIS[APIS_OF_DIALECTS[name]]
    answer = write(said, 10)
    dialect = DIALECTS[name]
    assert shows_client_call(answer, dialect, OWN_NAMES)
    # Even if nothing of the own call can be read.
    absorbed = dialect.answers.absorb(write([one for one in said if one != OWN], 10))
    assert (
        RecallLoop(dialect).take(
            absorbed, fit(name), shows_call=shows_client_call(answer, dialect, OWN_NAMES)
        )
        == ()
    )
    assert not names_call([strip_recalls(answer, dialect, OWN_NAMES)], RECALL)


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_answer_without_an_own_call_shows_none(name: str) -> None:
    write, _ = APIS[APIS_OF_DIALECTS[name]]
    contents: list[Said] = [["Hi"], [RECALL], ["Hi", RECALL]]
    for said in contents:
        assert not shows_client_call(write(said, 10), DIALECTS[name], OWN_NAMES)


def test_a_search_of_the_server_is_no_call_of_the_client() -> None:
    block = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    assert not shows_client_call({"content": [block]}, DIALECTS["anthropic"], OWN_NAMES)
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    assert not shows_client_call({"output": [item]}, DIALECTS["openai_responses"], OWN_NAMES)


def delay_names(events: list[Any], *, ids_too: bool) -> list[Any]:
    """The chunks of Chat Completions, in which the name of each call comes with its last piece."""
    held: dict[int, dict[str, Any]] = {}
    for value in walk(events):
        if "index" not in value or "function" not in value:
            continue
        function = value["function"]
        if "name" in function:
            held[value["index"]] = {"name": function.pop("name")}
            if ids_too:
                held[value["index"]]["id"] = value.pop("id")
            function["arguments"] = '{"'
        else:
            late = held[value["index"]]
            function["name"] = late["name"]
            function["arguments"] = function["arguments"].removeprefix('{"')
            if ids_too:
                value["id"] = late["id"]
    return events


def join_calls(events: list[Any]) -> dict[int, dict[str, str]]:
    """The calls as a client puts them together from the chunks."""
    calls: dict[int, dict[str, str]] = {}
    for value in walk(events):
        if "index" not in value or "function" not in value:
            continue
        call = calls.setdefault(value["index"], {"id": "", "name": "", "arguments": ""})
        call["id"] = value.get("id") or call["id"]
        for field in ("name", "arguments"):
            call[field] += value["function"].get(field) or ""
    return calls


@pytest.mark.parametrize("ids_too", [False, True])
@pytest.mark.parametrize("said", [[RECALL, OWN], [OWN, RECALL], [OWN, OTHER_OWN], [OWN]])
def test_a_call_whose_name_comes_late_arrives_whole_and_alone(said: Said, *, ids_too: bool) -> None:
    events = delay_names(list_events("openai_chat", said), ids_too=ids_too)
    outcome = take_stream("openai_chat", events)
    own_calls = [one for one in said if isinstance(one, Call) and one != RECALL]
    expected = {
        index: {"id": call.id, "name": call.name, "arguments": json.dumps(call.arguments)}
        for index, call in enumerate(own_calls)
    }
    assert join_calls(outcome.shown) == expected
    assert outcome.turns == ()


@pytest.mark.parametrize("ids_too", [False, True])
def test_a_recall_whose_name_comes_late_is_answered_and_leaves_no_ghost(*, ids_too: bool) -> None:
    events = delay_names(list_events("openai_chat", ["See: ", RECALL]), ids_too=ids_too)
    outcome = take_stream("openai_chat", events)
    assert join_calls(outcome.shown) == {}
    assert outcome.turns


def test_a_call_that_never_gets_a_name_is_not_shown() -> None:
    events = delay_names(list_events("openai_chat", ["See: ", OWN]), ids_too=True)
    named = [event for event in events if not names_call([event], OWN)]
    set_stop_reason(named)
    outcome = take_stream("openai_chat", named)
    assert join_calls(outcome.shown) == {}
    assert outcome.turns == ()
    assert list_stops(outcome.shown) == ["length"]
