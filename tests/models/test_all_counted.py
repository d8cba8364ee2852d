"""Nothing is sent that is not counted: every string of a request counts, or is known to be unread.

Requests of all dialects, with every field that their APIs document for messages, tools and parameters. Each
string in them is made a thousand times as long: the count must grow with it, or a table must say why not.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from lamina import BadInput, build
from lamina.core import tokens
from lamina.core.scale import UNREAD_PARAMETERS, snake
from lamina.core.tokens import SEALED_BYTES, STRICT
from lamina.core.tool_definitions import UNREAD_OF_TOOLS
from lamina.dialects import DIALECTS
from lamina.dialects.extra_fields import UNREAD
from lamina.formats.codec import decode, encode

Json = dict[str, Any]
Path = tuple[str | int, ...]

PDF = b64encode(b"%PDF-1.7\n<< /Type /Page >>\n" * 3).decode()
PICTURE = b64encode(b"\x89PNG\r\n\x1a\n" + bytes(90)).decode()
SOUND = b64encode(b"\x01" * 300).decode()
SEALED = b64encode(bytes(300)).decode()
WORDS = "some words that say something "
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": WORDS}},
    "required": ["path"],
}

SAID = {"type": "text", "text": WORDS}
PICTURE_URL = f"data:image/png;base64,{PICTURE}"
PDF_URL = f"data:application/pdf;base64,{PDF}"

CHAT: Json = {
    "model": "gpt-5",
    "messages": [
        {"role": "system", "content": WORDS, "name": "the_house"},
        {
            "role": "user",
            "name": "Ann",
            "content": [
                {
                    "type": "text",
                    "text": WORDS,
                    "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"},
                },
                {"type": "image_url", "image_url": {"url": PICTURE_URL, "detail": "high"}},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF_URL}},
                {"type": "file", "file": {"file_id": "file-1"}},
                {"type": "input_audio", "input_audio": {"data": SOUND, "format": "mp3"}},
                {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{SOUND}"}},
            ],
        },
        {
            "role": "assistant",
            "name": "the_reader",
            "content": WORDS,
            "refusal": WORDS,
            "reasoning_content": WORDS,
            "reasoning_details": [{"type": "reasoning.encrypted", "data": SEALED}],
            "annotations": [
                {"type": "url_citation", "url_citation": {"url": "https://e.org", "title": WORDS}}
            ],
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"path": "a"}'},
                    "extra_content": {"google": {"thought_signature": SEALED}},
                },
                {"id": "call_2", "type": "custom", "custom": {"name": "run", "input": WORDS}},
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "name": "read", "content": [SAID]},
        {"role": "tool", "tool_call_id": "call_2", "content": WORDS},
        {"role": "user", "content": WORDS},
    ],
    "tools": [
        {
            "type": "function",
            "function": {"name": "read", "description": WORDS, "parameters": SCHEMA, "strict": True},
        },
        {
            "type": "custom",
            "custom": {
                "name": "run",
                "description": WORDS,
                "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": WORDS}},
            },
        },
    ],
    "tool_choice": {"type": "function", "function": {"name": "read"}},
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "answer", "description": WORDS, "schema": SCHEMA},
    },
    "prediction": {"type": "content", "content": WORDS},
    "web_search_options": {"user_location": {"type": "approximate", "approximate": {"city": WORDS}}},
    "extra_body": {"guided_json": SCHEMA, "documents": [{"title": WORDS, "text": WORDS}]},
    "stop": ["END"],
    "metadata": {"tenant": WORDS},
    "user": "u-1",
    "prompt_cache_key": "k",
    "reasoning_effort": "low",
    "service_tier": "flex",
}

MESSAGES: Json = {
    "model": "claude-opus-5",
    "max_tokens": 100,
    "system": [{"type": "text", "text": WORDS, "cache_control": {"type": "ephemeral", "ttl": "1h"}}, SAID],
    "messages": [
        {
            "role": "user",
            "content": [
                SAID,
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
                {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
                {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
                {
                    "type": "document",
                    "title": WORDS,
                    "context": WORDS,
                    "citations": {"enabled": True},
                    "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
                },
                {
                    "type": "document",
                    "title": WORDS,
                    "context": WORDS,
                    "source": {"type": "text", "media_type": "text/plain", "data": WORDS},
                },
                {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
                {"type": "document", "source": {"type": "content", "content": [SAID]}},
                {"type": "search_result", "source": "https://example.org", "title": WORDS, "content": [SAID]},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": WORDS, "signature": SEALED},
                {"type": "redacted_thinking", "data": SEALED},
                {
                    "type": "text",
                    "text": WORDS,
                    "citations": [
                        {
                            "type": "char_location",
                            "cited_text": WORDS,
                            "document_title": WORDS,
                            "document_index": 0,
                        }
                    ],
                },
                {
                    "type": "server_tool_use",
                    "id": "srvtoolu_1",
                    "name": "web_search",
                    "input": {"query": WORDS},
                },
                {
                    "type": "web_search_tool_result",
                    "tool_use_id": "srvtoolu_1",
                    "content": [
                        {
                            "type": "web_search_result",
                            "url": "https://e.org",
                            "title": WORDS,
                            "encrypted_content": SEALED,
                        }
                    ],
                },
                {
                    "type": "tool_use",
                    "id": "toolu_1",
                    "name": "read",
                    "input": {"path": WORDS},
                    "caller": {"type": "direct"},
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "toolset_name": "files",
                    "content": [
                        SAID,
                        {
                            "type": "document",
                            "context": WORDS,
                            "source": {"type": "text", "media_type": "text/plain", "data": WORDS},
                        },
                    ],
                }
            ],
        },
        {"role": "system", "content": WORDS, "output_config": {"effort": "medium"}, "clear_at": "turn_end"},
    ],
    "tools": [
        {
            "name": "read",
            "description": WORDS,
            "input_schema": SCHEMA,
            "input_examples": [{"path": WORDS}],
            "cache_control": {"type": "ephemeral"},
        },
        {"type": "web_search_20250305", "name": "web_search", "allowed_domains": ["example.org"]},
    ],
    "tool_choice": {"type": "tool", "name": "read"},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    "compaction": {"type": "summarize", "instructions": WORDS},
    "stop_sequences": ["END"],
    "metadata": {"user_id": "u-1"},
    "context_management": {
        "edits": [{"type": "clear_tool_uses_20250919"}, {"type": "compact_20260112", "instructions": WORDS}]
    },
    "thinking": {"type": "adaptive"},
}

RESPONSES: Json = {
    "model": "gpt-5",
    "instructions": WORDS,
    "input": [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": WORDS, "prompt_cache_breakpoint": {"mode": "explicit"}},
                {"type": "input_image", "image_url": PICTURE_URL, "detail": "high"},
                {"type": "input_image", "file_id": "file-1", "detail": "low"},
                {"type": "input_file", "filename": "a.pdf", "file_data": PDF_URL},
                {"type": "input_file", "file_url": "https://example.org/a.pdf"},
            ],
        },
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": WORDS}],
            "content": [{"type": "reasoning_text", "text": WORDS}],
            "encrypted_content": SEALED,
        },
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "phase": "commentary",
            "content": [
                {
                    "type": "output_text",
                    "text": WORDS,
                    "annotations": [{"type": "url_citation", "url": "https://e.org", "title": WORDS}],
                    "logprobs": [{"token": "a", "logprob": -1.0}],
                },
                {"type": "refusal", "refusal": WORDS},
            ],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "read",
            "namespace": "files",
            "arguments": '{"path": "a"}',
            "status": "completed",
        },
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [{"type": "input_text", "text": WORDS}],
        },
        {"type": "custom_tool_call", "call_id": "call_2", "name": "run", "input": WORDS},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": WORDS},
        {
            "type": "shell_call",
            "call_id": "call_3",
            "action": {"commands": [WORDS]},
            "environment": {"type": "local", "skills": [{"name": "a", "description": WORDS}]},
        },
        {
            "type": "shell_call_output",
            "call_id": "call_3",
            "output": [{"stdout": WORDS, "stderr": WORDS, "outcome": {"type": "exit", "exit_code": 0}}],
        },
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": WORDS},
        },
        {"type": "compaction", "encrypted_content": SEALED},
        {"type": "message", "role": "user", "content": WORDS},
    ],
    "tools": [
        {"type": "function", "name": "read", "description": WORDS, "parameters": SCHEMA, "strict": True},
        {
            "type": "namespace",
            "name": "multi_agent",
            "description": WORDS,
            "tools": [{"type": "function", "name": "spawn", "description": WORDS, "parameters": SCHEMA}],
        },
        {
            "type": "custom",
            "name": "run",
            "description": WORDS,
            "format": {"type": "grammar", "syntax": "lark", "definition": WORDS},
        },
        {"type": "mcp", "server_label": "files", "server_description": WORDS, "server_url": "https://e.org"},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "read"}]},
    "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}},
    "prompt": {"id": "pmpt_1", "variables": {"topic": WORDS}},
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["reasoning.encrypted_content"],
    "metadata": {"tenant": WORDS},
    "prompt_cache_key": "k",
    "safety_identifier": "s",
}

GEMINI: Json = {
    "model": "gemini-3-pro",
    "systemInstruction": {"parts": [{"text": WORDS}]},
    "contents": [
        {
            "role": "user",
            "parts": [
                {"text": WORDS},
                {"inlineData": {"mimeType": "image/png", "data": PICTURE}},
                {"inlineData": {"mimeType": "application/pdf", "data": PDF, "displayName": "a.pdf"}},
                {
                    "inlineData": {"mimeType": "video/webm", "data": SOUND},
                    "videoMetadata": {"startOffset": "1s"},
                    "mediaResolution": {"level": "MEDIA_RESOLUTION_LOW"},
                },
                {"fileData": {"fileUri": "gs://bucket/a.pdf", "mimeType": "application/pdf"}},
            ],
        },
        {
            "role": "model",
            "parts": [
                {"text": WORDS, "thought": True, "thoughtSignature": SEALED},
                {"text": WORDS, "thoughtSignature": SEALED},
                {"executableCode": {"language": "PYTHON", "code": WORDS}},
                {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": WORDS}},
                {
                    "functionCall": {"id": "c1", "name": "read", "args": {"path": WORDS}},
                    "thoughtSignature": SEALED,
                },
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "c1",
                        "name": "read",
                        "response": {"output": WORDS},
                        "scheduling": "SILENT",
                        "parts": [{"inlineData": {"mimeType": "application/pdf", "data": PDF}}],
                    }
                }
            ],
        },
    ],
    "tools": [
        {
            "functionDeclarations": [
                {"name": "read", "description": WORDS, "parameters": SCHEMA, "response": SCHEMA},
                {"name": "write", "description": WORDS, "parametersJsonSchema": SCHEMA},
            ],
            "googleMaps": {"authConfig": {"apiKeyConfig": {"name": WORDS}}},
        }
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["read"]}},
    "generationConfig": {
        "responseMimeType": "application/json",
        "responseSchema": SCHEMA,
        "responseJsonSchema": SCHEMA,
        "stopSequences": ["END"],
        "thinkingConfig": {"thinkingLevel": "LOW"},
    },
    "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    "labels": {"team": WORDS},
}

OLLAMA: Json = {
    "model": "llama3.1",
    "messages": [
        {"role": "system", "content": WORDS},
        {"role": "user", "content": WORDS, "images": [PICTURE]},
        {
            "role": "assistant",
            "content": WORDS,
            "thinking": WORDS,
            "tool_calls": [
                {"id": "c1", "function": {"index": 0, "name": "read", "arguments": {"path": WORDS}}}
            ],
        },
        {"role": "tool", "tool_name": "read", "content": WORDS},
        {"role": "user", "content": WORDS},
    ],
    "tools": [{"type": "function", "function": {"name": "read", "description": WORDS, "parameters": SCHEMA}}],
    "format": SCHEMA,
    "options": {"num_ctx": 8192, "stop": ["END"]},
    "keep_alive": "5m",
    "think": "low",
}

TEXT: Json = {"model": "m", "prompt": f"User: {WORDS}\n\nAssistant:", "suffix": WORDS, "stop": ["END"]}

REQUESTS = {
    "openai_chat": CHAT,
    "anthropic": MESSAGES,
    "openai_responses": RESPONSES,
    "gemini": GEMINI,
    "ollama": OLLAMA,
    "text": TEXT,
}

TIMES = 1000

AT_AN_ADDRESS = "the model reads what stands there, not the address"
SHOWN = "providers scale pictures down, so one costs the same at any size"
FEW_WORDS = "one of a few words: the API refuses any other"

NOT_TEXT: dict[str, str] = {
    "url": AT_AN_ADDRESS,
    "file_url": AT_AN_ADDRESS,
    "fileUri": AT_AN_ADDRESS,
    "file_id": "a name by which the server knows a file",
    "image_url": SHOWN,
    "images": SHOWN,
    "media_type": FEW_WORDS,
    "mimeType": FEW_WORDS,
    "format": FEW_WORDS,
    "outcome": FEW_WORDS,
    "displayName": "the name of a file that is shown by its content",
}
"""Fields of typed parts that are no text, beside those that the tables of lamina name."""

SERVERS_OWN = {
    "context_management": "it tells the server what to leave out; instructions in it are for the model"
}
"""Parameters of which only a part is read."""

UNIQUE = frozenset(("id", "call_id", "tool_call_id", "tool_use_id"))
"""Names that two places must share, or a call has no result."""


def find_all(wanted: type, value: Any, path: Path = ()) -> Iterator[Path]:
    """Where a value holds one of this type."""
    if isinstance(value, wanted):
        yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from find_all(wanted, inner, (*path, name))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from find_all(wanted, inner, (*path, at))


def at(value: Any, path: Path) -> Any:
    for name in path:
        value = value[name]
    return value


def grown(request: Json, path: Path, *, times: int = TIMES) -> Json:
    """The request with one string as long as so many; an id is as long wherever it stands."""
    new: Json = json.loads(json.dumps(request))
    text = at(request, path)
    longer = text * times
    if text.startswith("data:"):
        head, comma, data = text.partition(",")
        longer = f"{head}{comma}{data * times}"
    for other in find_all(str, request):
        if other == path or (path[-1] in UNIQUE and other[-1] in UNIQUE and at(request, other) == text):
            at(new, other[:-1])[other[-1]] = longer
    return new


def counted(dialect: str, request: Json) -> int:
    parsed = DIALECTS[dialect].wire.parse(request)
    return build(parsed.log, head=parsed.head, counter=STRICT).tokens


def reason(dialect: str, path: Path) -> str:
    """Why a string need not count, by the tables; nothing if it must."""
    names = [str(name) for name in path if isinstance(name, str)]
    if at(REQUESTS[dialect], path) == PICTURE:
        return SHOWN
    if names[-2:] == ["functionResponse", "name"]:
        return "a result is sent under the name of its call"
    if names[0] in ("messages", "contents", "input", "system"):
        known, tables = names, {**UNREAD, **NOT_TEXT}
    elif names[0] == "tools":
        known, tables = names[-1:], dict(UNREAD_OF_TOOLS)
    else:
        known, tables = list(map(snake, names)), {**UNREAD_PARAMETERS, **SERVERS_OWN}
    return next((tables[name] for name in known if name in tables), "")


def rate(dialect: str, path: Path) -> int:
    """Characters of a string that make one token at least, with a counter of bytes."""
    text = at(REQUESTS[dialect], path)
    if text == SEALED:
        return SEALED_BYTES + 1
    if PDF in text:
        return tokens.LEAST_OF_PDF * 2
    return tokens.RECORDED * 2 if SOUND in text else 2


CASES = [(dialect, path) for dialect, request in REQUESTS.items() for path in find_all(str, request)]


@pytest.mark.parametrize("dialect", REQUESTS)
def test_a_longer_string_costs_more_or_a_table_says_why_not(dialect: str) -> None:
    request = REQUESTS[dialect]
    before = counted(dialect, request)
    for path in (path for name, path in CASES if name == dialect):
        try:
            more = counted(dialect, grown(request, path)) - before
        except BadInput:
            continue  # it is refused, so it is not sent
        longer = len(at(request, path)) * (TIMES - 1)
        assert more >= longer // rate(dialect, path) or reason(dialect, path), path
        if at(request, path) == WORDS:
            assert more <= longer, path  # and it counts once


@pytest.mark.parametrize("dialect", REQUESTS)
def test_these_requests_are_the_dialects_own(dialect: str) -> None:
    request = REQUESTS[dialect]
    parsed = DIALECTS[dialect].wire.parse(request)
    envelope = build(parsed.log, head=parsed.head, counter=STRICT)
    assert all(entry.form == "full" for entry in envelope.entries)


MEDIA = frozenset(
    """source image_url input_audio file inlineData fileData outcome prompt_cache_breakpoint cache_control
    citations""".split()
)
"""Objects inside a block that say where a picture or a file is, or what a cache does."""

NEW = [
    (dialect, path)
    for dialect, request in REQUESTS.items()
    for path in find_all(dict, request)
    if MEDIA.isdisjoint(map(str, path)) and not (path and reason(dialect, path))
]


@pytest.mark.parametrize("dialect", REQUESTS)
def test_a_field_that_nobody_has_heard_of_counts(dialect: str) -> None:
    before = counted(dialect, REQUESTS[dialect])
    for path in (path for name, path in NEW if name == dialect):
        request = json.loads(json.dumps(REQUESTS[dialect]))
        at(request, path)["field_of_tomorrow"] = WORDS * 200
        try:
            more = counted(dialect, request) - before
        except BadInput:
            continue
        assert more >= len(WORDS) * 200, path


@pytest.mark.parametrize("dialect", REQUESTS)
def test_a_log_that_was_stored_counts_what_it_counted(dialect: str) -> None:
    parsed = DIALECTS[dialect].wire.parse(REQUESTS[dialect])
    stored = decode([encode(segment) for segment in parsed.log])
    assert [segment.beside for segment in stored] == [segment.beside for segment in parsed.log]
    assert build(stored, counter=STRICT).account.entries == build(parsed.log, counter=STRICT).account.entries
