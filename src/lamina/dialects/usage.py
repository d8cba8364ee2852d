"""Reads how many tokens a call took, as the API or a proxy in front of it reports them: each token once.

APIs differ in what their numbers mean. OpenAI, Gemini and Ollama report everything that was read, and in
another field how much of that came from the cache. Anthropic and Bedrock report only what was not cached, so
the cached part has to be added. Proxies such as LiteLLM report both in one object. The fields tell which it
is; if a total is reported too, the total decides. This is the one place that reads them.

`CacheReport` is what a provider says about its own cache: whether it read a request from it, and if not, why.
Two APIs compare a request with an earlier one if a client gives them the id of its answer. Shapes: anthropic
2.8 (`diagnostics.previous_message_id`) and openai 3.49 (`prompt_cache_options.comparison_response_id`, in the
Responses API only). lamina asks for no report. It reads those that clients ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal

import msgspec

from lamina.core.text.characters import lower_ascii
from lamina.dialects.json_values import MAPPING_TYPES, mapping_or_empty, read_field, text_or_empty, to_count

_FieldReader = Callable[[str], Any]
"""Gives the value of a field by its name, None if there is no such field."""

HIT = "hit"
"""The provider compared the two requests and found nothing that breaks the cached prefix."""

PENDING = "pending"
"""The answer was written before the comparison was done."""

LONGEST_WORD = 40
"""Characters of a provider's word that are kept. The longest word of today has 29."""


class Cleared(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a server left out of the prompt by itself: input tokens, tool uses, and turns with thinking."""

    tokens: int = 0
    tool_uses: int = 0
    thinking_turns: int = 0

    def __str__(self) -> str:
        """What was cleared, in words.

        Such as "2 tool uses and 1 thinking turn", or "nothing".
        """
        counts: list[str] = []
        if self.tool_uses:
            counts.append(count_noun(self.tool_uses, "tool use"))
        if self.thinking_turns:
            counts.append(count_noun(self.thinking_turns, "thinking turn"))
        return " and ".join(counts) or "nothing"


NOTHING_CLEARED = Cleared()


def count_noun(count: int, noun: str) -> str:
    """A count with its noun: "1 tool use", "2,000 tool uses"."""
    if count == 1:
        return f"{count:,} {noun}"
    return f"{count:,} {noun}s"


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider says a call took, in tokens; `input` counts everything that was read.

    `written_long` is the part of `written` that was paid to live longer: an hour at Anthropic, 12 at OpenAI.
    `cleared` is what its server left out of the prompt before that was counted. `tier` is how the call was
    served, if that has a price of its own: "fast", "batch", "priority", "flex", "us", or several, as
    "batch+us".
    """

    input: int = 0
    cached: int = 0
    written: int = 0
    written_long: int = 0
    output: int = 0
    cleared: Cleared = NOTHING_CLEARED
    tier: str = ""


NO_FIELDS: Mapping[str, Any] = {}
NOTHING_REPORTED = Usage()


def find_usage(answer: Any) -> Usage:
    """What an answer says that its call took. Ollama and llama.cpp report it in the answer itself.

    `{"usage": {…}}` is how most APIs have it, `{"usageMetadata": {…}}` is Gemini's.
    """
    read = _make_reader(answer)
    for name in ("usage", "usage_metadata", "usageMetadata"):
        fields = read(name)
        if fields is None:
            continue
        usage = read_usage(fields, answer)
        if usage != NOTHING_REPORTED:
            return usage
    return read_usage(answer)


def read_tier(*holders: Any) -> str:
    """How a call was served, if not in the usual way. A request may ask for it; only the answer says it.

    `{"service_tier": "batch", "inference_geo": "us"}` is "batch+us".
    """
    words: set[str] = set()
    for holder in holders:
        if isinstance(holder, dict) and _TIER_FIELDS.isdisjoint(holder):  # as most are
            continue
        read = _make_reader(holder)
        for name in _TIER_FIELDS:
            value = read(name)
            if isinstance(value, str):
                words.add(lower_ascii(value).removeprefix("on_demand_"))
    return "+".join(sorted(words - _USUAL_TIERS))


_TIER_FIELDS = frozenset(("service_tier", "speed", "inference_geo", "trafficType", "traffic_type"))
"""Fields of an answer or its usage: Anthropic has the first three, OpenAI the first, Vertex the last two."""

_USUAL_TIERS = frozenset(("", "standard", "default", "auto", "global", "not_available", "on_demand"))


def read_usage(usage: Any, answer: Any = None) -> Usage:
    """What a usage object says, whichever API wrote it: a dict, or an object of an SDK.

    The `answer` that has it may say how the call was served.

    `{"input_tokens": 10, "cache_read_input_tokens": 90}` is Anthropic's way to say that 100 tokens were read,
    and `{"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 90}}` is OpenAI's.
    """
    read = _make_reader(usage)
    details = read("prompt_tokens_details") or read("input_tokens_details")
    counts = _read_counts(usage)
    detail_counts = _read_counts(details)
    cached = counts.get("cached", 0) or detail_counts.get("cached", 0)
    written = counts.get("written", 0) or detail_counts.get("written", 0)
    parts = read("cache_creation")
    if parts is None and details is not None:
        parts = read_field(details, "cache_write_tokens_details")
    written_long = _read_counts(parts).get("written_long", 0)
    # Gemini counts thoughts beside the answer; at all others they are a part of it.
    output = counts.get("output", 0) + counts.get("thoughts", 0)
    # Codex has the cached part beside the input, which includes it.
    has_details = details is not None or read("cached_input_tokens") is not None
    whole_input = _count_whole_input(
        counts, cached_and_written=cached + written, output=output, has_details=has_details
    )
    tier = ""
    if whole_input or output:
        tier = read_tier(usage, answer)
    return Usage(
        input=whole_input,
        cached=min(cached, whole_input),
        written=min(written, whole_input),
        written_long=min(written_long, written),
        output=output,
        tier=tier,
    )


_Counted = Literal[
    "all_read",
    "not_cached",
    "cached",
    "written",
    "written_long",
    "output",
    "thoughts",
    "searched",
    "total",
]
"""What a field counts.

`all_read`: everything that was read. `not_cached`: what was not cached, if the cached part is reported too;
else everything. `written_long`: what was written to live for an hour, or for 12. `output`: what the model
wrote. `searched`: what the provider's own tools added to the prompt.
"""

_FIELDS: dict[_Counted, tuple[str, ...]] = {
    "all_read": (
        "prompt_tokens",
        "prompt_token_count",
        "promptTokenCount",
        "prompt_eval_count",
        "tokens_evaluated",
    ),
    "not_cached": ("input_tokens", "inputTokens"),
    "cached": (
        "cached_tokens",
        "cache_read_input_tokens",
        "cacheReadInputTokens",
        "prompt_cache_hit_tokens",
        "cached_content_token_count",
        "cachedContentTokenCount",
        "cached_input_tokens",
        "cache_read",
    ),
    "written": (
        "cache_write_tokens",
        "created_cache_tokens",
        "cache_creation_input_tokens",
        "cache_creation_tokens",
        "cacheWriteInputTokens",
        "cache_write_input_tokens",
        "cache_write",
    ),
    "written_long": ("ephemeral_1h_input_tokens", "ttl_12h_tokens"),
    "output": (
        "completion_tokens",
        "output_tokens",
        "outputTokens",
        "candidates_token_count",
        "candidatesTokenCount",
        "eval_count",
        "tokens_predicted",
    ),
    "thoughts": ("thoughts_token_count", "thoughtsTokenCount"),
    "searched": ("tool_use_prompt_token_count", "toolUsePromptTokenCount"),
    "total": ("total_tokens", "totalTokens"),
}
"""The fields of all APIs, by what they count. Of several that count something the first one holds."""

_COUNTED = {name: counted for counted, names in _FIELDS.items() for name in names}
_PLACES = {name: place for place, name in enumerate(_COUNTED)}


def _count_whole_input(
    counts: Mapping[_Counted, int], *, cached_and_written: int, output: int, has_details: bool
) -> int:
    """Everything that was read, cached or not.

    100 cached tokens beside 20 `input_tokens` are 120 in all. Beside 120 `prompt_tokens` they are a part.
    """
    reported = counts.get("all_read", 0)
    excludes_cached = not reported and not has_details
    if not reported:
        reported = counts.get("not_cached", 0)
    total = counts.get("total", 0)
    if cached_and_written and total:
        total_input = total - output
        if total_input in (reported, reported + cached_and_written):
            return total_input
    # A prompt that is smaller than its cached part cannot include it.
    if excludes_cached or reported < cached_and_written:
        reported += cached_and_written
    return reported + counts.get("searched", 0)


def _make_reader(holder: Any) -> _FieldReader:
    """What reads the fields of a usage like `read_field`. What the usage is, is found out only once."""
    if holder is None:
        return NO_FIELDS.get
    if isinstance(holder, MAPPING_TYPES):
        return holder.get
    return partial(read_field, holder)


def _read_counts(holder: Any) -> dict[_Counted, int]:
    """What the fields of a usage count. A usage has a few of them, so these are looked at, and not all."""
    if holder is None:
        return {}
    names: Iterable[str] = _PLACES
    if isinstance(holder, dict):
        names = sorted(_PLACES.keys() & holder.keys(), key=_PLACES.__getitem__)
    read = _make_reader(holder)
    counts: dict[_Counted, int] = {}
    for name in names:
        count = to_count(read(name))
        if count:
            counts.setdefault(_COUNTED[name], count)
    return counts


class CacheReport(msgspec.Struct, frozen=True, kw_only=True):
    """The provider's own word for what happened, "" if it said nothing.

    `missed` are the tokens that it says would have been read, 0 if it does not say.
    """

    cause: str = ""
    missed: int = 0


NO_REPORT = CacheReport()


def read_cache_report(answer: Any, request: Mapping[str, Any] | None = None) -> CacheReport:
    """What an answer (a dict, or an object of an SDK) reports about its cache.

    `request` is the one that was answered. Anthropic's API answers null both if nobody asked and if nothing
    differs, so without it a null is no report.
    """
    compared = read_field(answer, "prompt_cache_diagnostics")
    if compared is not None:
        return _read_openai(compared)
    diagnostics = read_field(answer, "diagnostics")
    if diagnostics is not None:
        return _read_anthropic(diagnostics)
    if request is not None and _names_previous_message(request):
        return CacheReport(cause=HIT)
    return NO_REPORT


def _read_anthropic(diagnostics: Any) -> CacheReport:
    """What the Messages API reports: why the prefix was not read, or nothing as long as it compares."""
    reason = read_field(diagnostics, "cache_miss_reason")
    if reason is None:
        return CacheReport(cause=PENDING)
    missed = to_count(read_field(reason, "cache_missed_input_tokens"))
    return CacheReport(cause=_read_word(reason, "type"), missed=missed)


def _read_openai(compared: Any) -> CacheReport:
    """What the Responses API reports: a hit, a miss with its reason, or why it did not compare."""
    word = _read_word(compared, "type")
    if word == "cache_hit":
        return CacheReport(cause=HIT)
    if word == "cache_miss":
        word = _read_word(compared, "reason")
    return CacheReport(cause=word, missed=to_count(read_field(compared, "cache_missed_tokens")))


def _read_word(holder: Any, name: str) -> str:
    """A word of the provider. It goes into logs, so a server cannot put a text there."""
    return text_or_empty(read_field(holder, name))[:LONGEST_WORD]


def _names_previous_message(request: Mapping[str, Any]) -> bool:
    """Whether a request of Anthropic's API names the answer of an earlier one.

    With null it only says that it wants reports: on the first turn there is nothing to compare.
    """
    return bool(mapping_or_empty(request.get("diagnostics")).get("previous_message_id"))
