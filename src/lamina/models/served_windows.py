"""Reads the context windows that a server lists with its models: the answer to `GET /v1/models`.

Nobody's table knows the window of a model that somebody serves at home: it is what the server was started
with. vLLM and SGLang list it as `max_model_len`, llama.cpp as `n_ctx` (in `meta` or beside it), LM Studio as
`loaded_context_length`, hosts of many models as `context_length` or `context_window`. Nothing is asked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

import msgspec

Tokens = Annotated[int, msgspec.Meta(gt=0)]


class _Limits(msgspec.Struct):
    """How long a request may be, as servers call it."""

    loaded_context_length: Tokens | None = None
    max_model_len: Tokens | None = None
    n_ctx: Tokens | None = None
    context_window: Tokens | None = None
    context_length: Tokens | None = None

    def window(self) -> int | None:
        """The first that is given. What was loaded comes before what the model could do."""
        limits = msgspec.structs.astuple(self)[: len(_Limits.__struct_fields__)]
        return next(filter(None, limits), None)


class _ListedModel(_Limits, kw_only=True):
    id: str
    meta: _Limits | None = None


class _Listing(msgspec.Struct):
    data: list[Any]


def read_served_windows(listing: Any) -> dict[str, int]:
    """The window of each model that a server lists with one, in tokens.

    The answer is that of a server of any kind, so whatever has another shape is passed over.
    """
    windows: dict[str, int] = {}
    with suppress(msgspec.ValidationError):
        for entry in msgspec.convert(listing, type=_Listing).data:
            windows |= _read_model(entry)
    return windows


def _read_model(entry: Any) -> dict[str, int]:
    """The window of one model by its id; nothing if the entry does not say it."""
    try:
        model = msgspec.convert(entry, type=_ListedModel)
    except msgspec.ValidationError:
        return {}
    limits = model.meta or _Limits()
    window = model.window() or limits.window()
    return {model.id: window} if window else {}


def choose_window(windows: Mapping[str, int], model: str) -> int | None:
    """The window of a model; None if it is not listed.

    A server with one model answers to every name, as llama.cpp does.
    """
    if len(windows) == 1:
        return next(iter(windows.values()))
    return windows.get(model)
