"""Finds the name of the model in a request, or in a head: `modelId` in one API, else `model`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MODEL_FIELDS = ("model", "modelId")
"""Every API names it `model`, except Bedrock's Converse."""


def find_model(fields: Mapping[str, Any]) -> str:
    """The model that a request names, "" if it names none."""
    for name in MODEL_FIELDS:
        if fields.get(name):
            return str(fields[name])
    return ""


def set_model(fields: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The fields with another model, under the name that they have for it already."""
    for name in MODEL_FIELDS:
        if name in fields:
            return {**fields, name: model}
    return {**fields, "model": model}
