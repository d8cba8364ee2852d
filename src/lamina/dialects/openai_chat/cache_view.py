"""Shows a Chat Completions request as a prefix cache sees it: tools, then the parts of messages.

Markers, nulls and documented defaults are removed, and a string is one text part. An assistant message
is its reasoning, its content, then its calls, one block each; the arguments of a call stay the string that
the model wrote. This module does not know which parameters a cache depends on: the cache rules do. Shapes
and defaults: openai 3.49.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lamina.caches.stream import Sort, Stream
from lamina.dialects.cache_blocks import (
    CachePiece,
    CacheSettings,
    drop_marker_and_nulls,
    make_message_blocks,
    make_tool_blocks,
    read_marker,
)
from lamina.dialects.json_values import (
    Json,
    drop_default,
    drop_field,
    drop_nulls,
    mapping_or_empty,
    read_list,
    text_or_empty,
    to_dict,
    to_list,
)
from lamina.dialects.marking import BREAKPOINT
from lamina.dialects.openai_chat.parse import REASONING
from lamina.dialects.openai_chat.parts import NAME
from lamina.dialects.pieces import require_request
from lamina.dialects.port import Request

_DEFAULT_LIFETIME = "30m"
"""The lifetime of a marker, if neither the marker nor the request has one."""

_SALT_PREFIX = "salt="
"""Begins the part of a stream's key that is a salt, by which some servers separate tenants."""

_SORTS_BY_TYPE: dict[str, Sort] = {
    "text": "text",
    "refusal": "text",
    "image_url": "image",
    "input_audio": "document",
    "file": "document",
}
_SORTS_BY_ROLE: dict[str, Sort] = {
    "system": "system",
    "developer": "system",
    "tool": "result",
    "function": "result",
}
_CALL_FIELDS = frozenset(("tool_calls", "function_call"))
_FIELDS_NOT_EXTRA = _CALL_FIELDS | {"role", "content", "id", "cache_control", *REASONING}
"""Fields of a message that are read elsewhere, or that no model sees: some servers take `cache_control`."""

_THINKING_FIELDS = ("thinking", "enable_thinking", "chat_template_kwargs", "reasoning")
_SETTINGS = CacheSettings(
    {
        "parallel": ("parallel_tool_calls", True),
        "effort": ("reasoning_effort", None),
        "format": ("response_format", {"type": "text"}),
        "verbosity": ("verbosity", "medium"),
        "tier": ("service_tier", "auto"),
        "web_search": ("web_search_options", None),
    },
    "model messages tools functions tool_choice function_call prompt_cache_key cache_salt "
    "prompt_cache_options thinking enable_thinking chat_template_kwargs reasoning "
    # These are not in the prompt.
    "max_tokens max_completion_tokens temperature top_p top_k min_p n seed stop stream stream_options user "
    "metadata store logprobs top_logprobs logit_bias frequency_penalty presence_penalty safety_identifier "
    "prediction modalities audio moderation prompt_cache_retention repetition_penalty extra_headers "
    "extra_query timeout",
)


def stream(request: Request) -> Stream:
    """The blocks of a request, each with its marker, and the parameters that a cache may see.

    `"Hi"` and `[{"type": "text", "text": "Hi"}]` have the same bytes. `tools` come before functions from
    before tools, whatever the order of the two fields in the request is.
    """
    require_request(request, "give an object with messages")
    options = mapping_or_empty(request.get("prompt_cache_options"))
    reader = _MessageReader(text_or_empty(options.get("ttl")) or _DEFAULT_LIFETIME, {})
    return Stream(
        dialect=NAME,
        model=text_or_empty(request.get("model")),
        blocks=(
            *make_tool_blocks(request.get("tools"), "tools", _read_tool),
            *make_tool_blocks(request.get("functions"), "functions", _read_tool),
            *make_message_blocks(request.get("messages"), "messages", reader.read_message),
        ),
        settings=_read_settings(request),
        key=_read_key(request),
        automatic=_read_automatic(request, options),
    )


def _read_settings(request: Request) -> dict[str, bytes]:
    """The parameters that a cache may depend on. The default choice depends on whether there are tools."""
    default_choice = "none"
    if request.get("tools") or request.get("functions"):
        default_choice = "auto"
    choice = request.get("tool_choice") or request.get("function_call")
    thinking_fields = {name: request.get(name) for name in _THINKING_FIELDS}
    return _SETTINGS.read(
        request,
        tool_choice=drop_default(choice, default_choice),
        thinking=drop_nulls(thinking_fields) or None,
    )


def _read_key(request: Request) -> str:
    """The key that routes requests to one cache, with the salt that separates tenants.

    The key "k" with the salt "s" gives `ksalt=s`.
    """
    key = text_or_empty(request.get("prompt_cache_key"))
    salt = request.get("cache_salt")
    if salt:
        key += f"{_SALT_PREFIX}{salt}"
    return key


def _read_automatic(request: Request, options: Mapping[str, Any]) -> str:
    """The mode and the lifetimes of the request as words, without those that are the default.

    `{"mode": "explicit", "ttl": "12h"}` gives "explicit 12h".
    """
    mode = text_or_empty(options.get("mode"))
    lifetime = text_or_empty(options.get("ttl"))
    retention = text_or_empty(request.get("prompt_cache_retention")).replace("-", "_")
    default_words = ("", "implicit", _DEFAULT_LIFETIME)
    return " ".join(word for word in (mode, lifetime, retention) if word not in default_words)


def _read_tool(definition: Json) -> tuple[Json, str]:
    """A definition without fields that say nothing, and its name.

    Nulls say nothing, and neither does a strictness that is the default. Of the function
    `{"name": "read", "strict": false, "description": null}` only the name is left.
    """
    bare_definition = drop_nulls(definition)
    function = bare_definition.get("function")
    if isinstance(function, Mapping):
        bare_function = drop_nulls(function)
        if bare_function.get("strict") is False:
            del bare_function["strict"]
        bare_definition["function"] = bare_function
    return bare_definition, _read_function_name(definition)


def _read_function_name(block: Mapping[str, Any]) -> str:
    """The name in a definition or a call; from before tools, the block is the function itself.

    `{"type": "function", "function": {"name": "read"}}` and `{"name": "read"}` are both `read`.
    """
    function = block.get("function") or block.get("custom") or block
    return text_or_empty(mapping_or_empty(function).get("name"))


class _MessageReader(NamedTuple):
    """Reads messages in order. `call_names` has the name of each call so far, by its id."""

    lifetime: str
    call_names: dict[str, str]

    def read_message(self, value: Any) -> tuple[str, list[CachePiece]]:
        """The role of a message, and its pieces: reasoning, content, calls.

        `{"role": "assistant", "reasoning": "Why", "content": "Reading.", "tool_calls": [A]}` has three.
        Servers have one of two names for reasoning, and each field that is there is a piece.
        """
        message = to_dict(value)
        role = text_or_empty(message.get("role"))
        pieces = self._read_content(message, role)
        if not _CALL_FIELDS.isdisjoint(message):
            pieces += self._read_calls(message)
        thoughts = [
            CachePiece("thinking", {field: message[field]}, f".{field}")
            for field in REASONING
            if message.get(field)
        ]
        return role, thoughts + pieces

    def _read_content(self, message: Json, role: str) -> list[CachePiece]:
        """The pieces of a content. An assistant's empty text is none; elsewhere it is one.

        The first part carries the other fields of the message. Each later one carries only the id of the call
        that the message answers. A message with no content, but with a name, is one piece of that name.
        """
        content = message.get("content")
        extra_fields = _read_extra_fields(message)
        if isinstance(content, str) and (content or role != "assistant"):
            return [self._read_part({"type": "text", "text": content}, extra_fields, ".content[0]", role)]
        pieces: list[CachePiece] = []
        if not content and extra_fields:
            pieces.append(CachePiece("result" if role == "tool" else "raw", extra_fields))
        for position, item in enumerate(to_list(content or None, "content")):
            part = to_dict(item, f"content[{position}]")
            pieces.append(self._read_part(part, extra_fields, f".content[{position}]", role))
            if extra_fields:
                extra_fields = drop_nulls({"tool_call_id": extra_fields.get("tool_call_id")})
        return pieces

    def _read_part(self, part: Json, extra_fields: Json, place: str, role: str) -> CachePiece:
        """One part of a content. A picture with the detail "auto" has the same bytes as one without."""
        part_type = text_or_empty(part.get("type"))
        data = drop_marker_and_nulls(part, BREAKPOINT)
        name = ""
        if part_type != "text" or extra_fields:
            name = self._name_part(part, extra_fields)
        if part_type == "image_url":
            data = {**data, "image_url": _remove_default_detail(data.get("image_url"))}
        if extra_fields:
            data = {"message": extra_fields, **data}
        sort = _SORTS_BY_ROLE.get(role) or _SORTS_BY_TYPE.get(part_type, "raw")
        markable = part_type in _SORTS_BY_TYPE and part.get("text") != ""
        return CachePiece(sort, data, place, name, read_marker(part, BREAKPOINT, self.lifetime), markable)

    def _name_part(self, part: Json, extra_fields: Json) -> str:
        """What a reader would call a part: the tool that gave it, its file, or who says it.

        A result is named after the tool that was called, a file by its name, and a user by the name in the
        message.
        """
        call_id = extra_fields.get("tool_call_id")
        if isinstance(call_id, str):
            return self.call_names.get(call_id, "")
        file = part.get("file")
        if isinstance(file, Mapping):
            return text_or_empty(file.get("filename"))
        return text_or_empty(extra_fields.get("name"))

    def _read_calls(self, message: Json) -> Iterator[CachePiece]:
        """One piece for each call, and the name of each for the results that follow.

        The arguments stay the text that the model wrote, since a cache compares text.
        """
        calls = [(f"tool_calls[{i}]", call) for i, call in enumerate(read_list(message, "tool_calls"))]
        if message.get("function_call"):
            calls.append(("function_call", message["function_call"]))
        for place, value in calls:
            call = to_dict(value, place)
            name = _read_function_name(call)
            call_id = call.get("id")
            if isinstance(call_id, str):
                self.call_names[call_id] = name
            # The list itself says the place of a call.
            yield CachePiece("call", drop_field(drop_nulls(call), "index"), f".{place}", name)


def _read_extra_fields(message: Json) -> Json:
    """The fields of a message besides its content and calls; an empty field says nothing.

    `{"role": "assistant", "content": "Hi", "audio": {"id": "a1"}}` has `audio`.
    """
    if _FIELDS_NOT_EXTRA.issuperset(message):
        return {}
    return {name: value for name, value in message.items() if value and name not in _FIELDS_NOT_EXTRA}


def _remove_default_detail(image: Any) -> Any:
    """An address of a picture without the detail, if that is the default.

    `{"url": "…", "detail": "auto"}` means the same as `{"url": "…"}`.
    """
    if mapping_or_empty(image).get("detail") in ("auto", None):
        return drop_field(image, "detail")
    return image
