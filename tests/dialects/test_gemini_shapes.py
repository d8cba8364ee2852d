from __future__ import annotations

import base64
from typing import Any

import pytest
from google.genai import types

from lamina import build
from lamina.core import Image, Text
from lamina.dialects.gemini import DIALECT
from lamina.dialects.memos import ParseMemo
from tests.dialects.gemini_requests import fitted


@pytest.mark.parametrize(
    "contents",
    [
        "Hello",
        {"text": "Hello"},
        ["Hello", "there"],
        ["Hello", {"inline_data": {"mime_type": "image/png", "data": b"\x89PNG"}}],
        [{"role": "user", "parts": [{"text": "Hello"}]}, ["one", "two"]],
        types.Part(text="Hello"),
        [types.UserContent(parts=[types.Part(text="Hello")])],
        [types.Part.from_bytes(data=b"\x89PNG", mime_type="image/png"), "What is it?"],
        [types.File(uri="https://example.org/files/1", mime_type="application/pdf"), "Read it."],
    ],
)
def test_contents_in_every_shape_of_the_sdk_come_back_as_they_are(contents: Any) -> None:
    original_request = {"model": "gemini-3-pro", "contents": contents, "config": {"temperature": 0}}
    assert DIALECT.wire.check(original_request) == []
    rendered_request = DIALECT.wire.render(fitted(original_request))
    assert rendered_request == original_request
    if isinstance(contents, list):
        assert all(a is b for a, b in zip(rendered_request["contents"], contents, strict=True))
    else:
        assert rendered_request["contents"] is contents


def test_one_content_comes_back_in_a_list() -> None:
    content = {"role": "user", "parts": [{"text": "Hello"}]}
    rendered_request = DIALECT.wire.render(fitted({"model": "gemini-3-pro", "contents": content}))
    assert rendered_request == {"model": "gemini-3-pro", "contents": [content]}


def test_a_memo_tells_the_shapes_of_one_text_apart() -> None:
    shapes: list[Any] = [[["Hello"]], ["Hello"], "Hello", [["Hello"]]]
    memo = ParseMemo()
    for contents in shapes:
        request = {"model": "gemini-3-pro", "contents": contents}
        remembered = DIALECT.wire.parse(request, memo=memo)
        assert DIALECT.wire.render(build(remembered.log, head=remembered.head)) == request


def test_bytes_are_read_as_base64() -> None:
    part = types.Part.from_bytes(data=b"\x89PNG", mime_type="image/png")
    for spelled_part in (part, {"inline_data": {"mime_type": "image/png", "data": b"\x89PNG"}}):
        log = DIALECT.wire.parse({"contents": [spelled_part]}).log
        assert log[0].parts == (Image(data=base64.b64encode(b"\x89PNG").decode(), media_type="image/png"),)


def test_loose_parts_get_a_content_where_others_are_made() -> None:
    call = types.Part(function_call=types.FunctionCall(name="now", args={}))
    rendered_contents = DIALECT.wire.render(fitted({"model": "gemini-2.5-pro", "contents": ["Hi", call]}))[
        "contents"
    ]
    assert [content["role"] for content in rendered_contents] == ["user", "model", "user"]
    assert rendered_contents[0]["parts"] == [{"text": "Hi"}]
    assert rendered_contents[1]["parts"][0] is call


def test_objects_of_the_sdk_are_read_and_come_back_as_they_are() -> None:
    config = types.GenerateContentConfig(
        system_instruction="Be brief.", temperature=0,
        tools=[types.Tool(function_declarations=[types.FunctionDeclaration(name="now")])],
    )  # fmt: skip
    content = types.ModelContent(parts=[types.Part.from_text(text="Hi.")])
    original_request = {"model": "gemini-3-pro", "contents": ["Hi", content, "And?"][1:], "config": config}
    parsed = DIALECT.wire.parse(original_request)
    assert parsed.log[0].parts == (Text("Be brief."),)
    assert parsed.head.tools == ({"function_declarations": [{"name": "now"}]},)
    rendered_request = DIALECT.wire.render(fitted(original_request))
    assert rendered_request["contents"][0] is content
    assert types.GenerateContentConfig.model_validate(rendered_request["config"]) == config
