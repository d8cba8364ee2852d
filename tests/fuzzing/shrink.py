"""Makes an example smaller: fewer moves, then fewer traits, as long as it still shows the same violation."""

from __future__ import annotations

from tests.fuzzing.play import play
from tests.fuzzing.profiles import OPTIONAL
from tests.fuzzing.scripts import Script
from tests.fuzzing.turns import Subject

TRIES = 120
"""Conversations that are played for one example at most."""


def shrink(script: Script, sort: str, subject: Subject, *, tries: int = TRIES) -> Script:
    """The smallest script found that shows a violation of this sort."""
    return _Shrinking(sort, subject, tries).smallest(script)


class _Shrinking:
    def __init__(self, sort: str, subject: Subject, tries: int) -> None:
        self.sort = sort
        self.subject = subject
        self.tries = tries

    def smallest(self, script: Script) -> Script:
        script = self._fewer_moves(self._up_to_the_violation(script))
        script = self._fewer_traits(script)
        return self._fewer_moves(script)

    def _shows(self, script: Script) -> bool:
        if self.tries <= 0 or not script.moves:
            return False
        self.tries -= 1
        played = play(script, self.subject, stop_at=self.sort)
        return any(violation.sort == self.sort for violation in played.violations)

    def _up_to_the_violation(self, script: Script) -> Script:
        played = play(script, self.subject, stop_at=self.sort)
        found = [violation.turn for violation in played.violations if violation.sort == self.sort]
        if not found:
            return script
        kept = tuple(number for number in script.moves if number <= found[0])
        shorter = Script(seed=script.seed, moves=kept, without=script.without)
        return shorter if self._shows(shorter) else script

    def _fewer_moves(self, script: Script) -> Script:
        """Take away runs of moves, half of them first, then less and less."""
        size = max(len(script.moves) // 2, 1)
        while size >= 1:
            at = 0
            while at < len(script.moves):
                moves = script.moves[:at] + script.moves[at + size :]
                shorter = Script(seed=script.seed, moves=moves, without=script.without)
                if self._shows(shorter):
                    script = shorter
                else:
                    at += size
            size //= 2
        return script

    def _fewer_traits(self, script: Script) -> Script:
        for trait in OPTIONAL:
            plainer = Script(seed=script.seed, moves=script.moves, without=script.without | {trait})
            if self._shows(plainer):
                script = plainer
        return script
