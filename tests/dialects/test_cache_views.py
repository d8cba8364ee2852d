"""What a prefix cache sees of a request of each API: which blocks, in which order, under which settings."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from lamina.caches import Stream
from lamina.caches.stream import OWN_JSON, SETTINGS
from lamina.dialects import DIALECTS
from tests.dialects.conversations import TALKS

Json = dict[str, Any]
Facts = list[tuple[str, str, str, bool, str]]

MARK = {"cache_control": {"type": "ephemeral"}}
BREAK = {"prompt_cache_breakpoint": {"mode": "explicit"}}
TOOL: Json = {"name": "read", "description": "Reads.", "input_schema": {"type": "object"}}
CALL = {"type": "tool_use", "id": "t1", "name": "read", "input": {"b": 1, "a": 2}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "A line."}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
FUNCTION: Json = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
CHAT_CALL: Json = {"id": "t1", "type": "function", "function": {"name": "read", "arguments": '{"a": 1}'}}
PIXEL = "aGk="


def asks(*contents: Any, role: str = "user") -> list[Json]:
    return [{"role": role, "content": content} for content in contents]


REQUESTS: dict[str, Json] = {
    "anthropic": {
        "model": "claude-opus-5",
        "max_tokens": 100,
        "system": "Be brief.",
        "tools": [TOOL],
        "messages": [
            {"role": "user", "content": "Read it."},
            {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "Yes."}, CALL]},
            {"role": "user", "content": [RESULT, {"type": "text", "text": "Go on."}]},
        ],
    },
    "openai_chat": {
        "model": "gpt-6-sol",
        "tools": [FUNCTION],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Read"}, {"type": "text", "text": "it."}]},
            {"role": "assistant", "reasoning_content": "Hm.", "content": "Yes.", "tool_calls": [CHAT_CALL]},
            {"role": "tool", "tool_call_id": "t1", "content": "A line."},
        ],
    },
    "openai_responses": {
        "model": "gpt-5",
        "instructions": "Be brief.",
        "tools": [{"type": "function", "name": "read", "parameters": {"b": 1, "a": 2}}],
        "input": [
            {"role": "developer", "content": "Be kind."},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Read it."},
                    {"type": "input_file", "filename": "a.pdf", "file_data": "JVBE"},
                ],
            },
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "phase": "commentary",
                "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
            },
            {"type": "function_call", "id": "fc_1", "call_id": "t1", "name": "read", "arguments": "{}"},
            {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
            {"type": "function_call_output", "call_id": "t1", "output": "A line."},
        ],
    },
    "gemini": {
        "model": "gemini-3-pro",
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [{"functionDeclarations": [{"name": "read"}, {"name": "now"}]}, {"codeExecution": {}}],
        "contents": [
            {
                "role": "user",
                "parts": [{"text": "Read it."}, {"inlineData": {"mimeType": "image/png", "data": PIXEL}}],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "Hm.", "thought": True},
                    {"functionCall": {"id": "t1", "name": "read", "args": {}}, "thoughtSignature": "c2ln"},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "t1", "name": "read", "response": {"output": "A line."}}}
                ],
            },
        ],
    },
    "ollama": {
        "model": "qwen3",
        "tools": [FUNCTION],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Read it.", "images": [PIXEL]},
            {
                "role": "assistant",
                "content": "",
                "thinking": "Hm.",
                "tool_calls": [{"function": {"name": "read", "arguments": {"path": "a.py"}}}],
            },
            {"role": "tool", "content": "A line.", "tool_name": "read"},
        ],
    },
    "bedrock_converse": {
        "modelId": "us.amazon.nova-pro-v1:0",
        "toolConfig": {"tools": [{"toolSpec": {"name": "read", "inputSchema": {"json": {}}}}]},
        "messages": [{"role": "user", "content": [{"text": "Read it."}]}],
    },
    "text": {
        "prompt": "System: s\n\nPrevious context:\nUser: a\nAssistant calls f: {}\nTool f answers: b\n\n"
        "User: c\nAssistant:",
    },
}
"""One request of each API, with a block of each sort."""

BLOCKS: dict[str, Facts] = {
    "anthropic": [
        ("tool", "tool", "tools[0]", True, "read"),
        ("system", "system", "system[0]", True, ""),
        ("text", "user", "messages[0].content[0]", True, ""),
        ("thinking", "assistant", "messages[1].content[0]", True, ""),
        ("text", "assistant", "messages[1].content[1]", False, ""),
        ("call", "assistant", "messages[1].content[2]", False, "read"),
        ("result", "user", "messages[2].content[0]", True, "read"),
        ("text", "user", "messages[2].content[1]", False, ""),
    ],
    "openai_chat": [
        ("tool", "tool", "tools[0]", True, "read"),
        ("system", "system", "messages[0].content[0]", True, ""),
        ("text", "user", "messages[1].content[0]", True, ""),
        ("text", "user", "messages[1].content[1]", False, ""),
        ("thinking", "assistant", "messages[2].reasoning_content", True, ""),
        ("text", "assistant", "messages[2].content[0]", False, ""),
        ("call", "assistant", "messages[2].tool_calls[0]", False, "read"),
        ("result", "tool", "messages[3].content[0]", True, "read"),
    ],
    "openai_responses": [
        ("tool", "tools", "tools[0]", True, "read"),
        ("system", "system", "instructions", True, ""),
        ("system", "developer", "input[0].content[0]", True, ""),
        ("text", "user", "input[1].content[0]", True, ""),
        ("document", "user", "input[1].content[1]", False, "a.pdf"),
        ("thinking", "assistant", "input[2]", True, ""),
        ("text", "assistant", "input[3].content[0]", True, ""),
        ("call", "assistant", "input[4]", True, "read"),
        ("raw", "assistant", "input[5]", True, "web_search"),
        ("result", "tool", "input[6].output[0]", True, "read"),
    ],
    "gemini": [
        ("tool", "tools", "tools[0].functionDeclarations[0]", True, "read"),
        ("tool", "tools", "tools[0].functionDeclarations[1]", True, "now"),
        ("tool", "tools", "tools[1].codeExecution", True, "codeExecution"),
        ("system", "system", "systemInstruction.parts[0]", True, ""),
        ("text", "user", "contents[0].parts[0]", True, ""),
        ("image", "user", "contents[0].parts[1]", False, ""),
        ("thinking", "model", "contents[1].parts[0]", True, ""),
        ("call", "model", "contents[1].parts[1]", False, "read"),
        ("result", "user", "contents[2].parts[0]", True, "read"),
    ],
    "ollama": [
        ("tool", "tool", "tools[0]", True, "read"),
        ("system", "system", "messages[0].content", True, ""),
        ("text", "user", "messages[1].content", True, ""),
        ("image", "user", "messages[1].images[0]", False, ""),
        ("thinking", "assistant", "messages[2].thinking", True, ""),
        ("call", "assistant", "messages[2].tool_calls[0]", False, "read"),
        ("result", "tool", "messages[3].content", True, "read"),
    ],
    "bedrock_converse": [
        ("tool", "tool", "toolConfig.tools[0]", True, "read"),
        ("text", "user", "messages[0].content[0]", True, ""),
    ],
    "text": [],
}
MARKABLE: dict[str, str] = {
    "anthropic": "tools[0] system[0] messages[0].content[0] messages[1].content[1] messages[1].content[2] "
    "messages[2].content[0] messages[2].content[1]",
    "openai_chat": "messages[0].content[0] messages[1].content[0] messages[1].content[1] "
    "messages[2].content[0] messages[3].content[0]",
    "openai_responses": "input[0].content[0] input[1].content[0] input[1].content[1] input[6].output[0]",
    "bedrock_converse": "messages[0].content[0]",  # Nova takes no cache points among tools
}
"""Where a marker may stand: not on thinking, and for some APIs not on tools or on what the assistant said."""


def stream(name: str, request: Json | None = None, **fields: Any) -> Stream:
    return DIALECTS[name].cache.stream({**(REQUESTS[name] if request is None else request), **fields})


def claude(**fields: Any) -> Stream:
    return stream("anthropic", **fields)


def chat(**fields: Any) -> Stream:
    return stream("openai_chat", **fields)


@pytest.mark.parametrize("name", DIALECTS)
def test_blocks_stand_in_the_order_in_which_the_api_reads_them(name: str) -> None:
    blocks = stream(name).blocks
    facts = [(block.sort, block.role, block.place, block.opens, block.name) for block in blocks]
    assert name == "text" or facts == BLOCKS[name]
    assert [block.place for block in blocks if block.markable] == MARKABLE.get(name, "").split()
    assert (DIALECTS[name].cache.markers is None) is (name not in MARKABLE)


def _turn_keys(value: Any) -> Any:
    """Every object of the API with its keys in the other order; JSON of the application stays as it is."""
    if isinstance(value, dict):
        own = OWN_JSON - {"input"} if isinstance(value.get("input"), list) else OWN_JSON
        return {key: value[key] if key in own else _turn_keys(value[key]) for key in reversed(value)}
    return [_turn_keys(inner) for inner in value] if isinstance(value, list) else value


UNSEEN: dict[str, list[Json]] = {
    "anthropic": [
        {"max_tokens": 9, "temperature": 1, "top_p": 0.5, "top_k": 3, "metadata": {"user_id": "u"}},
        {"stop_sequences": ["x"], "stream": True, "diagnostics": {"previous_message_id": None}},
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": False}, "speed": "standard"},
        {"output_config": {"effort": "high"}, "service_tier": "auto", "thinking": {"type": "disabled"}},
        {"betas": ["x"]},
        {"system": [{"type": "text", "text": "Be brief."}]},
        {"tools": [TOOL | {"type": "custom", "cache_control": None, "defer_loading": False}]},
    ],
    "openai_chat": [
        {"max_tokens": 9, "max_completion_tokens": 9, "temperature": 1, "user": "u", "seed": 1, "stop": "x"},
        {"metadata": {"a": "b"}, "stream": True, "n": 1, "logprobs": True, "store": True},
        {"safety_identifier": "u", "tool_choice": "auto", "parallel_tool_calls": True},
        {"verbosity": "medium", "response_format": {"type": "text"}, "service_tier": "auto"},
        {"reasoning_effort": None, "prompt_cache_options": {"mode": "implicit", "ttl": "30m"}},
        {"tools": [{**FUNCTION, "function": {**FUNCTION["function"], "strict": False}}]},
    ],
    "openai_responses": [
        {"temperature": 1, "max_output_tokens": 5, "metadata": None, "user": "u", "stream": True},
        {"previous_response_id": None, "tool_choice": "auto", "parallel_tool_calls": True},
        {"service_tier": "auto", "text": {"format": {"type": "text"}, "verbosity": "medium"}},
        {"reasoning": {"context": "auto"}, "image": {"context_compression": "auto"}},
    ],
    "gemini": [
        {"generationConfig": {"temperature": 1, "maxOutputTokens": 9, "seed": 4, "topP": 0.5}},
        {"generationConfig": {"stopSequences": ["x"], "responseMimeType": "text/plain"}},
        {"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}},
    ],
    "ollama": [
        {"options": {"temperature": 1, "num_predict": 5}},
        {"stream": True, "keep_alive": "1h", "truncate": False},
        {"tools": [{"function": FUNCTION["function"]}]},
    ],
    "text": [{"model": "m", "max_tokens": 50, "temperature": 0.5, "stop": ["\nUser:"], "stream": False}],
}
"""Fields that are not in the prompt, defaults that are said, and other words for the same."""


@pytest.mark.parametrize(("name", "fields"), [(name, each) for name, rows in UNSEEN.items() for each in rows])
def test_fields_that_change_no_prompt_are_not_in_a_stream(name: str, fields: Json) -> None:
    changed, plain = stream(name, **fields), stream(name)
    assert changed.chain() == plain.chain()
    assert (changed.settings, changed.automatic) == (plain.settings, plain.automatic)


@pytest.mark.parametrize("name", DIALECTS)
def test_the_order_of_the_fields_of_the_api_changes_nothing(name: str) -> None:
    turned = DIALECTS[name].cache.stream(_turn_keys(REQUESTS[name]))
    assert (turned.chain(), turned.settings) == (stream(name).chain(), stream(name).settings)


def _without_ids(value: Any) -> Any:
    """Without the ids that only tell calls and items apart, or with another one for all of them."""
    if isinstance(value, dict):
        kept = {key: _without_ids(inner) for key, inner in value.items() if key not in ("id", "status")}
        return kept | ({"call_id": "other"} if "call_id" in kept else {})
    return [_without_ids(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["openai_responses", "gemini", "ollama"])
def test_ids_are_no_part_of_the_prompt(name: str) -> None:
    """Templates and caches of these APIs do not see them. The others count them."""
    assert DIALECTS[name].cache.stream(_without_ids(REQUESTS[name])).chain() == stream(name).chain()


def _change_at(request: Json, place: str) -> Json:
    """A request in which one word stands in the value at a place."""
    changed = copy.deepcopy(request)
    steps = place.replace("]", "").replace("[", ".").split(".")
    inner: Any = changed
    for step, after in zip(steps, [*steps[1:], ""], strict=True):
        key: Any = int(step) if step.isdecimal() else step
        if isinstance(inner[key], str):
            inner[key] = "AAAA"  # also a picture
            return changed
        if not after:
            inner[key] = {**inner[key], **_other_words(inner[key])}
            return changed
        inner = inner[key]
    return changed


def _other_words(block: Json) -> Json:
    """Other words for what a block says."""
    for name, value in block.items():
        if isinstance(value, str) and name not in ("type", "id", "role", "call_id", "status"):
            return {name: f"{value} changed"}
        if isinstance(value, dict) and (inner := _other_words(value)):
            return {name: {**value, **inner}}
    return {"name": "changed"}


SPOKEN = [
    pytest.param(name, at, place, id=f"{name}-{place}")
    for name, facts in BLOCKS.items()
    for at, (_, _, place, _, _) in enumerate(facts)
    if "codeExecution" not in place and "input[5]" not in place
]


@pytest.mark.parametrize(("name", "at", "place"), SPOKEN)
def test_a_change_is_seen_where_it_is(name: str, at: int, place: str) -> None:
    before = stream(name).chain()
    after = DIALECTS[name].cache.stream(_change_at(REQUESTS[name], place)).chain()
    assert after[:at] == before[:at]
    assert after[at] != before[at]


@pytest.mark.parametrize("name", TALKS)
@given(st.integers(0, 10_000))
def test_a_longer_conversation_continues_the_stream(name: str, seed: int) -> None:
    field, whole = TALKS[name].field, TALKS[name].ask(seed)
    part = whole | {field: whole[field][: 1 + seed % len(whole[field])]}
    chain = DIALECTS[name].cache.stream(part).chain()
    assert DIALECTS[name].cache.stream(whole).chain()[: len(chain)] == chain


SAME: list[tuple[str, Json, Json]] = [
    (
        "anthropic",
        {"messages": asks([RESULT])},
        {"messages": asks([{**RESULT, "is_error": False, "content": [{"type": "text", "text": "A line."}]}])},
    ),
    (
        "anthropic",
        {"messages": asks("Hi")},
        {"messages": asks([{"text": "Hi", "type": "text", "citations": None}])},
    ),
    (
        "anthropic",
        {"thinking": {"type": "adaptive"}},
        {"thinking": {"type": "adaptive", "display": "omitted", "block_binding": {}}},
    ),
    ("openai_chat", {"messages": asks("Hi")}, {"messages": asks([{"type": "text", "text": "Hi"}])}),
    (
        "openai_chat",
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]}]},
        {
            "messages": [
                {"role": "assistant", "content": "", "id": "", "tool_calls": [CHAT_CALL | {"index": 0}]}
            ]
        },
    ),
    (
        "openai_chat",
        {"messages": asks([{"type": "image_url", "image_url": {"url": "x"}}])},
        {"messages": asks([{"type": "image_url", "image_url": {"url": "x", "detail": "auto"}}])},
    ),
    ("openai_responses", {"input": asks("Hi")}, {"input": asks([{"type": "input_text", "text": "Hi"}])}),
    (
        "openai_responses",
        {"input": [{"type": "function_call_output", "call_id": "t", "output": "x"}]},
        {
            "input": [
                {
                    "type": "function_call_output",
                    "call_id": "t",
                    "output": [{"type": "input_text", "text": "x"}],
                }
            ]
        },
    ),
    *(
        ("gemini", {"contents": "Hi"}, {"contents": shape})
        for shape in (
            ["Hi"],
            {"text": "Hi"},
            [["Hi"]],
            types.Part(text="Hi"),
            [{"role": "user", "parts": [{"text": "Hi"}]}],
            {"role": "user", "parts": [{"text": "Hi"}]},
        )
    ),
    (
        "ollama",
        {"messages": [{"role": "user", "content": "Hi", "images": [PIXEL]}]},
        {"messages": [{"role": "user", "content": "Hi", "images": [f"data:image/png;base64,{PIXEL}"]}]},
    ),
]


@pytest.mark.parametrize(("name", "one", "other"), SAME)
def test_what_says_the_same_is_the_same_stream(name: str, one: Json, other: Json) -> None:
    first, second = stream(name, **one), stream(name, **other)
    assert [(block.role, block.data) for block in first.blocks] == [
        (block.role, block.data) for block in second.blocks
    ]
    assert first.settings == second.settings


def test_messages_in_a_row_of_one_role_are_one_message_of_the_messages_api() -> None:
    one, two = {"type": "text", "text": "One."}, {"type": "text", "text": "Two."}
    split = claude(messages=asks([one], [two]))
    assert [b.opens for b in split.blocks[2:]] == [True, False]
    assert split.chain() == claude(messages=asks([one, two])).chain()
    assert [b.opens for b in chat(messages=asks("One.", "Two.")).blocks[1:]] == [True, True]


def test_arguments_of_the_sdk_are_the_same_stream_as_a_body_of_gemini() -> None:
    body = REQUESTS["gemini"]
    contents = [types.Content.model_validate(each).model_dump(exclude_none=True) for each in body["contents"]]
    contents[0]["parts"][1]["inline_data"]["data"] = PIXEL
    tools = [{"function_declarations": body["tools"][0]["functionDeclarations"]}, {"codeExecution": {}}]
    config = {"tools": tools, "system_instruction": "Be brief."}
    arguments = {"model": "gemini-3-pro", "contents": contents, "config": config}
    other = DIALECTS["gemini"].cache.stream(arguments)
    assert other.chain() == stream("gemini").chain()
    assert other.blocks[3].place == "config.system_instruction"
    listed = {**arguments, "config": {"system_instruction": ["Be brief.", "Be kind."]}}
    assert DIALECTS["gemini"].cache.stream(listed).blocks[1].place == "config.system_instruction[1]"


SET: list[tuple[str, Json, str]] = [
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
    ("anthropic", {"messages": asks([{"type": "image", "source": {"type": "url", "url": "x"}}])}, "images"),
    (
        "anthropic",
        {"messages": asks([{"type": "document", "source": {}, "citations": {"enabled": True}}])},
        "citations",
    ),
    ("anthropic", {"container": "c1"}, "other"),
    ("openai_chat", {"tool_choice": "required"}, "tool_choice"),
    ("openai_chat", {"parallel_tool_calls": False}, "parallel"),
    ("openai_chat", {"reasoning_effort": "low"}, "effort"),
    ("openai_chat", {"verbosity": "low"}, "verbosity"),
    ("openai_chat", {"response_format": {"type": "json_object"}}, "format"),
    ("openai_chat", {"service_tier": "flex"}, "tier"),
    ("openai_chat", {"web_search_options": {}}, "web_search"),
    ("openai_chat", {"enable_thinking": True}, "thinking"),
    ("openai_chat", {"best_of": 3}, "other"),
    ("openai_responses", {"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
    ("openai_responses", {"parallel_tool_calls": False}, "parallel"),
    ("openai_responses", {"service_tier": "flex"}, "tier"),
    ("openai_responses", {"text": {"format": {"type": "json_object"}}}, "format"),
    ("openai_responses", {"text": {"verbosity": "high"}}, "verbosity"),
    ("openai_responses", {"reasoning": {"context": "all_turns"}}, "thinking"),
    ("openai_responses", {"reasoning": {"effort": "low", "summary": "auto"}}, "effort"),
    ("openai_responses", {"image": {"context_compression": "enabled"}}, "images"),
    ("openai_responses", {"a_field_of_tomorrow": 1}, "other"),
    ("gemini", {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, "tool_choice"),
    ("gemini", {"config": {"thinking_config": {"thinking_level": "LOW"}}}, "effort"),
    ("gemini", {"config": {"thinking_config": {"thinking_budget": 5}}}, "thinking"),
    ("gemini", {"config": {"response_mime_type": "application/json"}}, "format"),
    ("gemini", {"config": types.GenerateContentConfig(response_mime_type="application/json")}, "format"),
    ("gemini", {"config": {"media_resolution": "MEDIA_RESOLUTION_LOW"}}, "images"),
    ("gemini", {"config": {"service_tier": "flex"}}, "tier"),
    ("ollama", {"think": True}, "thinking"),
    ("ollama", {"think": "low"}, "effort"),
    ("ollama", {"format": "json"}, "format"),
    ("ollama", {"unheard": 1}, "other"),
    ("bedrock_converse", {"promptVariables": {"a": {"text": "b"}}}, "other"),
]


@pytest.mark.parametrize(("name", "fields", "setting"), SET)
def test_a_parameter_is_noted_under_its_common_name(name: str, fields: Json, setting: str) -> None:
    changed = stream(name, **fields)
    assert list(changed.settings) == [setting]
    assert setting in SETTINGS
    if not {"messages", "tools", "config"} & fields.keys():
        assert changed.chain() == stream(name).chain()


def test_keys_salts_and_kept_contents_are_kept_apart() -> None:
    keys = [
        chat(prompt_cache_key="a"),
        chat(cache_salt="a"),
        chat(prompt_cache_key="a", cache_salt="b"),
        chat(),
    ]
    assert len({each.key for each in keys}) == 4
    assert stream("openai_responses", prompt_cache_key="k").key == "k"
    assert stream("text", cache_salt="t").key == "t"
    assert stream("gemini", cachedContent="cachedContents/1").cached == "cachedContents/1"
    arguments = {"contents": "Hi", "config": {"cached_content": "cachedContents/1"}}
    assert DIALECTS["gemini"].cache.stream(arguments).cached == "cachedContents/1"


# Markers


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
        messages=asks([inner, {"type": "text", "text": "Go on.", "cache_control": None}]),
        cache_control={"type": "ephemeral"},
    )
    assert [b.marker for b in marked_stream.blocks] == ["1h", "", "5m", ""]
    assert (marked_stream.automatic, claude().automatic) == ("5m", "")
    assert marked_stream.blocks[2].data == claude(messages=asks([RESULT])).blocks[2].data


@pytest.mark.parametrize(
    ("name", "field", "kind", "automatic"),
    [
        ("openai_chat", "messages", "text", "explicit 12h"),
        ("openai_responses", "input", "input_text", "explicit"),
    ],
)
def test_breakpoints_take_the_lifetime_of_the_request(
    name: str, field: str, kind: str, automatic: str
) -> None:
    def marked(mark: Json, **fields: Any) -> Stream:
        part = {"type": kind, "text": "Hi", "prompt_cache_breakpoint": mark}
        return stream(name, {field: asks([part]), **fields})

    explicit = {"mode": "explicit"}
    assert marked(explicit).blocks[0].marker == "30m"
    timed = marked(explicit, prompt_cache_options={"mode": "explicit", "ttl": "12h"})
    assert (timed.blocks[0].marker, timed.automatic) == ("12h", automatic)
    assert marked(explicit | {"ttl": "12h"}).blocks[0].marker == "12h"


def test_a_marker_may_not_stand_on_blank_or_scoped_text() -> None:
    blank = claude(messages=asks([{"type": "text", "text": " \n"}]), tools=[TOOL | {"defer_loading": True}])
    assert [(b.sort, b.markable) for b in blank.blocks] == [("system", True), ("text", False)]
    scoped = [{"role": "system", "content": "For now.", "clear_at": "turn_end"}]
    assert not claude(messages=scoped).blocks[-1].markable


def test_a_marker_may_not_stand_where_another_model_took_over() -> None:
    fallback = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}
    blocks = claude(messages=asks([fallback, {"type": "text", "text": "Yes."}], role="assistant")).blocks
    assert [block.markable for block in blocks[-2:]] == [False, True]
    marked = fallback | {"cache_control": {"type": "ephemeral"}}
    talk = [*asks("Hi"), *asks([marked], role="assistant"), *asks("Go on.")]
    request = {"model": "claude-opus-5", "max_tokens": 9, "messages": talk}
    rules = [violation.rule for violation in DIALECTS["anthropic"].wire.check(request)]
    assert rules == ["markers_are_taken"]


def test_the_first_block_begins_the_system_text_behind_a_cache_point_that_marks_nothing() -> None:
    system = [{"cachePoint": {"type": "default"}}, {"text": "Be brief."}, {"text": "Be kind."}]
    blocks = stream("bedrock_converse", system=system).blocks
    assert [block.opens for block in blocks if block.sort == "system"] == [True, False]


def test_a_result_without_content_still_answers_its_call() -> None:
    empty = chat(messages=[{"role": "tool", "tool_call_id": "t1", "content": []}]).blocks[1]
    assert (empty.sort, empty.data) == ("result", b'{"tool_call_id":"t1"}')


def test_reasoning_in_the_clear_is_part_of_the_stream() -> None:
    chains = []
    for thought in "ab":
        content = [{"type": "reasoning_text", "text": thought}]
        items = [
            *asks("Hi"),
            {"type": "reasoning", "summary": [], "content": content},
            *asks("x", role="assistant"),
        ]
        chains.append(stream("openai_responses", {"input": items}).chain())
    assert chains[0] != chains[1]


# Flat prompts


def prompt_blocks(prompt: str) -> list[tuple[str, str, bytes]]:
    return [(block.sort, block.role, block.data) for block in stream("text", {"prompt": prompt}).blocks]


def test_blocks_of_a_prompt_are_the_turns_with_what_parts_them() -> None:
    assert prompt_blocks(REQUESTS["text"]["prompt"]) == [
        ("system", "system", b'"\\nSystem: s"'),
        ("text", "user", b'"\\n\\nPrevious context:\\nUser: a"'),
        ("call", "assistant", b'"\\nAssistant calls f: {}"'),
        ("result", "tool", b'"\\nTool f answers: b"'),
        ("text", "user", b'"\\n\\nUser: c"'),
    ]
    assert [block.name for block in stream("text").blocks] == ["", "", "f", "f", ""]
    assert prompt_blocks("Once upon") == [("text", "user", b'"Once upon"')]


def test_steps_of_a_turn_continue_a_prompt_and_a_new_question_moves_the_seam() -> None:
    first = "System: s\n\nUser: a\nAssistant:"
    step = "System: s\n\nUser: a\nAssistant calls f: {}\nTool f answers: b\nAssistant:"
    later = REQUESTS["text"]["prompt"]
    assert prompt_blocks(step)[:2] == prompt_blocks(first)
    assert prompt_blocks(later)[0] == prompt_blocks(step)[0]
    assert prompt_blocks(later)[1] != prompt_blocks(step)[1]
    assert prompt_blocks(later)[2:4] == prompt_blocks(step)[2:]
