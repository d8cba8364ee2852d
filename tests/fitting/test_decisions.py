"""Single decisions of fitting a request at their edges: names in errors, own tools, clearing."""

from __future__ import annotations

from typing import Any

import pytest

from lamina import BudgetExceeded, Policy, RequestHead, Segment
from lamina.core.recall import list_refs
from lamina.dialects import DIALECTS
from lamina.fitting.names import name_segments
from lamina.fitting.recalls import plain_turn, write_recall
from lamina.segments import assistant, call, note, result, system, user


def names_in_error(log: list[Segment], request: dict[str, Any] | None = None) -> str:
    """The words of an error that lists every segment of a log."""
    segments = tuple((ref, 10) for ref, _ in list_refs(log))
    return str(name_segments(BudgetExceeded(floor=100, room=10, segments=segments), log, request))


@pytest.mark.parametrize(
    ("segment", "name"),
    [
        (call("read_file", {}, id="c1"), "call of read_file"),
        (result("text", id="c1", name="read_file"), "tool result of read_file"),
        (result("text", id="c1"), "tool result of a tool"),
        (user("hello"), "user message"),
        (assistant("hello"), "assistant message"),
        (system("hello"), "system text"),
        (note("docs/spec.md", "hello"), "note docs/spec.md"),
    ],
)
def test_an_error_names_what_a_segment_is(segment: Segment, name: str) -> None:
    assert name in names_in_error([segment])


def test_an_error_names_the_place_of_each_message_also_of_equal_ones() -> None:
    words = {"role": "user", "content": "twice"}
    request = {"model": "gpt-5", "messages": [words, {"role": "assistant", "content": "well"}, dict(words)]}
    log = list(DIALECTS["openai_chat"].wire.parse(request).log)
    named = names_in_error(log, request)
    assert [f"messages[{index}] (" in named for index in range(4)] == [True, True, True, False]


def test_an_error_names_a_field_that_is_no_list() -> None:
    request = {"model": "gpt-5", "instructions": "Be brief.", "input": "hello"}
    log = list(DIALECTS["openai_responses"].wire.parse(request).log)
    assert 'input (user message, "hello")' in names_in_error(log, request)


class Dumped:
    """An object of an SDK, as far as a turn of a request needs it."""

    def model_dump(self, **how: object) -> dict[str, Any]:
        assert how == {"mode": "json", "by_alias": True, "exclude_unset": True}
        return {"role": "assistant"}


def test_a_turn_is_stored_as_plain_values_whatever_it_is_made_of() -> None:
    turn = {"role": "user", "content": ({"type": "text", "text": "a"}, Dumped(), 3, None)}
    content = [{"type": "text", "text": "a"}, {"role": "assistant"}, 3, None]
    assert plain_turn(turn) == {"role": "user", "content": content}
    assert plain_turn(Dumped()) == {"role": "assistant"}
    assert plain_turn("text") == "text"
    assert plain_turn((1, 2)) == [1, 2]


def test_the_recall_tool_is_added_unless_the_client_has_its_name() -> None:
    dialect = DIALECTS["anthropic"]
    written = write_recall(dialect, RequestHead())
    assert written is not None
    assert written["name"] == "recall"
    assert write_recall(dialect, RequestHead(tools=(written,))) is None


def test_tools_are_kept_unless_the_policy_defers_them_and_the_api_can() -> None:
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("read", "rare")]
    request = {"model": "claude-sonnet-5-5", "max_tokens": 500, "tools": tools, "messages": []}
    deferring = Policy(load_tools=("read",))
    keeping = Policy()
    deferred = deferring.defer_tools(request, DIALECTS["anthropic"])
    assert [bool(tool.get("defer_loading")) for tool in deferred["tools"][-2:]] == [False, True]
    assert keeping.defer_tools(request, DIALECTS["anthropic"]) is request
    assert DIALECTS["ollama"].defer_tools is None
    assert deferring.defer_tools(request, DIALECTS["ollama"]) is request
