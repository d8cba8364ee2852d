"""What of a request's parameters the model reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pydantic
import pytest

from lamina.core.scale import ANSWER_FORMATS, UNREAD_PARAMETERS, find_read_parameters, snake


class Answer(pydantic.BaseModel):
    """A class as SDKs take it for a schema."""

    path: str


class Broken:
    @classmethod
    def model_json_schema(cls) -> Any:
        raise RuntimeError


SCHEMA = {"type": "object"}


@pytest.mark.parametrize(
    ("parameters", "formats"),
    [
        ({"response_format": SCHEMA}, [SCHEMA]),
        ({"output_config": {"effort": "low", "format": SCHEMA}}, [SCHEMA]),
        ({"text": {"verbosity": "low", "format": SCHEMA}}, [SCHEMA]),
        ({"generationConfig": {"responseSchema": SCHEMA, "responseMimeType": "application/json"}}, [SCHEMA]),
        ({"config": {"response_json_schema": SCHEMA}}, [SCHEMA]),
        ({"format": "json"}, ["json"]),
        ({"extra_body": {"guided_json": SCHEMA}}, [SCHEMA]),
        ({"response_format": Answer}, [Answer.model_json_schema()]),
        ({"config": {"response_schema": [Answer]}}, [[Answer.model_json_schema()]]),
        ({"response_format": Answer(path="a")}, [{"path": "a"}]),
        ({"response_format": Broken}, []),
        ({"response_format": object()}, []),
        ({"response_format": None}, []),
    ],
)
def test_the_format_of_the_answer_is_found_in_every_shape(
    parameters: dict[str, Any], formats: list[Any]
) -> None:
    read = find_read_parameters(parameters)
    assert read.formats == formats
    assert read.others == {}


@pytest.mark.parametrize(
    ("parameters", "others"),
    [
        ({"suffix": "the end"}, {"suffix": "the end"}),
        ({"tool_choice": "auto"}, {}),
        ({"tool_choice": {"name": "read"}}, {"tool_choice": {"name": "read"}}),
        ({"field_of_tomorrow": "words"}, {"field_of_tomorrow": "words"}),
        ({"field_of_tomorrow": 7, "another": True, "third": []}, {}),
        ({"text": {"verbosity": "low", "new": "words"}}, {"text": {"new": "words"}}),
        ({"timeout": object(), "http_client": object(), "tools": SimpleNamespace()}, {}),
        ({7: "not a name"}, {}),
        ({"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}, {}),
        (
            {"context_management": {"edits": [{"type": "compact_20260112", "instructions": "words"}]}},
            {"context_management": ["words"]},
        ),
        ({"context_management": [{"type": "compaction", "compact_threshold": 9}]}, {}),
    ],
)
def test_what_is_not_known_to_be_unread_is_read(parameters: dict[Any, Any], others: dict[str, Any]) -> None:
    assert find_read_parameters(parameters).others == others


def test_no_parameter_is_both_read_and_unread() -> None:
    assert ANSWER_FORMATS.isdisjoint(UNREAD_PARAMETERS)
    assert [name for name in (*ANSWER_FORMATS, *UNREAD_PARAMETERS) if snake(name) != name] == []


def test_parameters_that_hold_themselves_come_to_an_end() -> None:
    circle: dict[str, Any] = {"words": "x"}
    circle["extra_body"] = circle
    assert find_read_parameters(circle).others["words"] == "x"
    held: dict[str, Any] = {}
    held["held"] = held
    assert find_read_parameters({"field_of_tomorrow": held}).others
