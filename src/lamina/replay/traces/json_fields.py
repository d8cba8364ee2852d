"""Reads JSON that nobody checked, field by field: a field of the wrong type counts as missing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lamina.dialects.json_values import mapping_or_empty, number_or_none
from lamina.dialects.usage import read_tier
from lamina.replay.values import RecordedUsage

_MOST = 10**12  # tokens: more is no count
_LATEST = 10**11  # seconds since 1970: more are milliseconds, microseconds or nanoseconds

_FIELDS_OF_OPENAI = frozenset(("prompt_tokens", "cached_input_tokens"))
_READ = ("cache_read_input_tokens", "cache_read", "cached_input_tokens", "prompt_cache_hit_tokens")
_WRITTEN = ("cache_creation_input_tokens", "cache_write", "cache_write_input_tokens")
_WRITTEN_IN_DETAILS = ("cache_write_tokens", "created_cache_tokens")


def json_field(row: Any, name: str) -> Any:
    """The field of an object; None if it is missing, or if this is no object."""
    return mapping_or_empty(row).get(name)


def text_field(row: Any, *names: str) -> str:
    """The first of these fields that is text and not empty.

    `text_field({"id": "", "session_id": "s1"}, "id", "session_id")` is `s1`.
    """
    for name in names:
        value = json_field(row, name)
        if isinstance(value, str) and value:
            return value
    return ""


def object_field(row: Any, *names: str) -> dict[str, Any]:
    """The first of these fields that is an object; an empty one where none is.

    Formats have changed the names of their fields, so a reader gives several.
    """
    for name in names:
        value = json_field(row, name)
        if isinstance(value, dict):
            return value
    return {}


def list_field(row: Any, name: str) -> list[Any]:
    """The field if it is a list; an empty one if not."""
    return as_list(json_field(row, name))


def as_list(value: Any) -> list[Any]:
    """The value if it is a list; an empty one if not."""
    if isinstance(value, list):
        return value
    return []


def count_field(row: Any, *names: str) -> int:
    """The first of these fields that is a number of something, and not 0.

    True, a negative number and text count nothing.
    """
    for name in names:
        number = number_or_none(json_field(row, name))
        if number is not None and 0 < number < _MOST:
            return int(number)
    return 0


def parse_moment(*moments: Any) -> float | None:
    """The first of these that is a moment, in seconds: ISO 8601, or a number of (parts of) seconds.

    Formats have times in several fields, some of which may be empty.
    """
    for moment in moments:
        seconds = _parse_one_moment(moment)
        if seconds is not None:
            return seconds
    return None


def _parse_one_moment(moment: Any) -> float | None:
    """Seconds of one moment, None if it is none.

    `1767225600000` is in milliseconds, so it is divided until it is in seconds.
    """
    if isinstance(moment, str):
        return _parse_iso(moment)
    number = number_or_none(moment)
    if number is None or not 0 < number < 1e20:
        return None
    while number > _LATEST:
        number /= 1000
    return float(number)


def _parse_iso(text: str) -> float | None:
    """Seconds of a moment in ISO 8601, which is in UTC if it does not say; None for any other text.

    A moment before 1970, or in a far future, is none.
    """
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = moment.timestamp()
    except (ValueError, OverflowError):
        return None
    if not 0 < seconds < _LATEST:
        return None
    return seconds


def parse_usage(usage: Any, *, at: float | None = None, model: str = "") -> RecordedUsage | None:
    """What a usage says, of whichever provider; None where it says nothing.

    OpenAI counts what was cached into the input, Anthropic beside it. Its fields show which one it is.
    Anthropic also says how much of what was written lives for an hour, at another price.
    """
    details = object_field(usage, "prompt_tokens_details", "input_tokens_details")
    read = count_field(usage, *_READ) or count_field(details, "cached_tokens")
    written = count_field(usage, *_WRITTEN) or count_field(details, *_WRITTEN_IN_DETAILS)
    lifetimes = object_field(usage, "cache_creation")
    written_long = count_field(lifetimes, "ephemeral_1h_input_tokens")
    written = max(written, written_long + count_field(lifetimes, "ephemeral_5m_input_tokens"))
    uncached = count_field(usage, "input_tokens", "prompt_tokens")
    counts_cached_as_input = not _FIELDS_OF_OPENAI.isdisjoint(mapping_or_empty(usage))
    # OpenAI counts what was cached into the input, Anthropic beside it
    if details or counts_cached_as_input:
        whole_input = uncached
        uncached = max(whole_input - read - written, 0)
        read = min(read, whole_input)
    parsed = RecordedUsage(
        uncached=uncached,
        read=read,
        written=written - written_long,
        written_long=written_long,
        output=count_field(usage, "output_tokens", "completion_tokens"),
        at=at,
        model=model,
        tier=read_tier(usage),
    )
    if not parsed.total and not parsed.output:
        return None
    return parsed
