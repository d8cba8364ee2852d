from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.dialects.ollama import DIALECT
from lamina.dialects.port import PlainHead, Tool
from tests.dialects.ollama_requests import (
    PIXEL,
    TOOL,
    Json,
    answered,
    answers,
    asks,
    called,
    conversation,
    request,
    user,
)

FULL = request(
    {"role": "system", "content": "Be brief."},
    user("See.", images=[PIXEL]),
    asks(called(), thinking="hm"),
    answers(),
    answered(),
    tools=[TOOL],
)


def test_blocks_stand_as_the_server_reads_them() -> None:
    blocks = DIALECT.cache.stream(FULL).blocks
    assert [(block.sort, block.role, block.place, block.opens, block.name) for block in blocks] == [
        ("tool", "tool", "tools[0]", True, "read_file"),
        ("system", "system", "messages[0].content", True, ""),
        ("text", "user", "messages[1].content", True, ""),
        ("image", "user", "messages[1].images[0]", False, ""),
        ("thinking", "assistant", "messages[2].thinking", True, ""),
        ("call", "assistant", "messages[2].tool_calls[0]", False, "read_file"),
        ("result", "tool", "messages[3].content", True, "read_file"),
        ("text", "assistant", "messages[4].content", True, ""),
    ]
    assert not any(block.markable or block.marker for block in blocks)


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.update(options={"temperature": 1, "num_predict": 5}),
        lambda r: r.update(stream=True, keep_alive="1h", truncate=False),
        lambda r: r["messages"][2]["tool_calls"][0].update(id="c1"),
        lambda r: r["messages"][3].update(tool_call_id="c1"),
        lambda r: r["messages"][2].pop("content"),
        lambda r: r["messages"][1].update(images=[f"data:image/png;base64,{PIXEL}"]),
        lambda r: r["tools"][0].pop("type"),
        lambda r: r["messages"].__setitem__(1, dict(reversed(r["messages"][1].items()))),
    ],
)
def test_harmless_changes_leave_the_stream_as_it_is(change: Callable[[Json], Any]) -> None:
    changed = copy.deepcopy(FULL)
    change(changed)
    before, after = DIALECT.cache.stream(FULL), DIALECT.cache.stream(changed)
    assert before.chain() == after.chain()
    assert before.settings == after.settings


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda r: r["tools"][0]["function"].update(description="new"), 0),
        (lambda r: r["messages"][0].update(content="Be long."), 1),
        (lambda r: r["messages"][1].update(role="assistant"), 2),
        (lambda r: r["messages"][1].update(images=["AAAA"]), 3),
        (lambda r: r["messages"][2].update(thinking="oh"), 4),
        (lambda r: r["messages"][2]["tool_calls"][0]["function"].update(arguments={}), 5),
        (lambda r: r["messages"][3].update(tool_name="other"), 6),
    ],
)
def test_a_change_is_seen_where_it_is(change: Callable[[Json], Any], place: int) -> None:
    changed = copy.deepcopy(FULL)
    change(changed)
    before, after = DIALECT.cache.stream(FULL).chain(), DIALECT.cache.stream(changed).chain()
    assert before[:place] == after[:place]
    assert before[place] != after[place]


def test_settings_are_what_a_template_may_read() -> None:
    stream = DIALECT.cache.stream({**FULL, "think": True, "format": "json", "unheard": 1})
    assert stream.settings == {"thinking": b"true", "format": b'"json"', "other": b'{"unheard":1}'}
    assert DIALECT.cache.stream({**FULL, "think": "low"}).settings == {"effort": b'"low"'}
    assert stream.model == "qwen3"


@given(st.integers(0, 10_000))
def test_a_longer_conversation_continues_the_stream(seed: int) -> None:
    original_request = conversation(seed)
    shorter = original_request | {"messages": original_request["messages"][:-1]}
    chain = DIALECT.cache.stream(shorter).chain()
    assert DIALECT.cache.stream(original_request).chain()[: len(chain)] == chain


def test_there_is_nothing_to_mark() -> None:
    assert DIALECT.cache.markers is None


PLAIN = PlainHead(
    model="qwen3",
    tools=(Tool(name="read_file", description="reads", schema={"type": "object"}),),
    output=50,
    temperature=0.5,
    top_p=0.9,
    stop=("END",),
    answer={"type": "object"},
    effort="high",
    stream=True,
)


def test_a_head_comes_back_from_its_plain_meaning() -> None:
    own = DIALECT.head.write(PLAIN)
    assert own.left == ()
    assert own.head.parameters == {
        "model": "qwen3",
        "options": {"num_predict": 50, "temperature": 0.5, "top_p": 0.9, "stop": ["END"]},
        "format": {"type": "object"},
        "think": "high",
        "stream": True,
        "truncate": False,
    }
    assert DIALECT.head.read(own.head) == PLAIN


def test_what_only_one_side_can_say_is_named() -> None:
    own = DIALECT.head.write(PlainHead(tools=PLAIN.tools, choice="tool:read_file", effort="ultra"))
    assert set(own.left) == {"choice", "effort"}
    head = DIALECT.wire.parse(
        request(user(), options={"num_ctx": 5, "mirostat": 2}, format="json", keep_alive=5, extra=1)
    ).head
    assert set(DIALECT.head.read(head).left) == {"extra", "options.mirostat", "format"}


def test_tools_that_may_not_be_called_are_not_defined() -> None:
    own = DIALECT.head.write(PlainHead(tools=PLAIN.tools, choice="none"))
    assert (own.head.tools, own.left) == ((), ())


@pytest.mark.parametrize(("think", "effort"), [(True, "medium"), (False, "none"), ("low", "low"), (None, "")])
def test_thinking_is_an_effort(think: Any, effort: str) -> None:
    assert DIALECT.head.read(DIALECT.wire.parse(request(user(), think=think)).head).effort == effort


def test_a_request_that_says_nothing_of_streaming_is_not_streamed() -> None:
    assert DIALECT.head.write(PlainHead()).head.parameters == {"stream": False, "truncate": False}
