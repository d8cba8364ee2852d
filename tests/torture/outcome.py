"""What a trial found: how often it tried, what was acknowledged meanwhile, and what did not hold."""

from __future__ import annotations

import msgspec


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one trial. `left_out` says why it was not made at all."""

    trial: str
    tries: int = 0
    acknowledged: int = 0
    violations: tuple[str, ...] = ()
    found: str = ""
    left_out: str = ""

    @property
    def held(self) -> bool:
        return not self.violations


class Tally:
    """An outcome while it grows."""

    def __init__(self, trial: str) -> None:
        self.trial = trial
        self.tries = self.acknowledged = 0
        self.violations: list[str] = []
        self.found: dict[str, int] = {}

    def note(self, what: str) -> None:
        self.found[what] = self.found.get(what, 0) + 1

    def broken(self, where: str, error: BaseException) -> None:
        words = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        self.violations.append(f"{where}: {words}"[:300])

    def outcome(self) -> Outcome:
        found = ", ".join(f"{count:,} {what}" for what, count in sorted(self.found.items()))
        return Outcome(
            trial=self.trial,
            tries=self.tries,
            acknowledged=self.acknowledged,
            violations=tuple(self.violations),
            found=found,
        )
