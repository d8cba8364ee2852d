"""Builds the calls of a session: as they were sent if lamina recorded them, or again under some settings.

A build is pure, so a request of a recorded session can be made again at any time from its log and the ledger
before it. One walk through the session (`walk`) keeps the ledger before each call, and what changed at it.
The whole envelope of one call is built again when somebody looks at it. A session of thousands of calls in
which nothing is lowered is measured in one pass over its entries. Requests that lamina recorded itself
are shown from that record (`sent_requests`).
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from lamina.caches import Tally
from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.values import Layer, Ledger, Segment
from lamina.dialects import DIALECTS
from lamina.dialects.memos import ParseMemo
from lamina.errors import BadInput, LaminaError
from lamina.inspector.built_values import BuildSettings, BuiltCall, BuiltRequest, BuiltSession, FormChange
from lamina.inspector.last_used import LastUsed
from lamina.inspector.recorded_sessions import RecordedSession
from lamina.inspector.sent_conversations import SentConversation
from lamina.inspector.sent_history import SentHistory
from lamina.inspector.sent_requests import SentRequests
from lamina.inspector.sent_sessions import list_sent_calls
from lamina.inspector.walk import (
    SessionWalk,
    add_unrecorded,
    build_log,
    idle_between,
    price_call,
    price_calls,
    turn_of,
)
from lamina.replay.model_calls import CHAT
from lamina.replay.policies.lamina_policies import sum_layers

_MOST_SESSIONS = 8
"""Sessions, under some settings, that stay in memory."""

_MOST_REQUESTS = 6
"""Single requests that stay in memory."""

_MOST_HISTORIES = 2
"""Recorded conversations whose segments are remembered by request."""

KEEP_ALL = 'with keep = "all" in its settings, the gateway stores requests as they were sent'
"""What to do if a store does not have the texts."""

MOST_WORK = 150_000
"""Messages that are built for one session, over all of its calls. A longer session is built at some calls."""

_CHECKED_CALLS = 5
"""Calls of a long session that are built, to see whether measuring it gives the same."""


class SessionBuilder:
    """Builds sessions and single requests, and keeps the last few of both.

    One lock guards them. It is held while a session is built: a page asks for several views of one session
    at once, and they wait for one build instead of making it several times.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sessions: LastUsed[Hashable, BuiltSession] = LastUsed(_MOST_SESSIONS)
        self._requests: LastUsed[Hashable, BuiltRequest] = LastUsed(_MOST_REQUESTS)
        self._histories: LastUsed[Hashable, SentHistory] = LastUsed(_MOST_HISTORIES)

    def build(self, session: RecordedSession, settings: BuildSettings) -> BuiltSession:
        key = (session.summary.id, session.version, settings)
        with self._lock:
            return self._sessions.get_or_make(key, partial(_build_or_list, session, settings))

    def build_call(self, built: BuiltSession, number: int) -> BuiltRequest:
        key = (*_name_session(built), number)
        with self._lock:
            return self._requests.get_or_make(key, partial(build_call, built, number))

    def build_with_body(self, built: BuiltSession, number: int) -> BuiltRequest:
        """One request. Raises BadInput if its body is not kept."""
        built_request = self.build_call(built, number)
        if not built_request.request:
            raise BadInput(f"the body of request {number} is not kept", place="request", hint=KEEP_ALL)
        return built_request

    def build_in_full(self, built: BuiltSession, number: int) -> BuiltRequest:
        """One request with nothing lowered."""
        key = (*_name_session(built), number, "in full")
        with self._lock:
            return self._requests.get_or_make(key, partial(build_in_full, built, number))

    def find_history(self, conversation: SentConversation) -> SentHistory:
        """The history of the segments of a recorded conversation."""
        key = (conversation.name, conversation.version)
        with self._lock:
            return self._histories.get_or_make(key, partial(SentHistory, conversation))


def _name_session(built: BuiltSession) -> tuple[Hashable, ...]:
    return (built.session.summary.id, built.session.version, built.settings)


def _build_or_list(session: RecordedSession, settings: BuildSettings) -> BuiltSession:
    """The session as lamina recorded it, or built under the settings if these ask for anything else."""
    if session.sent is None or settings.changes_requests:
        return build_session(session, settings)
    return list_sent_calls(session, session.sent, settings)


def build_session(
    session: RecordedSession, settings: BuildSettings, *, numbers: Sequence[int] | None = None
) -> BuiltSession:
    """Every call of the session under these settings; with `numbers`, only these calls.

    A session of thousands of calls is measured as a whole if it is shown as it was recorded, and built at
    some of its calls otherwise: building all of them takes a time that grows with the square of its length.
    """
    if not session.conversation.calls:
        raise BadInput(
            "the texts of this session are not kept, so it cannot be built under other settings",
            place="policy",
            hint=KEEP_ALL,
        )
    walk = SessionWalk(session, settings)
    calls = session.conversation.calls
    work = sum(call.end for call in calls)
    if numbers is None and work > MOST_WORK:
        measured_calls = measure_calls(walk)
        if measured_calls is not None:
            return _finish(walk, measured_calls)
        numbers = choose_calls(len(calls), work)
    if numbers is None:
        numbers = range(len(calls))
    for number in numbers:
        walk.send(number, calls[number])
    return _finish(walk, price_calls(walk))


def choose_calls(count: int, work: int) -> list[int]:
    """The calls of a long session that are built: evenly spread, with the first and the last one."""
    most = max(count * MOST_WORK // work, 2)
    step = (count - 1) / (most - 1)
    return sorted({round(at * step) for at in range(most)})


def _finish(walk: SessionWalk, calls: Sequence[BuiltCall]) -> BuiltSession:
    return BuiltSession(
        session=walk.session,
        settings=walk.settings,
        rules=walk.rules,
        budget=walk.budget,
        counter=walk.counter,
        head=walk.head,
        calls=tuple(calls),
        history={ref: tuple(changes) for ref, changes in walk.history.items()},
        arrivals=walk.arrivals,
        unrecorded=walk.unrecorded,
        skipped=len(walk.session.conversation.calls) - len(calls),
    )


def build_call(built: BuiltSession, number: int) -> BuiltRequest:
    """One call: as it was sent, or built again from the ledger before it."""
    call = find_call(built, number)
    if built.sent is not None:
        build = SentRequests(built.sent).read(number)
        return BuiltRequest(
            envelope=build.envelope or _EMPTY,
            has_reasons=build.envelope is not None,
            request=build.request,
            note=build.note,
        )
    envelope = build_log(
        read_log(built, call),
        head=built.head,
        budget=built.budget,
        ledger=call.ledger,
        counter=built.counter,
        rules=built.rules,
        idle=call.idle,
    )
    return BuiltRequest(envelope=envelope, request=_render_chat(built, envelope))


def build_in_full(built: BuiltSession, number: int) -> BuiltRequest:
    """The same call with nothing lowered: it says how large everything was that is left out."""
    envelope = build_log(
        read_log(built, find_call(built, number)),
        head=built.head,
        budget=None,
        ledger=Ledger(),
        counter=built.counter,
        rules=built.rules,
        idle=0,
    )
    return BuiltRequest(envelope=envelope)


_EMPTY = build(())
"""Stands for a request whose body is not kept."""


def find_call(built: BuiltSession, number: int) -> BuiltCall:
    """The call of this number. Of a long session, only some calls may be built.

    Raises BadInput for a number that the session does not have, and for a call that was not built.
    """
    at = bisect_left(built.calls, number, key=lambda call: call.number)
    if at < len(built.calls) and built.calls[at].number == number:
        return built.calls[at]
    last = len(built.calls) + built.skipped - 1
    hint = f"the session has requests 0 to {last}"
    if 0 <= number <= last:
        hint = "the session is long, so that only some of its requests were built: choose one of these"
    raise BadInput(f"there is no request {number}", place="request", hint=hint)


def read_log(built: BuiltSession, call: BuiltCall) -> tuple[Segment, ...]:
    request = built.session.conversation.request(call.call)
    return DIALECTS[CHAT].wire.parse(request).log


def _render_chat(built: BuiltSession, envelope: Envelope) -> dict[str, Any]:
    """The request of an envelope, as OpenAI chat."""
    request: dict[str, Any] = {}
    if built.session.conversation.trace.model:
        request["model"] = built.session.conversation.trace.model
    return {**request, **DIALECTS[CHAT].wire.render(envelope)}


def measure_calls(walk: SessionWalk) -> list[BuiltCall] | None:
    """Every call of a session that is sent as it was recorded, measured in one pass over its entries.

    Nothing is lowered there, so a request is the beginning of the last one, and its size is a sum. A few
    calls are built as well. None is returned if one of them differs, or if something would be lowered.
    """
    if walk.settings.changes_requests:
        return None
    conversation = walk.session.conversation
    parse_memo = ParseMemo()
    try:
        log = DIALECTS[CHAT].wire.parse(conversation.request(conversation.calls[-1]), memo=parse_memo).log
        envelope = walk.build_log(log, 0)
    except LaminaError:
        return None
    if len(envelope.entries) != len(log):
        return None  # something was repaired: sizes are no sums then
    entry_counts = list(map(len, parse_memo.past.groups))
    ends = list(accumulate(entry_counts, initial=0))  # [1, 2, 1] entries end at [0, 1, 3, 4]
    sums = _EntrySums(envelope)
    calls: list[BuiltCall] = []
    previous_time: float | None = None
    previous_tokens = 0
    for number, call in enumerate(conversation.calls):
        end = ends[call.end]
        idle = idle_between(previous_time, call.at)
        built = BuiltCall(
            number=number,
            call=call,
            at=call.at,
            idle=idle,
            ledger=Ledger(),
            tokens=sums.tokens_before(end),
            layers=sums.layers_before(end),
            entries=end,
            left_out=0,
            room=None,
            turn=turn_of(envelope.entries, end),
        )
        tally = _guess_tally(walk, built.tokens, previous_tokens, idle)
        calls.append(price_call(walk, built, add_unrecorded(tally, walk.unrecorded)))
        previous_tokens = built.tokens
        if call.at is not None:
            previous_time = call.at
    if not _are_as_built(walk, calls):
        return None
    _note_arrivals(walk, envelope, [ends[call.end] for call in conversation.calls])
    return calls


def _note_arrivals(walk: SessionWalk, envelope: Envelope, ends: Sequence[int]) -> None:
    """Keep for each entry the first call whose request it is in. `ends` says how many entries each has."""
    start = 0
    for number, end in enumerate(ends):
        for entry in envelope.entries[start:end]:
            walk.arrivals[entry.ref] = number
            walk.history[entry.ref] = [FormChange(number, entry.form.name, entry.why)]
        start = end


class _EntrySums:
    """Sums of tokens over the beginnings of a request, as a whole and by layer."""

    def __init__(self, envelope: Envelope) -> None:
        entries = envelope.entries
        self._entries = entries
        self._all = list(accumulate((entry.tokens for entry in entries), initial=0))
        self._fixed = envelope.account.total - self._all[-1]
        system = (entry.tokens * (entry.layer is Layer.SYSTEM) for entry in entries)
        self._system = list(accumulate(system, initial=0))
        prompts = (entry.tokens * (entry.segment.kind == "user") for entry in entries)
        self._prompts = list(accumulate(prompts, initial=0))
        self._turn_starts = self._find_turn_starts()

    def tokens_before(self, end: int) -> int:
        """The size of the request that ends before this entry, with its head."""
        return self._fixed + self._all[end]

    def layers_before(self, end: int) -> dict[str, int]:
        """Tokens by layer of the same request: what is older than its last turn is history.

        `end` is the number of entries that the request had.
        """
        if not end:
            return {}
        start = self._turn_starts[end - 1]
        prompt = self._prompts[end] - self._prompts[start]
        turn_system = self._system[end] - self._system[start]
        in_turn = self._all[end] - self._all[start] - turn_system
        layers = {
            Layer.SYSTEM.value: self._system[end],
            Layer.HISTORY.value: self._all[start] - self._system[start],
            Layer.PROMPT.value: prompt,
            Layer.STEPS.value: in_turn - prompt,
        }
        return {name: tokens for name, tokens in layers.items() if tokens}

    def _find_turn_starts(self) -> list[int]:
        """Where the turn of each entry begins: at the first entry with the same turn."""
        starts: list[int] = []
        for at, entry in enumerate(self._entries):
            start = at
            if at and entry.turn == self._entries[at - 1].turn:
                start = starts[-1]
            starts.append(start)
        return starts


def _guess_tally(walk: SessionWalk, tokens: int, previous_tokens: int, idle: float) -> Tally:
    """What a cache would read of a request that continues the last one: all of it, while it is remembered.

    A request that is shorter than the least that the cache stores is never read.
    """
    rules = walk.rules
    model = walk.session.conversation.trace.model
    read = 0
    if idle <= rules.seconds("") and previous_tokens >= rules.least(model):
        read = min(previous_tokens, tokens)
    if rules.write > 1:
        return Tally(read=read, written=tokens - read)
    return Tally(read=read, uncached=tokens - read)


def _are_as_built(walk: SessionWalk, calls: Sequence[BuiltCall]) -> bool:
    """Whether a few calls, built one by one, have the measured sizes.

    If one has not, the measured sizes are not used at all.
    """
    step = max(len(calls) // _CHECKED_CALLS, 1)
    for call in calls[::step]:
        request = walk.session.conversation.request(call.call)
        try:
            envelope = walk.build_log(DIALECTS[CHAT].wire.parse(request).log, 0)
        except LaminaError:
            return False
        if envelope.account.total != call.tokens:
            return False
        if sum_layers(envelope.entries) != call.layers:
            return False
    return True
