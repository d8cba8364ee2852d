"""What the model reads of a request's parameters: the format of its answer, and whatever else speaks to it.

Parameters are as the provider has them, in any provider's shape and spelling. Every parameter counts that is
not listed as unread: a field that nobody here has heard of may be one that a server puts into the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lamina.core.text.characters import lower_ascii, split_words

ANSWER_FORMATS = frozenset(
    """response_format response_schema response_json_schema format json_schema grammar guided_json
    guided_grammar guided_regex guided_choice guided_decoding structured_outputs output_format""".split()
)
"""Parameters that say which form the answer must have, in the words of one provider or another."""

_FORMAT_HOLDERS = ("output_config", "text")
"""Parameters that have the format among other things, under the name `format`."""

_PARAMETER_HOLDERS = frozenset(
    ("config", "generation_config", "extra_body", "additional_model_request_fields")
)
"""Parameters that hold parameters."""

_REASONS = {
    "it says how tokens are chosen": """temperature top_p top_k min_p typical_p seed n best_of candidate_count
        logit_bias logprobs top_logprobs response_logprobs presence_penalty frequency_penalty
        repetition_penalty repeat_penalty options inference_config""",
    "it says when the answer ends": """max_tokens max_completion_tokens max_output_tokens max_new_tokens
        max_tool_calls stop stop_sequences ignore_eos truncate truncation shift""",
    "it says how the request is sent, kept or paid for": """model stream stream_options metadata user store
        labels safety_identifier service_tier background include parallel_tool_calls keep_alive betas speed
        anthropic_beta anthropic_version inference_geo diagnostics user_profile_id workspace_id extra_headers
        extra_query timeout http_options should_return_http_response echo cache_salt client_metadata
        automatic_function_calling model_selection_config routing_config model_id request_metadata
        performance_config additional_model_response_field_paths""",
    "it marks or names a cache": """cache_control prompt_cache_key prompt_cache_options prompt_cache_retention
        cache_prompt id_slot""",
    "it filters what was said": "safety_settings model_armor_config moderation guardrail_config",
    "it is one of a few words, or a number": """thinking think thinking_config thinking_budget reasoning
        reasoning_effort effort verbosity modalities response_modalities response_mime_type media_resolution
        audio speech_config task_budget""",
    "it names what only the server has, and can count": """previous_response_id conversation cached_content
        container mcp_servers thread""",
}

UNREAD_PARAMETERS: Mapping[str, str] = {
    name: reason for reason, names in _REASONS.items() for name in split_words(names)
}
"""Parameters that no model reads, in snake case, each with the reason."""

_CAPITAL = re.compile(r"[A-Z]")
_DEEPEST = 200
_DUMP_AS_JSON = {"mode": "json", "exclude_none": True}


class ReadParameters(NamedTuple):
    """The parameters that the model reads: the formats of its answer, and the others by their names."""

    formats: list[Any]
    others: dict[str, Any]


def find_read_parameters(parameters: Mapping[str, Any]) -> ReadParameters:
    """What of these parameters the model reads, as plain JSON.

    `{"text": {"format": F, "verbosity": "low"}}` has one format, and nothing else that is read.
    """
    formats: list[Any] = []
    others: dict[str, Any] = {}
    for name, parameter in _flatten_parameters(parameters, depth=0):
        value = _to_json_value(parameter, depth=0)
        if name in _FORMAT_HOLDERS and isinstance(value, dict):
            if "format" in value:
                formats.append(value["format"])
            value = _other_read_fields(value)
        elif name == "context_management":
            value = list(_summary_instructions(value))
        if name in ANSWER_FORMATS and value:
            formats.append(value)
        elif _has_words(name, value):
            others[name] = value
    return ReadParameters(formats, others)


def _other_read_fields(holder: dict[str, Any]) -> dict[str, Any]:
    """What the model reads of a parameter that has the format among other things, without the format.

    A field in it may be unread as well, such as the `effort` of an `output_config`.
    """
    other_fields: dict[str, Any] = {}
    for name, value in holder.items():
        if name == "format" or snake(name) in UNREAD_PARAMETERS:
            continue
        other_fields[name] = value
    return other_fields


def snake(name: str) -> str:
    """A name in snake case: `responseSchema` and `response_schema` are both `response_schema`."""
    return _CAPITAL.sub(lambda capital: f"_{lower_ascii(capital[0])}", name)


def _flatten_parameters(parameters: Mapping[Any, Any], *, depth: int) -> Iterator[tuple[str, Any]]:
    """The parameters that may be read, by name in snake case; those that hold parameters are opened.

    SDKs nest them: `config={"generation_config": {…}}` and `extra_body={…}` hold what counts by itself
    elsewhere.
    """
    for original_name, value in parameters.items():
        if not isinstance(original_name, str):
            continue
        name = snake(original_name)
        may_be_opened = name in _PARAMETER_HOLDERS and depth < len(_PARAMETER_HOLDERS)
        if may_be_opened and isinstance(value, Mapping):
            yield from _flatten_parameters(value, depth=depth + 1)
        elif name not in UNREAD_PARAMETERS:
            yield name, value


def _summary_instructions(value: Any) -> Iterator[str]:
    """The instructions in `context_management` that the model reads: how to sum old turns up.

    The rest tells the server what to do to old turns.
    """
    match value:
        case {"edits": [*edits]} | [*edits]:
            for edit in edits:
                match edit:
                    case {"instructions": str(instructions)}:
                        yield instructions


def _has_words(name: str, value: Any) -> bool:
    """Whether a value has words in it. A choice of tools that names no tool is one of the API's own words.

    `tool_choice="auto"` is not read, `{"type": "function", "name": "find"}` is. Numbers and switches are not.
    """
    if name in ("tool_choice", "function_call"):
        return isinstance(value, dict)
    return isinstance(value, str | dict | list) and bool(value)


def _to_json_value(value: Any, *, depth: int) -> Any:
    """A value as JSON. SDKs take classes for schemas; what is neither JSON nor one of those is not sent."""
    match value:
        case None | str() | bool() | int() | float():
            return value
        case _ if depth > _DEEPEST:
            return None
        case Mapping():
            return {str(name): _to_json_value(item, depth=depth + 1) for name, item in value.items()}
        case list() | tuple():
            return [_to_json_value(item, depth=depth + 1) for item in value]
        case _:
            return _to_json_value(_dump_model(value), depth=depth + 1)


def _dump_model(value: Any) -> Any:
    """The schema of a class, or the fields of an object, of a library such as pydantic; else None."""
    if isinstance(value, type):
        dump = getattr(value, "model_json_schema", None)
        arguments = {}
    else:
        dump = getattr(value, "model_dump", None)
        arguments = _DUMP_AS_JSON
    if not callable(dump):
        return None
    try:
        return dump(**arguments)
    except Exception:  # noqa: BLE001 - a foreign class may raise anything; then the SDK will too
        return None
