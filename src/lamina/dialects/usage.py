"""What a call took, in tokens, as the API or a proxy in front of it reports it: each token once.

APIs differ in what their numbers hold. OpenAI, Gemini and Ollama report everything that was read, and say
beside it how much of that came from the cache. Anthropic and Bedrock report only what was not cached, so the
cached part has to be added. Proxies such as LiteLLM report both in one object. Which it is, the fields tell;
where a total is reported too, the total decides. This is the one place that reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class Cleared(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a server left out of the prompt by itself: input tokens, tool uses, and turns with thinking."""

    tokens: int = 0
    tool_uses: int = 0
    thinking_turns: int = 0

    def __str__(self) -> str:
        counts = ((self.tool_uses, "tool use"), (self.thinking_turns, "thinking turn"))
        told = [f"{count:,} {what}{'s' * (count != 1)}" for count, what in counts if count]
        return " and ".join(told) or "nothing"


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider says a call took, in tokens; `input` counts everything that was read.

    `cleared` is what its server left out of the prompt before that was counted.
    """

    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    cleared: Cleared = Cleared()


def usage_in(answer: Any) -> Usage:
    """What an answer says that its call took; Ollama and llama.cpp say it in the answer itself."""
    for name in ("usage", "usage_metadata", "usageMetadata"):
        found = read_usage(_at(answer, name))
        if found != Usage():
            return found
    return read_usage(answer)


def read_usage(usage: Any) -> Usage:
    """What a usage object says, whichever API wrote it: a dict, or an object of an SDK."""
    details = _at(usage, "prompt_tokens_details") or _at(usage, "input_tokens_details")
    cached = _first(usage, _CACHED) or _first(details, _CACHED)
    written = _first(usage, _WRITTEN) or _first(details, _WRITTEN)
    output = _first(usage, _OUTPUT) + _first(usage, _THOUGHTS)
    whole = _whole(usage, beside=cached + written, output=output, has_details=details is not None)
    return Usage(input=whole, cached=min(cached, whole), written=min(written, whole), output=output)


_ALL_READ = (
    "prompt_tokens",
    "prompt_token_count",
    "promptTokenCount",
    "prompt_eval_count",
    "tokens_evaluated",
)
"""Fields that count everything that was read."""

_NOT_CACHED = ("input_tokens", "inputTokens")
"""Fields that count what was not cached, where the cached part stands beside them; else everything."""

_CACHED = (
    "cached_tokens",
    "cache_read_input_tokens",
    "cacheReadInputTokens",
    "prompt_cache_hit_tokens",
    "cached_content_token_count",
    "cachedContentTokenCount",
)
_WRITTEN = (
    "cache_write_tokens",
    "created_cache_tokens",
    "cache_creation_input_tokens",
    "cache_creation_tokens",
    "cacheWriteInputTokens",
)
_OUTPUT = (
    "completion_tokens",
    "output_tokens",
    "outputTokens",
    "candidates_token_count",
    "candidatesTokenCount",
    "eval_count",
    "tokens_predicted",
)
_THOUGHTS = ("thoughts_token_count", "thoughtsTokenCount")
_SEARCHED = ("tool_use_prompt_token_count", "toolUsePromptTokenCount")
_TOTAL = ("total_tokens", "totalTokens")


def _whole(usage: Any, *, beside: int, output: int, has_details: bool) -> int:
    """Everything that was read, cached or not."""
    reported = _first(usage, _ALL_READ)
    apart = not reported and not has_details
    reported = reported or _first(usage, _NOT_CACHED)
    total = _first(usage, _TOTAL)
    if beside and total and total - output in (reported, reported + beside):
        return total - output
    if apart or reported < beside:  # a prompt smaller than what was read of it does not hold it
        reported += beside
    return reported + _first(usage, _SEARCHED)


def _first(holder: Any, names: tuple[str, ...]) -> int:
    """The first of these fields that counts something."""
    for name in names:
        count = _at(holder, name)
        if isinstance(count, int) and not isinstance(count, bool) and count > 0:
            return count
    return 0


def _at(holder: Any, name: str) -> Any:
    if isinstance(holder, Mapping):
        return holder.get(name)
    return getattr(holder, name, None)
