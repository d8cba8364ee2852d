"""Reads JSON that nobody checked, field by field: a field of the wrong type counts as missing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from lamina.costs.logs.values import RecordedUsage, record_usage
from lamina.dialects.json_values import list_or_empty, mapping_or_empty, number_or_none
from lamina.dialects.usage import Usage, read_usage

_LATEST = 10**11  # seconds since 1970: more are milliseconds, microseconds or nanoseconds


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


def list_field(row: Any, name: str) -> Sequence[Any]:
    """The field if it is a list; an empty one if not."""
    return list_or_empty(json_field(row, name))


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
    """What a usage says, of whichever provider; None where it says nothing."""
    reported = usage
    if not isinstance(usage, Usage):
        reported = read_usage(usage)
    if not reported.input and not reported.output:
        return None
    return record_usage(reported, at=at, model=model)
