from __future__ import annotations

from lamina.costs import RecordedUsage, Trace
from lamina.costs.logs.model_calls import answer_text, message_text, read_conversation
from tests.costs.talks import Json, result, says, session, system, talk, user


def test_a_call_has_everything_before_its_answer() -> None:
    messages = [system("s"), user("a"), says("b"), user("c"), says("d")]
    found = talk(*messages)
    assert [call.end for call in found.calls] == [2, 4]
    assert [call.answer for call in found.calls] == ["b", "d"]
    assert found.request(found.calls[1])["messages"] == messages[:4]


def test_answers_that_follow_each_other_are_one_call() -> None:
    found = talk(user("a"), says("b"), says("c"), user("d"))
    assert [(call.end, call.answer) for call in found.calls] == [(1, "b\nc")]


def test_an_answer_with_nothing_before_it_is_no_call() -> None:
    assert [call.end for call in talk(says("hello"), user("a"), says("b")).calls] == [2]


def test_a_trace_without_an_answer_has_no_calls() -> None:
    assert talk(user("a")).calls == ()


def test_tools_and_the_model_go_along() -> None:
    tools = [{"type": "function", "function": {"name": "read"}}]
    found = read_conversation(
        Trace(
            id="t", place="", dialect="openai_chat", model="m", items=[user("a"), says("b")],
            head={"tools": tools},
        )
    )  # fmt: skip
    assert found.request(found.calls[0]) == {"model": "m", "tools": tools, "messages": [user("a")]}


def test_times_and_output_are_those_of_the_answer() -> None:
    used = {1: RecordedUsage(at=5.0, output=7), 3: RecordedUsage(at=9.0)}
    found = talk(user("a"), says("b"), user("c"), says("d"), used=used)
    assert [(call.at, call.output) for call in found.calls] == [(5.0, 7), (9.0, 0)]


def test_what_an_answer_says_is_its_text_and_the_values_of_its_arguments() -> None:
    assert answer_text(says("look", path="a/b.py", lines=[1, {"to": 2}], all=True)).split("\n") == [
        "look", "a/b.py", "1", "2",
    ]  # fmt: skip


def test_arguments_that_are_not_json_are_said_as_they_are() -> None:
    call = {"id": "c", "function": {"name": "read", "arguments": '{"path": "a.p'}}
    assert answer_text({"role": "assistant", "content": None, "tool_calls": [call]}) == '\n{"path": "a.p'


def test_arguments_may_be_an_object_instead_of_its_text() -> None:
    message: Json = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"arguments": {"a": "x"}}}],
    }
    assert answer_text(message).split() == ["x"]


def test_text_is_a_string_or_the_texts_of_parts() -> None:
    parts = [
        {"type": "text", "text": "one"},
        {"type": "image_url", "image_url": {}},
        {"type": "text", "text": "two"},
    ]
    assert message_text(user("one")) == "one"
    assert message_text({"role": "user", "content": parts}).split() == ["one", "two"]
    assert message_text({"role": "assistant", "content": None}) == ""


def test_a_trace_of_another_dialect_keeps_its_calls_and_times() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.py"}}
    items: list[Json] = [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "value_1"}]},
        {"role": "assistant", "content": "It is value_1."},
    ]  # fmt: skip
    found = read_conversation(
        Trace(
            id="t", place="", dialect="anthropic", model="claude-opus-4-6", items=items,
            head={"system": "Be brief.", "max_tokens": 9},
            used={1: RecordedUsage(at=1.0), 3: RecordedUsage(at=2.0)},
        )
    )  # fmt: skip
    assert [message["role"] for message in found.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [(call.at, call.answer.split()) for call in found.calls] == [
        (1.0, ["a.py"]),
        (2.0, ["It", "is", "value_1."]),
    ]


def test_a_call_with_its_results_stands_before_the_next_answer() -> None:
    found = talk(*session(3))
    assert [call.end for call in found.calls] == [2, 4, 6, 8]
    assert found.messages[3] == result("value_0" + " word" * 9, path="src/file_0.py")


def test_a_last_request_with_a_reported_usage_is_a_call_without_its_answer() -> None:
    items = [user("a"), says("b"), user("c")]
    usage = {1: RecordedUsage(uncached=5, output=1), 3: RecordedUsage(uncached=7, output=2)}
    trace = Trace(id="t", place="p", dialect="openai_chat", items=items, used=usage)
    assert [(call.end, call.answer, call.sent) for call in read_conversation(trace).calls] == [
        (1, "b", 5),
        (3, "", 7),
    ]
