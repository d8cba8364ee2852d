"""What a prefix cache sees of requests of the Messages and Chat Completions APIs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.caches.stream import SETTINGS, Stream
from lamina.dialects import DIALECTS
from lamina.errors import BadInput

MARK = {"cache_control": {"type": "ephemeral"}}
BREAK = {"prompt_cache_breakpoint": {"mode": "explicit"}}
TOOL: dict[str, Any] = {"name": "read", "description": "Reads.", "input_schema": {"type": "object"}}
CALL = {"type": "tool_use", "id": "t1", "name": "read", "input": {"b": 1, "a": 2}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "A line."}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
CLAUDE: dict[str, Any] = {
    "model": "claude-opus-5",
    "max_tokens": 100,
    "system": "Be brief.",
    "tools": [TOOL],
    "messages": [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "Yes."}, CALL]},
        {"role": "user", "content": [RESULT, {"type": "text", "text": "Go on."}]},
    ],
}
FUNCTION: dict[str, Any] = {
    "type": "function",
    "function": {"name": "read", "parameters": {"type": "object"}},
}
CHAT_CALL: dict[str, Any] = {
    "id": "t1",
    "type": "function",
    "function": {"name": "read", "arguments": '{"a": 1}'},
}
CHAT: dict[str, Any] = {
    "model": "gpt-6-sol",
    "tools": [FUNCTION],
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Read"}, {"type": "text", "text": "it."}]},
        {"role": "assistant", "reasoning_content": "Hm.", "content": "Yes.", "tool_calls": [CHAT_CALL]},
        {"role": "tool", "tool_call_id": "t1", "content": "A line."},
    ],
}


def claude(request: dict[str, Any] = CLAUDE, **fields: Any) -> Stream:
    return DIALECTS["anthropic"].cache.stream({**request, **fields})


def chat(request: dict[str, Any] = CHAT, **fields: Any) -> Stream:
    return DIALECTS["openai_chat"].cache.stream({**request, **fields})


def prompt(content: Any, role: str = "user") -> list[dict[str, Any]]:
    return [{"role": role, "content": content}]


def test_blocks_stand_in_the_order_in_which_the_messages_api_reads_them() -> None:
    block_facts = [(b.sort, b.role, b.place, b.opens, b.name) for b in claude().blocks]
    assert block_facts == [
        ("tool", "tool", "tools[0]", True, "read"),
        ("system", "system", "system[0]", True, ""),
        ("text", "user", "messages[0].content[0]", True, ""),
        ("thinking", "assistant", "messages[1].content[0]", True, ""),
        ("text", "assistant", "messages[1].content[1]", False, ""),
        ("call", "assistant", "messages[1].content[2]", False, "read"),
        ("result", "user", "messages[2].content[0]", True, "read"),
        ("text", "user", "messages[2].content[1]", False, ""),
    ]


def test_blocks_stand_in_the_order_in_which_chat_completions_reads_them() -> None:
    block_facts = [(b.sort, b.role, b.place, b.opens, b.name) for b in chat().blocks]
    assert block_facts == [
        ("tool", "tool", "tools[0]", True, "read"),
        ("system", "system", "messages[0].content[0]", True, ""),
        ("text", "user", "messages[1].content[0]", True, ""),
        ("text", "user", "messages[1].content[1]", False, ""),
        ("thinking", "assistant", "messages[2].reasoning_content", True, ""),
        ("text", "assistant", "messages[2].content[0]", False, ""),
        ("call", "assistant", "messages[2].tool_calls[0]", False, "read"),
        ("result", "tool", "messages[3].content[0]", True, "read"),
    ]


def test_data_is_canonical_json_without_markers() -> None:
    marked = claude(system=[{"text": "Be brief.", "type": "text", **MARK}]).blocks[1]
    assert marked == msgspec.structs.replace(claude().blocks[1], marker="5m")
    assert marked.data == b'{"text":"Be brief.","type":"text"}'
    assert claude().blocks[5].data.startswith(b'{"id":"t1","input":{"b":1,"a":2}')


def test_every_marker_is_noted_with_its_lifetime() -> None:
    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    inner = {**RESULT, "content": [{"type": "text", "text": "A line.", **MARK}]}
    marked_stream = claude(
        tools=[TOOL | hour],
        messages=prompt([inner, {"type": "text", "text": "Go on.", "cache_control": None}]),
        cache_control={"type": "ephemeral"},
    )
    assert [b.marker for b in marked_stream.blocks] == ["1h", "", "5m", ""]
    assert (marked_stream.automatic, claude().automatic) == ("5m", "")
    assert marked_stream.blocks[2].data == claude(messages=prompt([RESULT])).blocks[2].data


def test_markers_of_chat_completions_take_the_lifetime_of_the_request() -> None:
    marked = prompt([{"type": "text", "text": "Hi", **BREAK}])
    assert chat(messages=marked).blocks[1].marker == "30m"
    marked_stream = chat(messages=marked, prompt_cache_options={"mode": "explicit", "ttl": "12h"})
    assert (marked_stream.blocks[1].marker, marked_stream.automatic) == ("12h", "explicit 12h")
    own = [{"type": "text", "text": "Hi", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}]
    assert chat(messages=prompt(own)).blocks[1].marker == "12h"
    default = {"mode": "implicit", "ttl": "30m"}
    assert chat(prompt_cache_options=default).automatic == chat().automatic == ""


def test_markers_go_only_where_the_messages_api_takes_them() -> None:
    assert [b.markable for b in claude().blocks] == [True, True, True, False, True, True, True, True]
    blank = claude(messages=prompt([{"type": "text", "text": " \n"}]), tools=[TOOL | {"defer_loading": True}])
    assert [(b.sort, b.markable) for b in blank.blocks] == [("system", True), ("text", False)]
    scoped = [{"role": "system", "content": "For now.", "clear_at": "turn_end"}]
    assert not claude(messages=scoped).blocks[-1].markable


def test_markers_go_only_where_chat_completions_takes_them() -> None:
    assert [b.markable for b in chat().blocks] == [False, True, True, True, False, True, False, True]


SAME: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("anthropic", {}, {"system": [{"type": "text", "text": "Be brief."}]}),
    ("anthropic", {}, {"tools": [TOOL | {"type": "custom", "cache_control": None, "defer_loading": False}]}),
    (
        "anthropic",
        {"messages": prompt([RESULT])},
        {
            "messages": prompt(
                [{**RESULT, "is_error": False, "content": [{"type": "text", "text": "A line."}]}]
            )
        },
    ),
    (
        "anthropic",
        {"messages": prompt("Hi")},
        {"messages": prompt([{"text": "Hi", "type": "text", "citations": None}])},
    ),
    ("openai_chat", {"messages": prompt("Hi")}, {"messages": prompt([{"type": "text", "text": "Hi"}])}),
    (
        "openai_chat",
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]}]},
        {
            "messages": [
                {"role": "assistant", "content": "", "id": "", "tool_calls": [CHAT_CALL | {"index": 0}]}
            ]
        },
    ),
    ("openai_chat", {}, {"tools": [{**FUNCTION, "function": {**FUNCTION["function"], "strict": False}}]}),
    (
        "openai_chat",
        {"messages": prompt([{"type": "image_url", "image_url": {"url": "x"}}])},
        {"messages": prompt([{"type": "image_url", "image_url": {"url": "x", "detail": "auto"}}])},
    ),
]


@pytest.mark.parametrize(("dialect", "one", "other"), SAME)
def test_what_says_the_same_is_the_same_stream(
    dialect: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    make_stream = claude if dialect == "anthropic" else chat
    assert make_stream(**one) == make_stream(**other)


def test_messages_in_a_row_of_one_role_are_one_message_of_the_messages_api() -> None:
    one, two = {"type": "text", "text": "One."}, {"type": "text", "text": "Two."}
    split = claude(messages=[*prompt([one]), *prompt([two])])
    assert [b.opens for b in split.blocks[2:]] == [True, False]
    assert split.chain() == claude(messages=prompt([one, two])).chain()
    assert [b.opens for b in chat(messages=[*prompt("One."), *prompt("Two.")]).blocks[1:]] == [True, True]


UNSEEN = {
    "anthropic": {
        "max_tokens": 9,
        "temperature": 1,
        "top_p": 0.5,
        "top_k": 3,
        "metadata": {"user_id": "u"},
        "stop_sequences": ["x"],
        "stream": True,
        "diagnostics": {"previous_message_id": None},
    },
    "openai_chat": {
        "max_tokens": 9,
        "max_completion_tokens": 9,
        "temperature": 1,
        "user": "u",
        "seed": 1,
        "metadata": {"a": "b"},
        "stop": "x",
        "stream": True,
        "n": 1,
        "logprobs": True,
        "store": True,
        "safety_identifier": "u",
    },
}
DEFAULTS = {
    "anthropic": {
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": False},
        "speed": "standard",
        "output_config": {"effort": "high"},
        "service_tier": "auto",
        "thinking": {"type": "disabled"},
    },
    "openai_chat": {
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "verbosity": "medium",
        "response_format": {"type": "text"},
        "service_tier": "auto",
        "reasoning_effort": None,
    },
}


@pytest.mark.parametrize("fields", [UNSEEN, DEFAULTS], ids=["not in the prompt", "defaults"])
def test_fields_that_change_no_prompt_are_not_in_a_stream(fields: dict[str, dict[str, Any]]) -> None:
    assert claude(**fields["anthropic"]) == claude()
    assert chat(**fields["openai_chat"]) == chat()


SET: list[tuple[str, dict[str, Any], str]] = [
    ("anthropic", {"tool_choice": {"type": "any"}}, "tool_choice"),
    ("anthropic", {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, "parallel"),
    ("anthropic", {"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking"),
    ("anthropic", {"output_config": {"effort": "low"}}, "effort"),
    ("anthropic", {"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "format"),
    ("anthropic", {"output_config": {"task_budget": {"type": "tokens", "total": 9}}}, "task_budget"),
    ("anthropic", {"speed": "fast"}, "speed"),
    ("anthropic", {"service_tier": "standard_only"}, "tier"),
    ("anthropic", {"inference_geo": "us"}, "geo"),
    ("anthropic", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search"),
    ("anthropic", {"messages": prompt([{"type": "image", "source": {"type": "url", "url": "x"}}])}, "images"),
    (
        "anthropic",
        {"messages": prompt([{"type": "document", "source": {}, "citations": {"enabled": True}}])},
        "citations",
    ),
    ("openai_chat", {"tool_choice": "required"}, "tool_choice"),
    ("openai_chat", {"parallel_tool_calls": False}, "parallel"),
    ("openai_chat", {"reasoning_effort": "low"}, "effort"),
    ("openai_chat", {"verbosity": "low"}, "verbosity"),
    ("openai_chat", {"response_format": {"type": "json_object"}}, "format"),
    ("openai_chat", {"service_tier": "flex"}, "tier"),
    ("openai_chat", {"web_search_options": {}}, "web_search"),
    ("openai_chat", {"enable_thinking": True}, "thinking"),
]


@pytest.mark.parametrize(("dialect", "fields", "name"), SET)
def test_a_parameter_is_noted_under_its_common_name(dialect: str, fields: dict[str, Any], name: str) -> None:
    stream = (claude if dialect == "anthropic" else chat)(**fields)
    assert list(stream.settings) == [name]
    assert name in SETTINGS


def test_how_thinking_is_shown_is_no_setting() -> None:
    thinking = {
        "type": "adaptive",
        "display": "omitted",
        "block_binding": {"prefix_mismatch_behavior": "drop_block"},
    }
    assert claude(thinking=thinking) == claude(thinking={"type": "adaptive"})


def test_a_key_and_a_salt_are_kept_apart() -> None:
    keys = [
        chat(prompt_cache_key="a").key,
        chat(cache_salt="a").key,
        chat(prompt_cache_key="a", cache_salt="b").key,
    ]
    assert len({*keys, chat().key}) == 4


def test_a_field_that_nobody_knows_is_noted() -> None:
    assert claude(betas=["x"]) == claude()
    assert claude(container="c1").settings == {"other": b'{"container":"c1"}'}
    assert chat(best_of=3).settings == {"other": b'{"best_of":3}'}


def test_a_result_without_content_still_answers_its_call() -> None:
    empty = chat(messages=[{"role": "tool", "tool_call_id": "t1", "content": []}]).blocks[1]
    assert (empty.sort, empty.data) == ("result", b'{"tool_call_id":"t1"}')


@pytest.mark.parametrize(
    ("dialect", "fields", "place"),
    [
        ("anthropic", {"messages": [3]}, "messages[0]"),
        ("anthropic", {"messages": prompt([{"type": "text", "text": "\ud800"}])}, "messages[0].content[0]"),
        ("anthropic", {"messages": prompt([{**RESULT, "content": 3}])}, "messages[0].content[0].content"),
        ("anthropic", {"tools": "x"}, "tools"),
        ("openai_chat", {"messages": [3]}, "messages[0]"),
        ("openai_chat", {"messages": prompt([3])}, "messages[0].content[0]"),
        ("openai_chat", {"messages": prompt("\ud800")}, "messages[0]"),
    ],
)
def test_what_is_no_request_is_refused_with_its_place(
    dialect: str, fields: dict[str, Any], place: str
) -> None:
    with pytest.raises(BadInput) as caught:
        (claude if dialect == "anthropic" else chat)(**fields)
    assert caught.value.place == place


WORDS = st.sampled_from(
    "user assistant tool system text tool_use tool_result thinking image_url file".split()
)
FIELDS = st.sampled_from(
    "role content type text tool_calls tool_call_id id name function arguments input tool_use_id source "
    "cache_control prompt_cache_breakpoint image_url file citations ttl reasoning_content".split()
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.text(max_size=3) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=12,
)
REQUESTS = st.dictionaries(
    st.sampled_from(
        "messages system tools model thinking output_config tool_choice prompt_cache_options".split()
    ),
    st.lists(st.fixed_dictionaries({"role": WORDS | VALUES, "content": VALUES}), max_size=4) | VALUES,
)


@pytest.mark.parametrize("dialect", ["anthropic", "openai_chat"])
@given(request_=REQUESTS)
def test_any_request_has_a_stream_or_is_refused(dialect: str, request_: dict[str, Any]) -> None:
    try:
        stream = DIALECTS[dialect].cache.stream(request_)
    except BadInput:
        return
    assert len(stream.chain()) == len(stream.blocks)
    assert all(b"cache_control" not in msgspec.json.decode(b.data) for b in stream.blocks)
    assert stream == DIALECTS[dialect].cache.stream(request_)
