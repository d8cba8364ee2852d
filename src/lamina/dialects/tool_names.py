"""Chooses the names under which calls are sent.

Each API takes other characters in the name of a tool. A call that came from another API, or from a model that
made a name up, gets a name that the API takes. A name that the request itself defines is left as it is: if
the API refuses it, that is for `check` to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class ToolNames:
    """Chooses the name of a call. `defined` are the names of the request's own tools, as they came."""

    def __init__(self, defined: Iterable[Any], make_safe: Callable[[str], str]) -> None:
        self._defined = {name for name in defined if isinstance(name, str)}
        self._make_safe = make_safe

    def choose(self, name: str) -> str:
        """The name to send: `fs.read` if a tool has this name, else what `make_safe` makes of it."""
        if name in self._defined:
            return name
        return self._make_safe(name)
