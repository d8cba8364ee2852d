"""What the model reads of a request's parameters: the format of its answer, and whatever else speaks to it.

Parameters stand here as the provider has them, in any provider's shape and spelling. Whatever is not known
to be unread counts: a field that nobody here has heard of may be one that a server puts into the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lamina.core.text.characters import lower_ascii, split_words


class Speaking(NamedTuple):
    """The parameters that the model reads: the formats of its answer, and the others by their names."""

    formats: list[Any]
    others: dict[str, Any]


def speaking(parameters: Mapping[str, Any]) -> Speaking:
    """What of these parameters the model reads, as plain JSON."""
    found = Speaking([], {})
    for name, given in _fields(parameters, depth=0):
        value = _plain(given, depth=0)
        if name in _HOLDERS and isinstance(value, dict):
            found.formats.extend(value.pop(inner) for inner in _HOLDERS[name] if inner in value)
            value = {inner: said for inner, said in value.items() if snake(inner) not in UNREAD}
        if name == "context_management":
            value = list(_instructions(value))
        if name in FORMATS and value:
            found.formats.append(value)
        elif _says_something(name, value):
            found.others[name] = value
    return found


FORMATS = frozenset(
    """response_format response_schema response_json_schema format json_schema grammar guided_json
    guided_grammar guided_regex guided_choice guided_decoding structured_outputs output_format""".split()
)
"""Parameters that say which form the answer must have, in the words of one provider or another."""

_HOLDERS = {"output_config": ("format",), "text": ("format",)}
"""Parameters that have the format among other things."""

_NESTED = frozenset(("config", "generation_config", "extra_body"))
"""Parameters that hold parameters."""


_REASONS = {
    "it says how tokens are chosen": """temperature top_p top_k min_p typical_p seed n best_of candidate_count
        logit_bias logprobs top_logprobs response_logprobs presence_penalty frequency_penalty
        repetition_penalty repeat_penalty options""",
    "it says when the answer ends": """max_tokens max_completion_tokens max_output_tokens max_new_tokens
        max_tool_calls stop stop_sequences ignore_eos truncate truncation shift""",
    "it says how the request is sent, kept or paid for": """model stream stream_options metadata user store
        labels safety_identifier service_tier background include parallel_tool_calls keep_alive betas speed
        anthropic_beta anthropic_version inference_geo diagnostics user_profile_id workspace_id extra_headers
        extra_query timeout http_options should_return_http_response echo cache_salt client_metadata
        automatic_function_calling model_selection_config routing_config""",
    "it marks or names a cache": """cache_control prompt_cache_key prompt_cache_options prompt_cache_retention
        cache_prompt id_slot""",
    "it filters what was said": "safety_settings model_armor_config moderation",
    "it is one of a few words, or a number": """thinking think thinking_config thinking_budget reasoning
        reasoning_effort effort verbosity modalities response_modalities response_mime_type media_resolution
        audio speech_config task_budget""",
    "it names what only the server has, and can count": """previous_response_id conversation cached_content
        container mcp_servers thread""",
}

UNREAD: Mapping[str, str] = {
    name: reason for reason, names in _REASONS.items() for name in split_words(names)
}
"""Parameters that no model reads, in snake case, each with the reason."""

_CAPITAL = re.compile(r"[A-Z]")
_DEEPEST = 200


def snake(name: str) -> str:
    """A name as it is spelled in Python, whichever way it came."""
    return _CAPITAL.sub(lambda found: f"_{lower_ascii(found[0])}", name)


def _fields(parameters: Mapping[Any, Any], *, depth: int) -> Iterator[tuple[str, Any]]:
    for given, value in parameters.items():
        if not isinstance(given, str):
            continue
        name = snake(given)
        if name in _NESTED and isinstance(value, Mapping) and depth < len(_NESTED):
            yield from _fields(value, depth=depth + 1)
        elif name not in UNREAD:
            yield name, value


def _instructions(value: Any) -> Iterator[str]:
    """What a server is told to do to old turns is for the server; how to sum them up is for the model."""
    edits = value.get("edits") if isinstance(value, dict) else value
    for edit in edits if isinstance(edits, list) else ():
        if isinstance(edit, dict) and isinstance(said := edit.get("instructions"), str):
            yield said


def _says_something(name: str, value: Any) -> bool:
    """Whether a value has words in it; a choice of tools that names none is a word of the API's own."""
    if name in ("tool_choice", "function_call"):
        return isinstance(value, dict)
    return isinstance(value, str | dict | list) and bool(value)


def _plain(value: Any, *, depth: int) -> Any:
    """A value as JSON. SDKs take classes for schemas; what is neither JSON nor one of those is not sent."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if depth > _DEEPEST:
        return None
    if isinstance(value, Mapping):
        return {str(name): _plain(inner, depth=depth + 1) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, depth=depth + 1) for inner in value]
    return _plain(_written_out(value), depth=depth + 1)


def _written_out(value: Any) -> Any:
    """The schema of a class, or the fields of an object, of a library that can write them out."""
    method, arguments = ("model_json_schema", {}) if isinstance(value, type) else ("model_dump", _AS_JSON)
    write = getattr(value, method, None)
    if not callable(write):
        return None
    try:
        return write(**arguments)
    except Exception:  # noqa: BLE001 - a foreign class may raise anything; then the SDK will too
        return None


_AS_JSON = {"mode": "json", "exclude_none": True}
