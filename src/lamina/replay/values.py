"""What the lab reads and what it finds out: traces, the outcome of each under a policy, and a whole account.

A trace is one recorded conversation in its own dialect. An outcome is that conversation, sent again call by
call under one policy, one window and one cache's rules. Nothing here reads a file or simulates anything.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import msgspec

from lamina.caches.prices import WorkingCost
from lamina.conversations.lost_caches import LostCache
from lamina.conversations.record import CutNote, is_compaction
from lamina.dialects.usage import Usage


class RecordedUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider reported of one model call, in tokens; `at` in seconds, where a time was recorded.

    `written_long` is what was written for the longer of two lifetimes, and not part of `written`; `model` is
    the one that answered, where the records say so for each call. `tier` is how the call was served
    (`lamina.dialects.usage`). `cut` is the one that lamina recorded for the request, and `saving` what it
    cost less than with nothing cut, in USD.
    """

    uncached: int = 0
    read: int = 0
    written: int = 0
    written_long: int = 0
    output: int = 0
    at: float | None = None
    model: str = ""
    tier: str = ""
    cut: CutNote | None = None
    saving: float | None = None

    @property
    def total(self) -> int:
        return self.uncached + self.read + self.written + self.written_long

    @property
    def is_cut(self) -> bool:
        """Whether lamina shortened something or left it out for this request."""
        return self.cut is not None and is_compaction(self.cut)


def record_usage(
    usage: Usage,
    *,
    at: float | None = None,
    model: str = "",
    cut: CutNote | None = None,
    saving: float | None = None,
) -> RecordedUsage:
    """What was reported of one request, in the words of the lab."""
    return RecordedUsage(
        uncached=max(usage.input - usage.cached - usage.written, 0),
        read=usage.cached,
        written=usage.written - usage.written_long,
        written_long=usage.written_long,
        output=usage.output,
        at=at,
        model=model,
        tier=usage.tier,
        cut=cut,
        saving=saving,
    )


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded conversation.

    `items` are the messages (or, in OpenAI responses, input items) of the whole conversation in the format of
    `dialect`; `head` is everything else that a request of it has: tools, system text, instructions. `used`
    has what was reported, by the index of the first item that the model's answer begins with, also if the
    last answer is not among the items; `compacted` the indices at which the client itself replaced what stood
    before. `place` is the file and line.

    `call_ids` names each answer by the ids that its provider gave, so that a copy of it can be told. `copied`
    are the answers that another trace has already. A recording may begin in the middle of a conversation:
    answers before the item `recorded_from` came in with its first request, and are no calls of it. `project`,
    `began` (in seconds) and `title` are what a reader tells a session by. `user` is whom the records name,
    and `client` the program that ran the session, where that is not its source. `client_session` is the
    client's own id, as the gateway writes it: a client's log and lamina's record of a session have the same.

    Some requests have no answer of their own among the items: one that was sent again, or that lamina
    answered with a recall. `repeated` has what was reported for each, with the place that its answer would
    have. `unreported` counts answers that did not say what they took. `under_lamina`: lamina recorded it, so
    the items are the client's, and what was reported is of the requests that lamina sent.
    """

    id: str
    place: str
    dialect: str
    items: list[dict[str, Any]]
    head: dict[str, Any] = {}
    source: str = ""
    model: str = ""
    used: dict[int, RecordedUsage] = {}
    compacted: tuple[int, ...] = ()
    call_ids: dict[int, str] = {}
    copied: frozenset[int] = frozenset()
    recorded_from: int = 0
    repeated: tuple[tuple[int, RecordedUsage], ...] = ()
    unreported: int = 0
    under_lamina: bool = False
    project: str = ""
    began: float | None = None
    title: str = ""
    user: str = ""
    client: str = ""
    client_session: str = ""


class UnreadableLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line or file that was skipped. It is damaged, or `foreign`: it is in order, but holds no session."""

    place: str
    reason: str
    foreign: bool = False


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One model call of an outcome: tokens sent, of them read, and why there was a cut, "" without one."""

    tokens: int
    read: int
    cut: str = ""


class PolicyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What requests under a policy took and what they showed, of one session or of many.

    `equivalents` is the cost in input tokens at full price. `broken` are requests that did not continue the
    one before byte for byte; `over` and `invalid` requests that a provider would have refused, `failed` those
    that the policy gave up. `needed` counts what the model's answers took from earlier context, `visible` how
    much of that stood in the request sent, `recallable` how much stood there or could be had back; `recalls`
    are the recalls that this takes. `recall_equivalents` and `recall_dollars` are what they cost, which
    `equivalents` and `dollars` do not hold. `seconds` is the time that the policy took.
    """

    calls: int = 0
    cuts: int = 0
    broken: int = 0
    over: int = 0
    invalid: int = 0
    failed: int = 0
    sent: int = 0
    read: int = 0
    written: int = 0
    uncached: int = 0
    output: int = 0
    equivalents: float = 0.0
    needed: int = 0
    visible: int = 0
    recallable: int = 0
    recalls: int = 0
    recall_equivalents: float = 0.0
    recall_dollars: float = 0.0
    lowered: int = 0
    lost: int = 0
    seconds: float = 0.0

    @property
    def refused(self) -> int:
        """Calls that have no answer: over the window, invalid, or given up."""
        return self.over + self.invalid + self.failed


class ReplayOutcome(PolicyFigures, frozen=True, kw_only=True):
    """One trace under one policy, window and cache.

    `own_window` and `own_rules` say that window and rules are those of the session's own model. `dollars` is
    the cost with the output, where the model has prices. `points` are the calls one by one, where they were
    asked for.
    """

    trace: str
    source: str
    policy: str
    window: int
    rules: str
    own_window: bool = False
    own_rules: bool = False
    model: str = ""
    dollars: float | None = None
    points: tuple[Point, ...] = ()


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """What the records themselves say that a trace took: sums of `used`, and where its cache was lost.

    `under_lamina`: its requests were fitted by lamina before they were recorded. `client` is the program that
    ran the session, and `place` the file and line at which it begins. `client_session` is
    that of its trace. `by_setting` is what it would have cost with each setting of `lamina run`
    (`lamina.replay.savings`), where that is known.
    """

    trace: str
    source: str
    place: str = ""
    client: str = ""
    user: str = ""
    model: str = ""
    calls: int = 0
    read: int = 0
    written: int = 0
    uncached: int = 0
    output: int = 0
    equivalents: float = 0.0
    dollars: float | None = None
    lost: tuple[LostCache, ...] = ()
    by_setting: tuple[WorkingCost, ...] = ()
    compactions: int = 0
    under_lamina: bool = False
    project: str = ""
    began: float | None = None
    title: str = ""
    client_session: str = ""

    @property
    def sent(self) -> int:
        return self.read + self.written + self.uncached


class ReplayAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one replay found. `account_text` writes it for a terminal, `account_json` as JSON."""

    outcomes: tuple[ReplayOutcome, ...] = ()
    reported: tuple[Reported, ...] = ()
    damaged: tuple[UnreadableLine, ...] = ()
    foreign: tuple[UnreadableLine, ...] = ()
    as_of: str = ""


def make_id(*words: str) -> str:
    """An id that can stand in an address. That of a session is made of its source, its place and its name."""
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()[:12]


def day_of(moment: float | None) -> str:
    """The day of a moment in UTC, such as 2026-11-01; "" if it is not known."""
    if moment is None:
        return ""
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d}"
