"""What one change in a message leaves alone, and where parts go that their place on the wire cannot hold."""

from __future__ import annotations

from typing import Any

import pytest

from lamina import Budget, build, fit_request, translate
from lamina.core import Image, Text, ToolCall
from lamina.dialects.openai_chat import render
from lamina.dialects.openai_chat.parse import parse
from lamina.dialects.pairing import PairedResult, find_reading_order
from lamina.segments import result
from tests.dialects.wires import WIRES, Call, Result

Json = dict[str, Any]

BUDGET = Budget(window=8_000, reserve=500)
MODELS = {
    "openai_chat": "gpt-4o",
    "gemini": "gemini-2.5-pro",
    "ollama": "qwen3",
    "anthropic": "claude-opus-4-8",
}

PNG = "aGk="
DATA_URL = f"data:image/png;base64,{PNG}"
CHAT_PICTURE = {"type": "image_url", "image_url": {"url": DATA_URL}}


def fit(request: Json, dialect: str) -> Json:
    return fit_request({"model": MODELS[dialect], **request}, dialect=dialect, budget=BUDGET).request


# A call that nothing changed is the same object, also if the call beside it had to be changed.


REFUSED_NAMES = {"openai_chat": "no name!", "ollama": "", "anthropic": "no name!", "gemini": "no name!"}
"""Names that the API does not take, so that the call has to be changed."""


@pytest.mark.parametrize("dialect", REFUSED_NAMES)
def test_a_call_beside_one_that_was_changed_is_the_same_object(dialect: str) -> None:
    wire, refused = WIRES[dialect], REFUSED_NAMES[dialect]
    calls = wire.call([Call("a", refused), Call("b", "read", {"path": "a.py"})])
    results = wire.answer([Result("a", refused or "other"), Result("b", "read")])
    sent = fit(wire.request([wire.ask("Go."), *calls, *results]), dialect)
    field = {"gemini": "parts", "anthropic": "content"}.get(dialect, "tool_calls")
    changed, same = sent[wire.field][1][field]
    assert changed != calls[0][field][0]
    assert same is calls[0][field][1]


# A message that says nothing but has fields of its own is sent.


@pytest.mark.parametrize("content", [None, "", []])
def test_a_silent_message_with_extra_fields_is_sent_with_them(content: Any) -> None:
    silent = {"role": "assistant", "content": content, "reasoning_state": {"step": 3}}
    sent = fit({"messages": [{"role": "user", "content": "Go."}, silent]}, "openai_chat")
    assert sent["messages"][1] == {"role": "assistant", "content": "", "reasoning_state": {"step": 3}}


def test_a_silent_message_without_fields_is_not_sent() -> None:
    turns = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": None}]
    sent = fit({"messages": [*turns, {"role": "user", "content": "On."}]}, "openai_chat")
    assert [message["role"] for message in sent["messages"]] == ["user", "user"]


# Pictures of results stand right behind the results.


def anthropic_screenshots(after: list[Json]) -> Json:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    calls = [{"type": "tool_use", "id": call_id, "name": "look", "input": {}} for call_id in "ab"]
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "one"}, picture]},
        {"type": "tool_result", "tool_use_id": "b", "content": [picture]},
    ]
    turns = [{"role": "assistant", "content": calls}, {"role": "user", "content": results}, *after]
    return {"max_tokens": 9, "messages": [{"role": "user", "content": "Look."}, *turns]}


AFTER_RESULTS = {
    "the end": [],
    "an answer": [{"role": "assistant", "content": "I see."}, {"role": "user", "content": "And now?"}],
    "a question": [{"role": "user", "content": "And now?"}],
}


@pytest.mark.parametrize("after", AFTER_RESULTS.values(), ids=AFTER_RESULTS)
def test_pictures_of_results_from_another_api_follow_the_results(after: list[Json]) -> None:
    request = {"model": MODELS["anthropic"], **anthropic_screenshots(after)}
    sent = translate(request, dialect="anthropic", to="openai_chat", model=MODELS["openai_chat"]).request
    assert sent["messages"][2:] == [
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": ""},
        {"role": "user", "content": [CHAT_PICTURE, CHAT_PICTURE]},
        *after,
    ]


@pytest.mark.parametrize("after", AFTER_RESULTS.values(), ids=AFTER_RESULTS)
def test_pictures_of_results_stand_before_messages_that_are_sent_as_they_came(after: list[Json]) -> None:
    """An application's own tool answered with a picture; all the rest of the log came over this API."""
    calls = [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    old_result = {"role": "tool", "tool_call_id": "a", "content": "nothing"}
    turns = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "tool_calls": calls},
        old_result,
        *after,
    ]
    log = list(parse({"model": "gpt-4o", "messages": turns}).log)
    log[2] = result((Text("one"), Image(data=PNG, media_type="image/png")), id="a", name="look")
    sent = render(build(log))["messages"]
    assert sent[2:4] == [
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "user", "content": [CHAT_PICTURE]},
    ]
    assert len(sent) == 4 + len(after)
    for message, as_it_came in zip(sent[4:], after, strict=True):
        assert message is as_it_came


# A result belongs to the call of its id, whatever name it has.


def test_the_id_of_a_result_decides_before_its_name() -> None:
    calls = [
        {"functionCall": {"id": "1", "name": "read", "args": {}}},
        {"functionCall": {"id": "2", "name": "grep", "args": {}}},
    ]
    results = [
        {"functionResponse": {"id": "2", "name": "read", "response": {"output": "of the second"}}},
        {"functionResponse": {"id": "1", "name": "grep", "response": {"output": "of the first"}}},
    ]
    turns = [{"role": "model", "parts": calls}, {"role": "user", "parts": results}]
    request = {"model": "gemini-2.5-pro", "contents": [{"role": "user", "parts": [{"text": "Go."}]}, *turns]}
    sent = translate(request, dialect="gemini", to="openai_chat", model="gpt-4o").request
    found = {
        message["tool_call_id"]: message["content"]
        for message in sent["messages"]
        if message["role"] == "tool"
    }
    assert found == {"1": "of the first", "2": "of the second"}


def test_results_that_are_read_wrongly_get_the_order_of_their_calls_and_those_without_a_call_come_last() -> (
    None
):
    calls = [ToolCall(id=call_id, name="read", arguments="{}") for call_id in "ab"]
    results = [
        PairedResult(asked="b", asked_name="read", name="read"),
        PairedResult(asked="a", asked_name="read", name="read"),
        PairedResult(asked="a", asked_name="read", name="read"),
    ]
    assert find_reading_order(calls, results) == [1, 0, 2]
    assert find_reading_order(calls, [results[1], results[2], results[0]]) == [0, 2, 1]
    assert find_reading_order(calls, results[1:]) == [0, 1]


# An output of Responses without text.


def say_result(*items: Json) -> str:
    request = {"model": "gpt-5", "input": [{"role": "user", "content": "Go."}, *items]}
    sent = translate(request, dialect="openai_responses", to="openai_chat", model="gpt-4o").request
    return str(sent["messages"][2]["content"])


def test_a_patch_is_answered_by_its_status_and_no_other_call_is() -> None:
    operation = {"type": "delete_file", "path": "a.py"}
    patch = {"type": "apply_patch_call", "call_id": "p", "status": "completed", "operation": operation}
    patched = {"type": "apply_patch_call_output", "call_id": "p", "status": "failed"}
    assert say_result(patch, patched) == "failed"
    assert say_result(patch, {**patched, "output": "no such file"}) == "no such file"
    call = {"type": "function_call", "call_id": "p", "name": "read", "arguments": "{}"}
    answer = {"type": "function_call_output", "call_id": "p", "status": "completed", "output": None}
    assert say_result(call, answer) == ""


# Blank blocks are sent, so that a change of them is a change of the history.


def text_blocks(*texts: str) -> list[Json]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize(
    ("blocks", "is_changed"),
    [
        (text_blocks("Look.", "  ", "Here."), False),
        (text_blocks("  ", "Look.", "Here."), True),
        (text_blocks("Look.", "Here."), True),
        (text_blocks("Look.", "    ", "Here."), True),
    ],
    ids=["the same", "moved", "gone", "longer"],
)
def test_a_blank_block_of_an_old_message_belongs_to_the_history(
    blocks: list[Json], *, is_changed: bool
) -> None:
    after = [{"role": "assistant", "content": "I see."}, {"role": "user", "content": "And now?"}]
    turns = [{"role": "user", "content": text_blocks("Look.", "  ", "Here.")}, *after]
    first = fit_request({"model": "gpt-4o", "messages": turns}, dialect="openai_chat", budget=BUDGET)
    turns = [{"role": "user", "content": blocks}, *after, *after]
    second = fit_request(
        {"model": "gpt-4o", "messages": turns}, dialect="openai_chat", budget=BUDGET, ledger=first.ledger
    )
    assert second.request["messages"][0]["content"] == blocks
    assert (second.envelope.cut is not None) is is_changed
