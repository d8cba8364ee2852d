"""Clients that talk to lamina as real ones do, and what must hold of every request that they get back.

    script_for(seed)         what one client will do: moves drawn from a seed
    play(script, subject)    plays it through `fit_request` and asks the oracles about every turn
    shrink(script, sort, subject)    a smaller script with the same violation

A client keeps its own history and edits, deletes, rewinds, forks and resumes it, in four providers' formats.
The oracles look at the wire only: validity by rules written from the providers' documents, the prompt, pairs,
the room, the prefix between cuts, recall, deleted text, voices, the memo. `bench/fuzz.py` is the long run.
"""

from __future__ import annotations

from tests.fuzzing.account import Account, never_played, table, violations_table
from tests.fuzzing.play import Played, play, turns
from tests.fuzzing.scripts import Script, script_for
from tests.fuzzing.shrink import shrink
from tests.fuzzing.turns import Subject, Turn, Violation

__all__ = [
    "Account",
    "Played",
    "Script",
    "Subject",
    "Turn",
    "Violation",
    "never_played",
    "play",
    "script_for",
    "shrink",
    "table",
    "turns",
    "violations_table",
]
