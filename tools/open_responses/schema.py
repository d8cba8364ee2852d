"""Whether an answer or an event has the shape that the OpenAPI document of Open Responses gives it.

The types are those of PyPI's `openresponses-types`. They are generated from the document, and differ from it
in one way that matters here: a field that may be left out may be null, too. `NEVER_NULL` closes that gap.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from openresponses_types import types
from pydantic import BaseModel, ValidationError

MOST_PROBLEMS = 12
"""Problems of one value that are listed. The rest are counted."""

MARK = "schema: "
"""What begins a problem that only the schema has with an answer."""

NEVER_NULL = frozenset(("logprobs", "obfuscation", "filename", "file_url"))
"""Fields that may be left out, but are never null."""

FREE_FIELDS = frozenset(("tools", "metadata", "text"))
"""Fields that hold what the client sent. Its JSON Schemas may have any names in them."""


def check_response(value: Any) -> list[str]:
    """What is wrong with a whole answer."""
    return _check(types.ResponseResource, value)


def check_compaction(value: Any) -> list[str]:
    """What is wrong with the answer of `/responses/compact`."""
    return _check(types.CompactResource, value)


def check_event(value: dict[str, Any]) -> list[str]:
    """What is wrong with an event of a stream."""
    event_type = str(value.get("type"))
    model = EVENTS.get(event_type)
    if model is None:
        return [f"{MARK}no event of Open Responses has the type {event_type}"]
    return _check(model, value, place=f"{event_type}, ")


def check_request(value: Any) -> list[str]:
    """What is wrong with the body of a request."""
    return _check(types.CreateResponseBody, value)


def describe_types() -> str:
    """The version of the types, and of the document that they were generated from."""
    lines = (types.__doc__ or "").splitlines()
    dates = [line.partition(":")[2].strip() for line in lines if line.startswith("Spec Version:")]
    return f"openresponses-types {version('openresponses-types')} of {''.join(dates)}"


def _find_events() -> dict[str, type[BaseModel]]:
    """The model of each event, by the one value that its field `type` may have."""
    events: dict[str, type[BaseModel]] = {}
    for name, model in vars(types).items():
        if name.endswith("StreamingEvent"):
            [event_type] = model.model_fields["type"].annotation
            events[event_type.value] = model
    return events


EVENTS = _find_events()


def _check(model: type[BaseModel], value: Any, *, place: str = "") -> list[str]:
    problems = [f"{MARK}{place}{field}: is null" for field in _find_nulls(value, "")]
    try:
        model.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_input=False, include_context=False):
            field = ".".join(str(step) for step in detail["loc"])
            problems.append(f"{MARK}{place}{field}: {detail['msg']}")
    more = len(problems) - MOST_PROBLEMS
    if more > 0:
        return [*problems[:MOST_PROBLEMS], f"{MARK}{place}and {more} more"]
    return problems


def _find_nulls(value: Any, place: str) -> Iterator[str]:
    """The places of nulls that the document does not allow."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_nulls(item, f"{place}.{index}")
        return
    if not isinstance(value, dict):
        return
    for name, field in value.items():
        if name in FREE_FIELDS:
            continue
        field_place = f"{place}.{name}".removeprefix(".")
        if field is None and name in NEVER_NULL:
            yield field_place
        yield from _find_nulls(field, field_place)
