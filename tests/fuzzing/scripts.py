"""What a client will do: a seed and the moves that follow from it.

Each move has words and numbers of its own, drawn from the seed and the move's place, so that a script from
which moves are taken away does the rest as before. A script is written as one short line and read again from
it.
"""

from __future__ import annotations

from random import Random

import msgspec

from tests.fuzzing.moves import GROUPS
from tests.fuzzing.profiles import Profile, profile_for

_WEIGHTS = {"adding": 50, "odd": 9, "editing": 17, "returning": 13, "setting": 11}
_ADDING = {"go_on": 9, "resume": 1, "take_a_step": 4, "call_in_parallel": 2, "poll_a_tool": 1, "remind": 2}
_SHORT = (3, 12)
_LONG = 60


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation to play: which of the seed's moves, by number, and which traits are taken away."""

    seed: int
    moves: tuple[int, ...]
    without: frozenset[str] = frozenset()

    @property
    def names(self) -> list[tuple[int, str]]:
        """The moves with their numbers."""
        every = moves_for(self.seed)
        return [(number, every[number]) for number in self.moves]

    def __str__(self) -> str:
        moves = ",".join(map(str, self.moves))
        without = f" --without {','.join(sorted(self.without))}" if self.without else ""
        return f"--replay {self.seed} --moves {moves}{without}"


def script_for(seed: int) -> Script:
    return Script(seed=seed, moves=tuple(range(len(moves_for(seed)))))


def moves_for(seed: int) -> list[str]:
    """The names of all moves of a seed, in order."""
    rng = Random(f"moves/{seed}")  # noqa: S311 - seeded on purpose
    profile = profile_for(seed)
    count = _LONG if profile.long else rng.randint(*_SHORT)
    opening = "resume" if rng.random() < 0.6 else "go_on"
    return [opening, *(_drawn(rng, profile) for _ in range(count - 1))]


def _drawn(rng: Random, profile: Profile) -> str:
    weights = dict(_WEIGHTS)
    if profile.long:
        weights["adding"] *= 5
    group = rng.choices(list(weights), list(weights.values()))[0]
    names = list(GROUPS[group])
    if group == "editing" and profile.reminders:
        names += 3 * ["begin_at_a_reminder"]
    if group != "adding":
        return rng.choice(names)
    shares = [_ADDING.get(name, 1) for name in names]
    if profile.long:
        shares[names.index("resume")] = 0
    if profile.reminders:
        shares[names.index("remind")] *= 3
    if profile.items:
        shares[names.index("add_an_item")] *= 4
    return rng.choices(names, shares)[0]
