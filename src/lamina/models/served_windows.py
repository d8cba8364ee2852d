"""The context windows that a server lists with its models: the answer to `GET /v1/models`.

Nobody's table knows the window of a model that somebody serves at home: it is what the server was started
with. vLLM and SGLang list it as `max_model_len`, llama.cpp as `n_ctx` (in `meta` or beside it), LM Studio as
`loaded_context_length`, hosts of many models as `context_length` or `context_window`. Nothing is asked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FIELDS = (  # what was loaded comes before what the model could do
    "loaded_context_length",
    "max_model_len",
    "n_ctx",
    "context_window",
    "context_length",
)


def read_served_windows(listing: Any) -> dict[str, int]:
    """The window of each model that a server lists with one, in tokens.

    The answer is that of a server of any kind, so nothing is taken for granted.
    """
    if not isinstance(listing, Mapping):
        return {}
    windows: dict[str, int] = {}
    entries = listing.get("data")
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping) or not isinstance(entry.get("id"), str):
            continue
        window = _find_window(entry) or _find_window(entry.get("meta"))
        if window:
            windows[entry["id"]] = window
    return windows


def choose_window(windows: Mapping[str, int], model: str) -> int | None:
    """The window of a model; None if it is not listed.

    A server with one model answers to every name, as llama.cpp does.
    """
    if model in windows:
        return windows[model]
    if len(windows) == 1:
        return next(iter(windows.values()))
    return None


def _find_window(fields: Any) -> int:
    """The first of the fields that says how long a request may be; 0 without one."""
    if not isinstance(fields, Mapping):
        return 0
    for name in _FIELDS:
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0
