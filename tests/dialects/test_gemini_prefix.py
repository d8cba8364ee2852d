from __future__ import annotations

import copy
from typing import Any

from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from lamina.caches.stream import OWN_JSON, SETTINGS
from lamina.dialects.gemini import DIALECT
from tests.dialects.gemini_requests import Json, answers, arguments, asks, body, conversation, model, user

TOOLS: list[Json] = [
    {
        "functionDeclarations": [
            {"name": "a", "description": "A"},
            {"name": "b", "parameters": {"type": "OBJECT"}},
        ]
    },
    {"codeExecution": {}},
]
REQUEST = body(
    user("Look.", {"inlineData": {"mimeType": "image/png", "data": "aGk="}}),
    model({"text": "hm", "thought": True}, asks(id_="c1")),
    user(answers(id_="c1")),
    tools=TOOLS,
    systemInstruction={"parts": [{"text": "Be brief."}]},
)


def test_the_blocks_are_tools_system_text_and_parts_in_order() -> None:
    stream = DIALECT.cache.stream(REQUEST)
    assert [block.sort for block in stream.blocks] == [
        "tool", "tool", "tool", "system", "text", "image", "thinking", "call", "result",
    ]  # fmt: skip
    assert [block.name for block in stream.blocks[:3]] == ["a", "b", "codeExecution"]
    assert [block.opens for block in stream.blocks[4:]] == [True, False, True, False, True]
    assert [block.role for block in stream.blocks] == [
        *["tools"] * 3, "system", "user", "user", "model", "model", "user",
    ]  # fmt: skip
    assert stream.blocks[1].place == "tools[0].functionDeclarations[1]"
    assert stream.blocks[7].place == "contents[1].parts[1]"
    assert stream.blocks[7].name == "read_file"
    assert stream.blocks[3].place == "systemInstruction.parts[0]"
    inside = DIALECT.cache.stream(arguments(user(), system_instruction="Be brief."))
    assert inside.blocks[0].place == "config.system_instruction"
    listed = DIALECT.cache.stream(arguments(user(), system_instruction=["Be brief.", "Be kind."]))
    assert listed.blocks[1].place == "config.system_instruction[1]"
    assert not any(block.markable or block.marker for block in stream.blocks)
    assert stream.model == "gemini-3-pro"
    assert stream.dialect == "gemini"


def test_both_shapes_and_spellings_are_the_same_stream() -> None:
    contents = [
        types.Content.model_validate(content).model_dump(exclude_none=True) for content in REQUEST["contents"]
    ]
    contents[0]["parts"][1]["inline_data"]["data"] = "aGk="
    tools = [{"function_declarations": TOOLS[0]["functionDeclarations"]}, {"codeExecution": {}}]
    other = arguments(*contents, tools=tools, system_instruction="Be brief.")
    assert DIALECT.cache.stream(other).chain() == DIALECT.cache.stream(REQUEST).chain()


def test_text_is_the_same_with_or_without_its_part() -> None:
    shapes: list[Any] = [
        "Hi",
        ["Hi"],
        {"text": "Hi"},
        user("Hi"),
        [user("Hi")],
        types.Part(text="Hi"),
        [["Hi"]],
    ]
    chains = [DIALECT.cache.stream({"contents": shape}).chain() for shape in shapes]
    assert all(chain == chains[0] for chain in chains)


def _reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {n: value[n] if n in OWN_JSON else _reordered(value[n]) for n in reversed(value)}
    return [_reordered(inner) for inner in value] if isinstance(value, list) else value


@given(st.integers(0, 10_000))
def test_what_does_not_enter_the_prompt_changes_nothing(seed: int) -> None:
    original_request = conversation(seed)
    was = DIALECT.cache.stream(original_request)
    changed = _reordered(copy.deepcopy(original_request))
    fields = changed["config"] if "config" in changed else changed["generationConfig"]
    fields |= {"temperature": 1, "maxOutputTokens": 9, "seed": 4, "topP": 0.5, "stopSequences": ["x"]}
    for content in changed["contents"]:
        for part in content["parts"]:
            for inner in (part.get("functionCall"), part.get("functionResponse")):
                if inner:
                    inner.pop("id", None)
    now = DIALECT.cache.stream(changed)
    assert now.chain() == was.chain()
    assert now.settings == was.settings


def test_every_word_that_the_model_reads_counts() -> None:
    def altered(*path: Any) -> Json:
        request = copy.deepcopy(REQUEST)
        inner: Any = request
        for step in path[:-2]:
            inner = inner[step]
        inner[path[-2]] = path[-1]
        return request

    changes = [
        altered("tools", 0, "functionDeclarations", 0, "description", "B"),
        altered("systemInstruction", "parts", 0, "text", "Be long."),
        altered("contents", 0, "parts", 0, "text", "Look!"),
        altered("contents", 0, "role", "model"),
        altered("contents", 1, "parts", 0, "thought", None),
        altered("contents", 1, "parts", 1, "thoughtSignature", "b3RoZXI="),
        altered("contents", 1, "parts", 1, "functionCall", "args", {"path": "b.py"}),
        altered("contents", 2, "parts", 0, "functionResponse", "response", {"output": ""}),
        altered("contents", 0, "parts", 1, "inlineData", "data", "aGg="),
    ]
    chains = [DIALECT.cache.stream(change).chain()[-1] for change in (REQUEST, *changes)]
    assert len(set(chains)) == len(chains)


def test_settings_have_the_names_that_all_dialects_share() -> None:
    config = {
        "tool_config": {"function_calling_config": {"mode": "ANY"}},
        "thinking_config": {"thinking_level": "LOW", "thinking_budget": 5},
        "response_mime_type": "application/json",
        "media_resolution": "MEDIA_RESOLUTION_LOW",
        "service_tier": "flex",
    }
    stream = DIALECT.cache.stream(arguments(user(), **config))
    assert set(stream.settings) == {"tool_choice", "effort", "thinking", "format", "images", "tier"}
    assert set(stream.settings) <= set(SETTINGS)
    defaults = {
        "tool_config": {"function_calling_config": {"mode": "AUTO"}},
        "response_mime_type": "text/plain",
    }
    assert DIALECT.cache.stream(arguments(user(), **defaults)).settings == {}
    objects = types.GenerateContentConfig.model_validate(config)
    assert (
        DIALECT.cache.stream({"model": "m", "contents": "x", "config": objects}).settings == stream.settings
    )


def test_a_cached_content_is_named() -> None:
    for original_request in (
        body(user(), cachedContent="cachedContents/1"),
        arguments(user(), cached_content="cachedContents/1"),
    ):
        assert DIALECT.cache.stream(original_request).cached == "cachedContents/1"


def test_there_is_nothing_to_mark() -> None:
    assert DIALECT.cache.markers is None
