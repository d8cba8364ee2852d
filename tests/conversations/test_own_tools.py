"""Recalls are answered inside the call, in every dialect, whole and streamed."""

from __future__ import annotations

import json

import msgspec
import pytest

from lamina.conversations.recall_answers import shows_client_call, strip_recalls
from lamina.conversations.recall_loop import ROUNDS, RecallLoop
from lamina.conversations.stream_filters import filter_for
from lamina.dialects import DIALECTS
from lamina.fitting import Fitted
from lamina.fitting.recalls import RECALL
from tests.conversations.test_truncated_calls import APIS_OF_DIALECTS, NAMES, fit, list_events
from tests.wrapped.scripted_api import APIS, Call, Said

OWN_NAMES = frozenset((RECALL.name,))


def fit_with_tools(name: str) -> Fitted:
    """A request of a dialect, with the recall tool."""
    return msgspec.structs.replace(fit(name), has_recall=True)


ASKS = Call("recall", {"key": "of all"}, "own_1")
RECALLS = Call("recall", {"key": "k1"}, "own_2")
READS = Call("read_file", {"path": "a.py"}, "client_1")


@pytest.mark.parametrize("name", NAMES)
def test_two_recalls_are_answered_and_never_shown(name: str) -> None:
    dialect = DIALECTS[name]
    write, _ = APIS[APIS_OF_DIALECTS[name]]
    answer = write(["Let me see. ", ASKS, RECALLS], 10)
    assert not shows_client_call(answer, dialect, OWN_NAMES)
    turns = RecallLoop(dialect).take(dialect.answers.absorb(answer), fit_with_tools(name))
    words = json.dumps(turns)
    assert words.count("nothing has the key") == 2
    shown = json.dumps(strip_recalls(answer, dialect, OWN_NAMES))
    assert "Let me see. " in shown
    assert "of all" not in shown


@pytest.mark.parametrize("said", [["See: ", ASKS], [ASKS, "See: "], [ASKS, RECALLS]])
@pytest.mark.parametrize("name", NAMES)
def test_recalls_are_hidden_in_streams(name: str, said: Said) -> None:
    dialect = DIALECTS[name]
    stream_filter = filter_for(dialect, OWN_NAMES)
    events = list_events(name, said)
    shown = [shown_event for event in events for shown_event in stream_filter.take(event)]
    loop = RecallLoop(dialect, streams=True)
    absorbed = dialect.answers.absorb_stream(events)
    assert loop.take(absorbed, fit_with_tools(name), shows_call=stream_filter.shows_call)
    shown += stream_filter.next_round()
    assert "of all" not in json.dumps(shown)


@pytest.mark.parametrize("name", NAMES)
def test_any_other_tool_is_the_clients(name: str) -> None:
    dialect = DIALECTS[name]
    write, _ = APIS[APIS_OF_DIALECTS[name]]
    answer = write([READS], 10)
    assert shows_client_call(answer, dialect, OWN_NAMES)
    assert strip_recalls(answer, dialect, OWN_NAMES) is answer
    assert RecallLoop(dialect).take(dialect.answers.absorb(answer), fit(name)) == ()


@pytest.mark.parametrize("name", NAMES)
def test_beside_a_call_of_the_client_the_result_waits_for_the_clients(name: str) -> None:
    dialect = DIALECTS[name]
    write, _ = APIS[APIS_OF_DIALECTS[name]]
    loop = RecallLoop(dialect)
    assert loop.take(dialect.answers.absorb(write([ASKS, READS], 10)), fit_with_tools(name)) == ()
    assert not loop.shows_nothing


def test_a_model_that_only_calls_own_tools_is_told_to_answer() -> None:
    dialect = DIALECTS["anthropic"]
    write, _ = APIS[APIS_OF_DIALECTS["anthropic"]]
    absorbed = dialect.answers.absorb(write([ASKS], 10))
    loop = RecallLoop(dialect)
    for _ in range(ROUNDS):
        assert "nothing has the key" in json.dumps(loop.take(absorbed, fit_with_tools("anthropic")))
    told = json.dumps(loop.take(absorbed, fit_with_tools("anthropic")))
    assert f"recall was called {ROUNDS} times in a row" in told
    assert loop.take(absorbed, fit_with_tools("anthropic")) == ()
    assert loop.shows_nothing
