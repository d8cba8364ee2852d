"""Shows a Chat Completions request as a prefix cache sees it: tools, then the parts of messages.

Markers, nulls and documented defaults are removed, and a string is one text part. An assistant message
is its reasoning, its content, then its calls, one block each; the arguments of a call stay the string that
the model wrote. This module does not know which parameters a cache depends on: the cache rules do. Shapes
and defaults: openai 3.49.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lamina.caches.stream import Sort, Stream, StreamBlock
from lamina.dialects.json_values import (
    Json,
    add_outer_place,
    drop_default,
    drop_field,
    drop_nulls,
    mapping_or_empty,
    read_list,
    text_or_empty,
    to_dict,
)
from lamina.dialects.marking import BREAKPOINT, encode_data, encode_settings, find_other_fields, read_marker
from lamina.dialects.openai_chat.parse import REASONING
from lamina.dialects.openai_chat.parts import NAME
from lamina.dialects.pieces import require_request
from lamina.dialects.port import Request
from lamina.errors import BadInput

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
_REASONING_FIELDS = frozenset(REASONING)
_CALL_FIELDS = frozenset(("tool_calls", "function_call"))
_FIELDS_NOT_EXTRA = _CALL_FIELDS | {"role", "content", "id", "cache_control", *REASONING}
"""Fields of a message that are read elsewhere, or that no model sees: some servers take `cache_control`."""

_FIELDS_READ_ELSEWHERE = frozenset(
    ("model", "messages", "tools", "functions", "prompt_cache_key", "cache_salt", "prompt_cache_options")
)
_THINKING_FIELDS = ("thinking", "enable_thinking", "chat_template_kwargs", "reasoning")
_SETTING_FIELDS = frozenset(
    "tool_choice function_call parallel_tool_calls reasoning_effort verbosity response_format service_tier "
    "web_search_options".split()
).union(_THINKING_FIELDS)
_FIELDS_NOT_IN_PROMPT = frozenset(
    "max_tokens max_completion_tokens temperature top_p top_k min_p n seed stop stream stream_options user "
    "metadata store logprobs top_logprobs logit_bias frequency_penalty presence_penalty safety_identifier "
    "prediction modalities audio moderation prompt_cache_retention repetition_penalty extra_headers "
    "extra_query timeout".split()
)
_FIELDS_OF_API = _FIELDS_READ_ELSEWHERE | _SETTING_FIELDS | _FIELDS_NOT_IN_PROMPT


def stream(request: Request) -> Stream:
    """The blocks of a request, each with its marker, and the parameters that a cache may see.

    `"Hi"` and `[{"type": "text", "text": "Hi"}]` have the same bytes.
    """
    require_request(request, "give an object with messages")
    options = mapping_or_empty(request.get("prompt_cache_options"))
    lifetime = text_or_empty(options.get("ttl")) or _DEFAULT_LIFETIME
    blocks = [*_read_tools(request), *_read_messages(request, lifetime)]
    return Stream(
        dialect=NAME,
        model=text_or_empty(request.get("model")),
        blocks=tuple(blocks),
        settings=_read_settings(request),
        key=_read_key(request),
        automatic=_read_automatic(request, options),
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


def _read_tools(request: Request) -> Iterator[StreamBlock]:
    """One block for each definition, of tools and of functions from before tools.

    `tools` come first, whatever the order of the two fields in the request is.
    """
    for field in ("tools", "functions"):
        for i, tool in enumerate(read_list(request, field)):
            place = f"{field}[{i}]"
            definition = to_dict(tool, place)
            yield StreamBlock(
                sort="tool",
                role="tool",
                data=encode_data(_remove_silent_fields(definition), place),
                place=place,
                opens=True,
                name=_read_function_name(definition),
            )


def _read_function_name(block: Mapping[str, Any]) -> str:
    """The name in a definition or a call; from before tools, the block is the function itself.

    `{"type": "function", "function": {"name": "read"}}` and `{"name": "read"}` are both `read`.
    """
    function = block.get("function") or block.get("custom") or block
    return text_or_empty(mapping_or_empty(function).get("name"))


def _remove_silent_fields(definition: Mapping[str, Any]) -> Json:
    """A definition without fields that say nothing: nulls, and a strictness that is the default.

    Of the function `{"name": "read", "strict": false, "description": null}` only the name is left.
    """
    bare_definition = drop_nulls(definition)
    function = bare_definition.get("function")
    if isinstance(function, Mapping):
        bare_function = drop_nulls(function)
        if bare_function.get("strict") is False:
            del bare_function["strict"]
        bare_definition["function"] = bare_function
    return bare_definition


class _ChatStreamReader(NamedTuple):
    """Reads messages in order. `call_names` has the name of each call so far, by its id."""

    lifetime: str
    call_names: dict[str, str]

    def read_message(self, message: Mapping[str, Any], place: str) -> list[StreamBlock]:
        """The blocks of a message: reasoning, content, calls. The first of them opens the message.

        `{"role": "assistant", "reasoning": "Why", "content": "Reading.", "tool_calls": [A]}` has three
        blocks.
        """
        role = text_or_empty(message.get("role"))
        blocks: list[StreamBlock] = []
        if not _REASONING_FIELDS.isdisjoint(message):
            blocks += _read_reasoning(message, place, role)
        blocks += self._read_content(message, place, role, opens=not blocks)
        if not _CALL_FIELDS.isdisjoint(message):
            blocks += self._read_calls(message, place, role, opens=not blocks)
        return blocks

    def _read_content(
        self, message: Mapping[str, Any], place: str, role: str, *, opens: bool
    ) -> list[StreamBlock]:
        """The blocks of a content. An assistant's empty text is none; elsewhere it is a block.

        A message with no content, but with a name, is one block of that name.
        """
        content = message.get("content")
        extra_fields = _read_extra_fields(message)
        is_said = bool(content) or role != "assistant"
        if isinstance(content, str) and is_said:
            text_part = {"type": "text", "text": content}
            part_place = f"{place}.content[0]"
            return [self._read_part(text_part, extra_fields, part_place, role, opens=opens)]
        if content:
            return self._read_parts(message, extra_fields, place, role, opens=opens)
        if not extra_fields:
            return []
        sort: Sort = "raw"
        if role == "tool":
            sort = "result"
        data = encode_data(extra_fields, "")
        return [StreamBlock(sort=sort, role=role, data=data, place=place, opens=opens)]

    def _read_parts(
        self, message: Mapping[str, Any], extra_fields: dict[str, Any], place: str, role: str, *, opens: bool
    ) -> list[StreamBlock]:
        """The parts of a content.

        The first carries the other fields of the message. Each later one carries only the id of the call
        that the message answers.
        """
        blocks: list[StreamBlock] = []
        for i, item in enumerate(read_list(message, "content")):
            part = to_dict(item, f"content[{i}]")
            part_place = f"{place}.content[{i}]"
            is_first = not blocks
            blocks.append(self._read_part(part, extra_fields, part_place, role, opens=opens and is_first))
            if is_first:
                extra_fields = drop_nulls({"tool_call_id": extra_fields.get("tool_call_id")})
        return blocks

    def _read_part(
        self, part: Mapping[str, Any], extra_fields: dict[str, Any], place: str, role: str, *, opens: bool
    ) -> StreamBlock:
        """One part of a content. The first part carries the other fields of its message.

        A picture with the detail "auto" has the same bytes as one without.
        """
        part_type = text_or_empty(part.get("type"))
        data: Json = drop_field(drop_nulls(part), BREAKPOINT)
        name = ""
        if part_type != "text" or extra_fields:
            name = self._name_part(part, extra_fields)
        if part_type == "image_url":
            data = {**data, "image_url": _remove_default_detail(data.get("image_url"))}
        if extra_fields:
            data = {"message": extra_fields, **data}
        return StreamBlock(
            sort=_SORTS_BY_ROLE.get(role) or _SORTS_BY_TYPE.get(part_type, "raw"),
            role=role,
            data=encode_data(data, ""),
            place=place,
            opens=opens,
            name=name,
            marker=read_marker(part, BREAKPOINT, self.lifetime),
            markable=part_type in _SORTS_BY_TYPE and part.get("text") != "",
        )

    def _name_part(self, part: Mapping[str, Any], extra_fields: Mapping[str, Any]) -> str:
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

    def _read_calls(
        self, message: Mapping[str, Any], place: str, role: str, *, opens: bool
    ) -> list[StreamBlock]:
        """One block for each call, and the name of each for the results that follow.

        The arguments stay the text that the model wrote, since a cache compares text.
        """
        calls = [(f"tool_calls[{i}]", call) for i, call in enumerate(read_list(message, "tool_calls"))]
        if message.get("function_call"):
            calls.append(("function_call", message["function_call"]))
        blocks: list[StreamBlock] = []
        for call_place, value in calls:
            call = to_dict(value, call_place)
            name = _read_function_name(call)
            call_id = call.get("id")
            if isinstance(call_id, str):
                self.call_names[call_id] = name
            # The list itself says the place of a call.
            data = drop_field(drop_nulls(call), "index")
            block = StreamBlock(
                sort="call",
                role=role,
                data=encode_data(data, call_place),
                place=f"{place}.{call_place}",
                opens=opens and not blocks,
                name=name,
            )
            blocks.append(block)
        return blocks


def _read_messages(request: Request, lifetime: str) -> Iterator[StreamBlock]:
    """The blocks of all messages, in order.

    An error in a message names the message before the field.
    """
    reader = _ChatStreamReader(lifetime, {})
    for i, message in enumerate(read_list(request, "messages")):
        place = f"messages[{i}]"
        try:
            yield from reader.read_message(to_dict(message), place)
        except BadInput as error:
            raise add_outer_place(place, error) from None


def _read_reasoning(message: Mapping[str, Any], place: str, role: str) -> list[StreamBlock]:
    """One block for each reasoning text.

    Servers have one of two names for it, and each field that is there is a block.
    """
    blocks: list[StreamBlock] = []
    for field in REASONING:
        if not message.get(field):
            continue
        block = StreamBlock(
            sort="thinking",
            role=role,
            data=encode_data({field: message[field]}, field),
            place=f"{place}.{field}",
            opens=not blocks,
        )
        blocks.append(block)
    return blocks


def _read_extra_fields(message: Mapping[str, Any]) -> dict[str, Any]:
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


def _read_settings(request: Request) -> dict[str, bytes]:
    """The parameters that a cache may depend on, without those that have their default.

    The default choice of a tool depends on whether there are tools. Fields that no table above has are
    compared too: whoever compares two requests should see that they differ.
    """
    default_choice = "none"
    if request.get("tools") or request.get("functions"):
        default_choice = "auto"
    thinking_fields = {name: request.get(name) for name in _THINKING_FIELDS}
    choice = request.get("tool_choice") or request.get("function_call")
    settings = {
        "tool_choice": drop_default(choice, default_choice),
        "parallel": drop_default(request.get("parallel_tool_calls"), default=True),
        "effort": request.get("reasoning_effort"),
        "format": drop_default(request.get("response_format"), {"type": "text"}),
        "verbosity": drop_default(request.get("verbosity"), "medium"),
        "tier": drop_default(request.get("service_tier"), "auto"),
        "web_search": request.get("web_search_options"),
        "thinking": drop_nulls(thinking_fields) or None,
        "other": find_other_fields(request, _FIELDS_OF_API),
    }
    return encode_settings(settings)
