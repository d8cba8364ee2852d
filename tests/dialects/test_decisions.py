"""Single decisions of the wire formats: what is no answer, what stays pinned, what is deferred."""

from __future__ import annotations

from typing import Any

import pytest

from lamina import Ledger, Segment, build
from lamina.core.values import Ref
from lamina.dialects import DIALECTS
from lamina.dialects.openai_responses.reasoning import WITHOUT_ID
from lamina.dialects.origins import ON_THE_WIRE
from lamina.dialects.translate import choose_options
from lamina.dialects.usage import count_noun
from tests.dialects.sending import fit

Json = dict[str, Any]


def parse(name: str, request: Json) -> tuple[Segment, ...]:
    return DIALECTS[name].wire.parse(request).log


def send(name: str, request: Json, *, ledger: Ledger | None = None) -> Json:
    return DIALECTS[name].wire.render(fit(name, request, ledger=ledger))


# Converse


def test_a_system_message_of_the_client_is_sent_as_one() -> None:
    messages = [
        {"role": "user", "content": [{"text": "Go."}]},
        {"role": "assistant", "content": [{"text": "Yes."}]},
        {"role": "system", "content": [{"text": "The date has changed."}]},
        {"role": "user", "content": [{"text": "And now?"}]},
    ]
    request = {"modelId": "us.anthropic.claude-sonnet-4-5-v1:0", "messages": messages}
    assert send("bedrock_converse", request)["messages"] == messages


# Chat Completions


def test_a_field_beside_a_picture_is_counted() -> None:
    picture: Json = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    counted: list[bool] = []
    for note in ({}, {"caption": "what it shows"}):
        messages = [{"role": "user", "content": [{"type": "text", "text": "Look."}, picture | note]}]
        log = parse("openai_chat", {"model": "gpt-5", "messages": messages})
        counted.append(any("what it shows" in str(one.beside) for one in log))
    assert counted == [False, True]


def test_a_field_inside_of_a_call_is_counted() -> None:
    counted: list[bool] = []
    for note in ({}, {"reason": "to see what is in it"}):
        function = {"name": "read_file", "arguments": "{}", **note}
        call = {"id": "c1", "type": "function", "function": function}
        messages = [{"role": "user", "content": "Look."}, {"role": "assistant", "tool_calls": [call]}]
        log = parse("openai_chat", {"model": "gpt-5", "messages": messages})
        counted.append(any("what is in it" in str(one.beside) for one in log))
    assert counted == [False, True]


# Responses


def test_only_functions_with_a_name_are_deferred() -> None:
    tools = [
        {"type": "function", "name": "read_file", "parameters": {}},
        {"type": "function", "name": "forced", "parameters": {}},
        {"type": "function", "name": "loaded", "parameters": {}},
        {"type": "custom", "name": "patch"},
        {"type": "web_search"},
        {"type": "function"},
    ]
    request: Json = {"model": "gpt-5.5", "input": "hi", "tools": tools}
    request["tool_choice"] = {"type": "function", "name": "forced"}
    defer = DIALECTS["openai_responses"].defer_tools
    assert defer is not None
    deferred = defer(request, ["loaded"])["tools"]
    assert [tool.get("name") for tool in deferred if tool.get("defer_loading")] == ["read_file"]
    assert defer({**request, "model": "gpt-5.3"}, []) is not None
    assert "defer_loading" not in str(defer({**request, "model": "gpt-5.3"}, []))


def call_item(number: int) -> Json:
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": "read_file",
        "arguments": f'{{"path": "{number}.py"}}',
    }


def test_an_item_that_was_sent_without_its_id_is_never_sent_with_it_again() -> None:
    """The ledger says so; a later request may no longer have the reasoning that was lost."""
    items: list[Json] = [{"role": "user", "content": "Go."}]
    for number in (1, 2):
        items.append(call_item(number))
        items.append({"type": "function_call_output", "call_id": f"call_{number}", "output": "x"})
    request = {"model": "gpt-5.5", "input": [*items, {"role": "user", "content": "And now?"}]}
    dialect = DIALECTS["openai_responses"]
    parsed = dialect.wire.parse(request)
    plain = build(parsed.log, head=parsed.head, options=choose_options(dialect, parsed.head))
    assert [item["id"] for item in dialect.wire.render(plain)["input"] if "id" in item] == ["fc_1", "fc_2"]
    (first, _) = [entry for entry in plain.entries if entry.segment.kind == "tool_call"]
    lost = Ref(f"{first.ref}{ON_THE_WIRE}")
    sent = send("openai_responses", request, ledger=Ledger(repairs={lost: WITHOUT_ID}))
    assert [item["id"] for item in sent["input"] if "id" in item] == ["fc_2"]


# What is said of usage


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 uses"), (1, "1 use"), (2, "2 uses"), (2_000, "2,000 uses")]
)
def test_one_thing_is_said_in_the_singular(count: int, said: str) -> None:
    assert count_noun(count, "use") == said
