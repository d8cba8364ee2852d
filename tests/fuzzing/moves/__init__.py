"""What clients do to their history between two requests, by name.

A move changes a client and says whether it could; each is followed by a request. All of it is taken from what
real agents and chat applications do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.fuzzing.client import Client
from tests.fuzzing.moves import adding, editing, returning, setting
from tests.fuzzing.words import Words

Move = Callable[[Client, Words], bool]

GROUPS: Mapping[str, Mapping[str, Move]] = {
    "adding": adding.MOVES,
    "odd": adding.ODD_MOVES,
    "editing": editing.MOVES,
    "returning": returning.MOVES,
    "setting": setting.MOVES,
}

MOVES: Mapping[str, Move] = {name: move for group in GROUPS.values() for name, move in group.items()}
