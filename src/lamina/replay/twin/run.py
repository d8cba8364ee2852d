"""Decides which calls a twin run sends twice and what that may cost, and reports what it found.

A call is chosen by a digest of its name, not by chance, so that every process of a gateway chooses the same
ones and a run can be repeated. What a second call is going to cost is set aside before it is sent; calls in
flight together can therefore never spend more than the limit. Once the test has decided, no more calls are
sent.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from lamina.dialects.usage import count_noun
from lamina.errors import BadInput
from lamina.replay.twin.chosen import TwinPair, Verdict
from lamina.replay.twin.sequential import Decision, SequentialTest, bound_share, decide

DIGEST_SPACE = 2**64


class TwinSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a twin run is made.

    `share` of the calls that lamina changed are sent twice, until `spend` dollars are used, `most` pairs were
    compared, or the test has decided whether the same call is chosen in at least `bar` of them. A model that
    is sampled does not always agree with itself, so the bar has to be below its own agreement: `bar` is for
    greedy or nearly greedy calls. `salt` makes another choice of calls.
    """

    share: float = 0.02
    spend: float = 1.0
    most: int = 2_000
    bar: float = 0.9
    alpha: float = 0.01
    salt: str = ""

    def __post_init__(self) -> None:
        # all calls may be sent twice, but no test can be sure, or ask for agreement in every pair
        for name, is_share in (
            ("share", 0 < self.share <= 1),
            ("bar", 0 < self.bar < 1),
            ("alpha", 0 < self.alpha < 1),
        ):
            if not is_share:
                value = getattr(self, name)
                raise BadInput(f"{value!r}", place=f"twin.{name}", hint="give a share between 0 and 1")
        if self.spend <= 0 or self.most < 1:
            raise BadInput(
                f"{self.spend!r} dollars, {self.most!r} pairs",
                place="twin",
                hint="give a spending limit above 0, and at least one pair",
            )


class TwinTally(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has found so far: plain JSON, to be stored and taken up again.

    `verdicts` counts pairs by how they compared, `failed` second calls without an answer. `spent` is in
    dollars.
    """

    verdicts: dict[str, int] = {}
    failed: int = 0
    spent: float = 0.0

    @property
    def same(self) -> int:
        return self.verdicts.get(Verdict.SAME, 0)

    @property
    def compared(self) -> int:
        return sum(count for name, count in self.verdicts.items() if Verdict(name).counts)

    def plus(self, other: TwinTally) -> TwinTally:
        """What both have found: two processes of a gateway make one run."""
        verdicts = dict(self.verdicts)
        for name, count in other.verdicts.items():
            verdicts[name] = verdicts.get(name, 0) + count
        return TwinTally(
            verdicts=verdicts,
            failed=self.failed + other.failed,
            spent=self.spent + other.spent,
        )

    def since(self, earlier: TwinTally) -> TwinTally:
        """What was added since this tally was the `earlier` one."""
        verdicts = {name: count - earlier.verdicts.get(name, 0) for name, count in self.verdicts.items()}
        return TwinTally(
            verdicts={name: count for name, count in verdicts.items() if count},
            failed=self.failed - earlier.failed,
            spent=self.spent - earlier.spent,
        )


class TwinReport(msgspec.Struct, frozen=True, kw_only=True):
    """A run in numbers. `low` and `high` hold at every look: 95 % of such intervals have the true share."""

    decision: str
    same: int
    compared: int
    share: float
    low: float
    high: float
    verdicts: dict[str, int]
    failed: int
    spent: float
    limit: float
    bar: float

    def __str__(self) -> str:
        """Such as `same call in 97.1 ± 2.4 % of 1,000 calls (above the bar of 90 %); $2.50 of $5 spent`."""
        money = f"${self.spent:.2f} of ${self.limit:.2f} spent"
        if not self.compared:
            return f"no call was compared yet; {money}"
        margin = max(self.share - self.low, self.high - self.share)
        share = f"{100 * self.share:.1f} ± {100 * margin:.1f} %"
        calls = count_noun(self.compared, "call")
        return f"same call in {share} of {calls} ({self.decision} of {100 * self.bar:g} %); {money}"


class Twin:
    """One run, or the rest of one whose `tally` is given. `decision` is what the test says so far."""

    def __init__(self, settings: TwinSettings, *, tally: TwinTally | None = None) -> None:
        self.settings = settings
        self.tally = tally or TwinTally()
        self._set_aside: dict[str, float] = {}
        self.decision = self._decide()

    def chooses(self, call: str) -> bool:
        """Whether a call is among those that are sent twice while the run is open, whatever it costs."""
        return self.decision is Decision.OPEN and self._is_chosen(call)

    def wants(self, call: str, *, cost: float) -> bool:
        """Whether this call shall be sent twice. If so, `cost` dollars are set aside for it.

        `call` names it: the conversation and the number of the call. End it with `add` or `give_up`.
        """
        if not self.chooses(call):
            return False
        in_flight = sum(self._set_aside.values())
        if self.tally.spent + in_flight + cost > self.settings.spend:
            return False
        if self.tally.compared + len(self._set_aside) >= self.settings.most:
            return False
        self._set_aside[call] = cost
        return True

    def add(self, call: str, pair: TwinPair, *, cost: float) -> Verdict:
        """Compare the answers of a call that was sent twice. `cost` is what the second one really took."""
        verdict = pair.compare()
        self.add_verdict(call, verdict, cost=cost)
        return verdict

    def add_verdict(self, call: str, verdict: Verdict, *, cost: float) -> None:
        """Count a pair that was compared already."""
        verdicts = dict(self.tally.verdicts)
        verdicts[verdict.value] = verdicts.get(verdict.value, 0) + 1
        self._settle(call, cost, verdicts=verdicts)

    def take_tally(self, tally: TwinTally) -> None:
        """Go on from this tally: others have added to it."""
        self.tally = tally
        self.decision = self._decide()

    def give_up(self, call: str, *, cost: float = 0.0) -> None:
        """The second call had no answer. What it cost all the same counts."""
        self._settle(call, cost, failed=self.tally.failed + 1)

    def report(self) -> TwinReport:
        """What was found so far."""
        tally = self.tally
        low, high = bound_share(tally.same, tally.compared - tally.same)
        return TwinReport(
            decision=self.decision.value,
            same=tally.same,
            compared=tally.compared,
            share=tally.same / max(tally.compared, 1),
            low=low,
            high=high,
            verdicts=dict(tally.verdicts),
            failed=tally.failed,
            spent=tally.spent,
            limit=self.settings.spend,
            bar=self.settings.bar,
        )

    def _decide(self) -> Decision:
        test = SequentialTest(bar=self.settings.bar, alpha=self.settings.alpha)
        return decide(test, self.tally.same, self.tally.compared - self.tally.same)

    def _is_chosen(self, call: str) -> bool:
        digest = sha256(f"{self.settings.salt}\0{call}".encode()).digest()
        return int.from_bytes(digest[:8], "big") < self.settings.share * DIGEST_SPACE

    def _settle(self, call: str, cost: float, **changes: Any) -> None:
        self._set_aside.pop(call, None)
        spent = self.tally.spent + cost
        self.tally = msgspec.structs.replace(self.tally, spent=spent, **changes)
        self.decision = self._decide()
