"""A request that only fills or keeps a provider's cache: the same prefix, and no answer.

Anthropic's API takes `max_tokens: 0` for that, OpenAI's Responses API `prompt_cache_options.prewarm`. Both
refuse it beside some other fields, as their pages say (docs/lifetimes.md); nobody has tried that with the
real servers. A field that is part of the prefix stays: without it another prefix would be warmed.

    fitted = lamina.fit_request(request, ledger=ledger)
    warming = warm_request(fitted.request, dialect="anthropic")
    if warming.request is not None:
        client.messages.create(**warming.request)

Nothing is sent here. `lamina.caches.lifetimes` says when it pays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lamina.caches import rules_for
from lamina.dialects.json_values import list_or_empty, mapping_or_empty, text_or_empty
from lamina.dialects.model_names import find_model


class WarmingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request that warms a prefix, or None and why there is none."""

    request: dict[str, Any] | None = None
    why_not: str = ""


def warm_request(request: Mapping[str, Any], *, dialect: str) -> WarmingRequest:
    """The request that reads, or writes, the prefix of this one, and asks for no answer.

    `dialect` is the name of the API that the request is for.
    """
    if dialect == "anthropic":
        return _warm_messages(request)
    if dialect == "openai_responses":
        return _warm_responses(request)
    return WarmingRequest(why_not=f"{dialect} has no request without an answer")


def _warm_messages(request: Mapping[str, Any]) -> WarmingRequest:
    """The Messages API: `max_tokens: 0`.

    The page says that it is refused with a stream, thinking, a format of the answer, and a forced tool. The
    stream is no part of the prefix, and is left out. The others are.
    """
    thinking = text_or_empty(mapping_or_empty(request.get("thinking")).get("type"))
    if thinking not in ("", "disabled"):
        return WarmingRequest(why_not="the request has thinking on, which belongs to its prefix")
    if mapping_or_empty(request.get("output_config")).get("format") is not None:
        return WarmingRequest(why_not="the request has a format of the answer, which belongs to its prefix")
    if mapping_or_empty(request.get("tool_choice")).get("type") in ("any", "tool"):
        return WarmingRequest(why_not="the request forces a tool, and the choice belongs to its prefix")
    return WarmingRequest(request={**_leave_out(request, "stream", "diagnostics"), "max_tokens": 0})


def _warm_responses(request: Mapping[str, Any]) -> WarmingRequest:
    """The Responses API: `prewarm`, which generates nothing. Only models with cache options take it."""
    model = find_model(request)
    if rules_for(model, dialect="openai_responses").match != "tail":
        return WarmingRequest(why_not=f"{model or 'this model'} takes no options for its cache")
    options = mapping_or_empty(request.get("prompt_cache_options"))
    if options.get("mode") == "explicit" and not _has_marker(request):
        return WarmingRequest(why_not="the request asks for explicit caching and marks nothing")
    warm = _leave_out(request, "stream", "stream_options")
    warm["prompt_cache_options"] = {**_leave_out(options, "comparison_response_id"), "prewarm": True}
    return WarmingRequest(request=warm)


def _leave_out(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def _has_marker(request: Mapping[str, Any]) -> bool:
    for item in list_or_empty(request.get("input")):
        for part in list_or_empty(mapping_or_empty(item).get("content")):
            if "prompt_cache_breakpoint" in mapping_or_empty(part):
                return True
    return False
