"""A structured answer whose schema takes about a thousand tokens: frameworks add it to requests."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, create_model

MARK = "how sure of passage 23"
"""A text that stands in the schema only."""

_FIELDS: dict[str, Any] = {}
for number in range(24):
    description = (
        f"A number from 0 to 1: how sure of passage {number} the answer is, and whether it was read."
    )
    _FIELDS[f"certainty_{number}"] = (float, Field(description=description))

LongAnswer: type[BaseModel] = create_model("LongAnswer", __doc__="What the manual says.", **_FIELDS)

ANSWER_TEXT = LongAnswer(**dict.fromkeys(_FIELDS, 0.5)).model_dump_json()
"""An answer that has this schema."""
