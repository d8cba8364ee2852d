"""Every tool of lamina's table is answered inside the call, in every dialect, whole and streamed."""

from __future__ import annotations

import json

import msgspec
import pytest

from lamina.conversations.recall_answers import shows_client_call, strip_recalls
from lamina.conversations.recall_loop import ROUNDS, RecallLoop
from lamina.conversations.stream_filters import filter_for
from lamina.core import ToolCall
from lamina.core.values import Segment
from lamina.dialects import DIALECTS, Tool
from lamina.fitting import Fitted
from lamina.fitting.own_tools import RECALL_TOOL, OwnTool, ToolSituation, list_names
from lamina.segments import result
from tests.conversations.test_truncated_calls import APIS_OF_DIALECTS, NAMES, fit, list_events
from tests.wrapped.scripted_api import APIS, Call, Said


def count_log(call: ToolCall, situation: ToolSituation) -> Segment:
    """Answer like a tool of the table: from the log."""
    words = f"{len(situation.log)} logged, {call.arguments}"
    return result(words, id=call.id, name=call.name)


CENSUS = OwnTool(definition=Tool(name="census"), answer=count_log)
OWN_TOOLS = (RECALL_TOOL, CENSUS)
OWN_NAMES = list_names(OWN_TOOLS)


def fit_with_tools(name: str) -> Fitted:
    """A request of a dialect, with the tools of this table."""
    return msgspec.structs.replace(fit(name), own_tools=OWN_TOOLS)


ASKS = Call("census", {"of": "all"}, "own_1")
RECALLS = Call("recall", {"key": "k1"}, "own_2")
READS = Call("read_file", {"path": "a.py"}, "client_1")


@pytest.mark.parametrize("name", NAMES)
def test_a_second_tool_is_answered_beside_recalls_and_never_shown(name: str) -> None:
    dialect = DIALECTS[name]
    write, _ = APIS[APIS_OF_DIALECTS[name]]
    answer = write(["Let me see. ", ASKS, RECALLS], 10)
    assert not shows_client_call(answer, dialect, OWN_NAMES)
    turns = RecallLoop(dialect).take(dialect.answers.absorb(answer), fit_with_tools(name))
    words = json.dumps(turns)
    assert "1 logged" in words
    assert "nothing has the key" in words
    shown = json.dumps(strip_recalls(answer, dialect, OWN_NAMES))
    assert "Let me see. " in shown
    assert "census" not in shown


@pytest.mark.parametrize("said", [["See: ", ASKS], [ASKS, "See: "], [ASKS, RECALLS]])
@pytest.mark.parametrize("name", NAMES)
def test_a_second_tool_is_hidden_in_streams(name: str, said: Said) -> None:
    dialect = DIALECTS[name]
    stream_filter = filter_for(dialect, OWN_NAMES)
    events = list_events(name, said)
    shown = [shown_event for event in events for shown_event in stream_filter.take(event)]
    loop = RecallLoop(dialect, streams=True)
    absorbed = dialect.answers.absorb_stream(events)
    assert loop.take(absorbed, fit_with_tools(name), shows_call=stream_filter.shows_call)
    shown += stream_filter.next_round()
    assert "census" not in json.dumps(shown)


@pytest.mark.parametrize("name", NAMES)
def test_a_tool_that_the_request_does_not_have_is_the_clients(name: str) -> None:
    dialect = DIALECTS[name]
    write, _ = APIS[APIS_OF_DIALECTS[name]]
    answer = write([ASKS], 10)
    only_recall = list_names((RECALL_TOOL,))
    assert shows_client_call(answer, dialect, only_recall)
    assert strip_recalls(answer, dialect, only_recall) is answer
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
        assert "1 logged" in json.dumps(loop.take(absorbed, fit_with_tools("anthropic")))
    told = json.dumps(loop.take(absorbed, fit_with_tools("anthropic")))
    assert f"census was called {ROUNDS} times in a row" in told
    assert loop.take(absorbed, fit_with_tools("anthropic")) == ()
    assert loop.shows_nothing
