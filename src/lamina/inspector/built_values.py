"""A session as it was built: its calls, and the form of each segment over time. Values only."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lamina.caches import CacheRules
from lamina.core.tokens import Counter
from lamina.core.values import Budget, Head, Ledger, Ref
from lamina.inspector.sessions import RecordedSession
from lamina.inspector.settings import BuildSettings
from lamina.replay.model_calls import ModelCall


class FormChange(msgspec.Struct, frozen=True):
    """From this call on, a segment is sent in this form."""

    call: int
    form: str
    why: str


class BuiltCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call: its place in the session, its size, what a cache read of it, and what that cost.

    `ledger` is the one before the call. `simulated`: the amounts of the cache are computed from its rules,
    since the records do not have them. `reported` is the size that the provider reported, None without one.
    `needed` counts the names that the answer took from earlier context, `visible` those that the request had.
    """

    number: int
    call: ModelCall
    at: float | None
    idle: float
    ledger: Ledger
    tokens: int
    layers: Mapping[str, int]
    entries: int
    left_out: int
    room: int | None
    cut: str = ""
    cut_lowered: int = 0
    continues: bool = True
    error: str = ""
    read: int = 0
    written: int = 0
    uncached: int = 0
    output: int = 0
    dollars: float | None = None
    equivalents: float = 0.0
    simulated: bool = True
    reported: int | None = None
    turn: int = 1
    miss: str = ""
    needed: int = 0
    visible: int = 0


class BuiltSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session under some settings, call by call, and the form of each segment over time.

    `unrecorded` are the tokens of system text and tools that the records do not have, as far as the first
    reported usage tells. `skipped` is the number of calls of a long session that were not built.
    """

    session: RecordedSession
    settings: BuildSettings
    rules: CacheRules
    budget: Budget | None
    counter: Counter
    head: Head
    calls: tuple[BuiltCall, ...]
    history: Mapping[Ref, tuple[FormChange, ...]]
    arrivals: Mapping[Ref, int]
    unrecorded: int = 0
    skipped: int = 0
