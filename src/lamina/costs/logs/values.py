"""What readers of logs find: traces, each a recorded conversation in its own dialect, and damage."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

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


def make_id(*words: str) -> str:
    """An id that can stand in an address. That of a session is made of its source, its place and its name."""
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()[:12]
