"""JSON that nobody checked, read field by field: a wrong type reads as if it were not there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lamina.replay.values import RecordedUsage

_MOST = 10**12  # tokens: more is no count
_LATEST = 10**11  # seconds since 1970: more are milliseconds, microseconds or nanoseconds


def text(row: Any, *names: str) -> str:
    """The first of these fields that is text and not empty."""
    return next((v for name in names if isinstance(v := field(row, name), str) and v), "")


def mapping(row: Any, *names: str) -> dict[str, Any]:
    """The first of these fields that is an object; an empty one where none is."""
    return next((v for name in names if isinstance(v := field(row, name), dict)), {})


def listed(row: Any, name: str) -> list[Any]:
    value = field(row, name)
    return value if isinstance(value, list) else []


def field(row: Any, name: str) -> Any:
    return row.get(name) if isinstance(row, dict) else None


def seconds(*moments: Any) -> float | None:
    """The first of these that is a moment: ISO 8601, or a number of seconds or of parts of them."""
    return next((found for moment in moments if (found := _seconds(moment)) is not None), None)


def _seconds(moment: Any) -> float | None:
    if isinstance(moment, str):
        return _written(moment)
    if not isinstance(moment, int | float) or isinstance(moment, bool) or not 0 < moment < 1e20:
        return None
    while moment > _LATEST:
        moment /= 1000
    return float(moment)


def _written(moment: str) -> float | None:
    try:
        found = datetime.fromisoformat(moment)
        since = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return since if 0 < since < _LATEST else None


def used(usage: Any, *, at: float | None = None, model: str = "") -> RecordedUsage | None:
    """What a usage says, of whichever provider; None where it says nothing.

    OpenAI counts what was cached into the input, Anthropic beside it. Which one it is, its fields tell.
    Anthropic also says how much of what was written lives for an hour, at another price.
    """
    details = mapping(usage, "prompt_tokens_details", "input_tokens_details")
    whole = bool(details) or any(name in _WITHIN for name in (usage if isinstance(usage, dict) else ()))
    read = count(usage, *_READ) or count(details, "cached_tokens")
    written = count(usage, *_WRITTEN) or count(details, "cache_write_tokens", "created_cache_tokens")
    lives = mapping(usage, "cache_creation")
    long = count(lives, "ephemeral_1h_input_tokens")
    written = max(written, long + count(lives, "ephemeral_5m_input_tokens"))
    given = count(usage, "input_tokens", "prompt_tokens")
    found = RecordedUsage(
        uncached=max(given - read - written, 0) if whole else given,
        read=min(read, given) if whole else read,
        written=written - long,
        written_long=long,
        output=count(usage, "output_tokens", "completion_tokens"),
        at=at,
        model=model,
    )
    return found if found.total or found.output else None


_WITHIN = frozenset(("prompt_tokens", "cached_input_tokens"))
_READ = ("cache_read_input_tokens", "cache_read", "cached_input_tokens", "prompt_cache_hit_tokens")
_WRITTEN = ("cache_creation_input_tokens", "cache_write", "cache_write_input_tokens")


def count(row: Any, *names: str) -> int:
    """The first of these fields that is a number of something, and not 0."""
    for name in names:
        value = field(row, name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOST:
            return int(value)
    return 0
