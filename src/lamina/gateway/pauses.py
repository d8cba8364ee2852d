"""Remembers how long each kind of client pauses between two requests of a conversation.

Lifetimes of caches are chosen from it (`lamina.caches.lifetimes`). A kind of client is a program in one
workspace with one model: Claude Code pauses for a person, its sub-agents only for tools, and each of them has
a conversation of its own. Nothing is stored: a gateway that starts anew learns anew.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from lamina.gateway.calls import IncomingRequest

PAUSES = 200
"""Pauses of one kind of client that are remembered: the newest."""

MOST_KINDS = 1_000
"""Kinds of clients that are remembered. The one that was not seen for longest is forgotten first."""


class PauseBook:
    """The last pauses of each kind of client."""

    def __init__(self) -> None:
        self._pauses: OrderedDict[tuple[str, str, str, bool], deque[float]] = OrderedDict()

    def add(self, incoming: IncomingRequest, seconds: float) -> None:
        """A client came back after so many seconds."""
        key = _kind_of(incoming)
        if key not in self._pauses:
            self._pauses[key] = deque(maxlen=PAUSES)
        self._pauses[key].append(seconds)
        self._pauses.move_to_end(key)
        if len(self._pauses) > MOST_KINDS:
            self._pauses.popitem(last=False)

    def list_pauses(self, incoming: IncomingRequest) -> Sequence[float]:
        """The last pauses of the kind of client that sent this request, in seconds."""
        return tuple(self._pauses.get(_kind_of(incoming), ()))


def _kind_of(incoming: IncomingRequest) -> tuple[str, str, str, bool]:
    """The workspace, the program, the model, and whether it is a part of another conversation."""
    program = incoming.identity.group.partition(":")[0]
    return incoming.workspace, program, incoming.model, bool(incoming.identity.parent)
