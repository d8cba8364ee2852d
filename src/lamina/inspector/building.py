"""Every call of a session, built again under some settings.

A build is pure, so a request of a recorded session can be made again at any time from its log and the ledger
before it. This file walks through a session once, and keeps the ledger before each call and what changed. The
whole envelope of one call is built again when somebody looks at it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import msgspec

from lamina.caches import CacheRules, Tally, all_rules, cost, rates, rules_for
from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.layout import Filter, Layout
from lamina.core.memo import Memo
from lamina.core.recall import list_refs
from lamina.core.tokens import Counter
from lamina.core.values import Budget, Entry, Form, Head, Layer, Ledger, Ref, Segment
from lamina.dialects import DIALECTS
from lamina.dialects.memos import ParseMemo
from lamina.dialects.translate import choose_options
from lamina.errors import BadInput, LaminaError
from lamina.inspector.sessions import RecordedSession
from lamina.models.counters import counter_for
from lamina.models.counters.openai import o200k
from lamina.models.facts import model as facts_of
from lamina.replay.message_sizes import MessageSizes
from lamina.replay.model_calls import CHAT, ModelCall
from lamina.replay.needed_names import NeededTerms
from lamina.replay.outcomes import input_equivalents, simulate_cache
from lamina.replay.policies.port import PolicyRequest, Setting
from lamina.replay.values import RecordedUsage
from lamina.replay.walk import WalkStep

AS_RECORDED = "recorded"
LAMINA = "lamina"
POLICIES = {
    AS_RECORDED: "as it was sent",
    LAMINA: "as lamina would have sent it",
}

_RESERVED_PART = 8
"""One part in so many of the window is kept for the answer, as in the lab."""

_LEFT_OUT = "left out in the inspector"
"""The key of segments that somebody left out to see what happens."""

_KEPT_SESSIONS = 8
"""Sessions, under some settings, that are kept in memory."""

_KEPT_ENVELOPES = 6
"""Single requests that are kept in memory."""

MOST_WORK = 150_000
"""Messages that are built for one session, over all of its calls. A longer session is built at some calls."""


class BuildSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Under what the session is built. `window` 0 is that of its model, `rules` "" those of its model.

    `left_out` and `pinned` name segments by their refs.
    """

    policy: str = AS_RECORDED
    window: int = 0
    trigger: float | None = None
    target: float | None = None
    keep_last: int | None = None
    rules: str = ""
    left_out: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()


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


class SessionBuilder:
    """Builds sessions and single requests, and keeps the last few of both. One lock guards them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sessions: OrderedDict[Hashable, BuiltSession] = OrderedDict()
        self._envelopes: OrderedDict[Hashable, Envelope] = OrderedDict()

    def build(self, session: RecordedSession, settings: BuildSettings) -> BuiltSession:
        key = (session.summary.id, session.summary.messages, settings)
        with self._lock:
            built = self._sessions.get(key)
            if built is None:
                built = build_session(session, settings)
            _keep_last(self._sessions, key, built, _KEPT_SESSIONS)
        return built

    def build_call(self, built: BuiltSession, number: int, *, in_full: bool = False) -> Envelope:
        """One request; with `in_full`, with nothing lowered."""
        summary = built.session.summary
        key = (summary.id, summary.messages, built.settings, number, in_full)
        with self._lock:
            envelope = self._envelopes.get(key)
            if envelope is None:
                envelope = build_in_full(built, number) if in_full else build_call(built, number)
            _keep_last(self._envelopes, key, envelope, _KEPT_ENVELOPES)
        return envelope


def _keep_last(values: OrderedDict[Hashable, Any], key: Hashable, value: object, most: int) -> None:
    values[key] = value
    values.move_to_end(key)
    while len(values) > most:
        values.popitem(last=False)


def build_session(
    session: RecordedSession, settings: BuildSettings, *, numbers: Sequence[int] | None = None
) -> BuiltSession:
    """Every call of the session under these settings; with `numbers`, only these calls.

    A session of thousands of calls is measured as a whole if it is shown as it was recorded, and built at
    some of its calls otherwise: building all of them takes a time that grows with the square of its length.
    """
    run = _Run(session, settings)
    conversation = session.conversation
    work = sum(call.end for call in conversation.calls)
    if numbers is None and work > MOST_WORK:
        measured_calls = measure_calls(run)
        if measured_calls is not None:
            return _finish(run, measured_calls)
        numbers = choose_calls(len(conversation.calls), work)
    if numbers is None:
        numbers = range(len(conversation.calls))
    for number in numbers:
        run.send(number, conversation.calls[number])
    return _finish(run, _price_calls(run))


def choose_calls(count: int, work: int) -> list[int]:
    """The calls of a long session that are built: evenly spread, with the first and the last one."""
    most = max(count * MOST_WORK // work, 2)
    step = (count - 1) / (most - 1)
    return sorted({round(at * step) for at in range(most)})


def _finish(run: _Run, calls: Sequence[BuiltCall]) -> BuiltSession:
    return BuiltSession(
        session=run.session,
        settings=run.settings,
        rules=run.rules,
        budget=run.budget,
        counter=run.counter,
        head=run.head,
        calls=tuple(calls),
        history={ref: tuple(changes) for ref, changes in run.history.items()},
        arrivals=run.arrivals,
        unrecorded=run.unrecorded,
        skipped=len(run.session.conversation.calls) - len(calls),
    )


def build_call(built: BuiltSession, number: int) -> Envelope:
    """The envelope of one call, built again from the ledger before it."""
    call = find_call(built, number)
    return _build_log(
        read_log(built, call),
        head=built.head,
        budget=built.budget,
        ledger=call.ledger,
        counter=built.counter,
        rules=built.rules,
        idle=call.idle,
    )


def build_in_full(built: BuiltSession, number: int) -> Envelope:
    """The same call with nothing lowered: it says how large everything was that is left out."""
    call = find_call(built, number)
    return _build_log(
        read_log(built, call),
        head=built.head,
        budget=None,
        ledger=Ledger(),
        counter=built.counter,
        rules=built.rules,
        idle=0,
    )


def find_call(built: BuiltSession, number: int) -> BuiltCall:
    """The call of this number. Of a long session, only some calls may be built."""
    at = bisect_left(built.calls, number, key=lambda call: call.number)
    if at < len(built.calls) and built.calls[at].number == number:
        return built.calls[at]
    last = len(built.session.conversation.calls) - 1
    hint = f"the session has requests 0 to {last}"
    if 0 <= number <= last:
        hint = "the session is long, so that only some of its requests were built: choose one of these"
    raise BadInput(f"there is no request {number}", place="request", hint=hint)


def read_log(built: BuiltSession, call: BuiltCall) -> tuple[Segment, ...]:
    """The log before one call."""
    request = built.session.conversation.request(call.call)
    log = DIALECTS[CHAT].parse(request).log
    return _choose_segments(log, built.settings)


def render_request(built: BuiltSession, envelope: Envelope) -> dict[str, Any]:
    """The request of an envelope, as OpenAI chat."""
    request: dict[str, Any] = {}
    if built.session.conversation.trace.model:
        request["model"] = built.session.conversation.trace.model
    return {**request, **DIALECTS[CHAT].render(envelope)}


def make_budget(settings: BuildSettings, window_of_model: int, *, unrecorded: int = 0) -> Budget | None:
    """The budget of these settings; None if everything is sent as it was recorded.

    What the records do not have takes room, too, and so it is part of the reserve.
    """
    if settings.policy == AS_RECORDED:
        return None
    if settings.policy != LAMINA:
        raise BadInput(
            f"there is no policy {settings.policy!r}",
            place="policy",
            hint=f"use one of {', '.join(POLICIES)}",
        )
    window = settings.window or window_of_model
    budget = Budget(window=window, reserve=window // _RESERVED_PART + unrecorded, target=settings.target)
    if settings.trigger is not None:
        budget = msgspec.structs.replace(budget, trigger=settings.trigger)
    if settings.keep_last is not None:
        budget = msgspec.structs.replace(budget, keep_last=settings.keep_last)
    return Budget(**{field: getattr(budget, field) for field in Budget.__struct_fields__})


def _find_rules(name: str, model: str, dialect: str) -> CacheRules:
    if not name:
        return rules_for(model, dialect=dialect)
    if name not in all_rules():
        names = ", ".join(sorted(all_rules()))
        raise BadInput(f"there are no rules {name!r}", place="rules", hint=f"use one of {names}")
    return all_rules()[name]


class _Run:
    """One walk through a session. It keeps the ledger, the memos, and what was sent last."""

    def __init__(self, session: RecordedSession, settings: BuildSettings) -> None:
        trace = session.conversation.trace
        self.session = session
        self.settings = settings
        self.counter = counter_for(trace.model) if trace.model else o200k()
        self.rules = _find_rules(settings.rules, trace.model, trace.dialect)
        first_request = session.conversation.request(session.conversation.calls[0])
        self.head = DIALECTS[CHAT].parse(first_request).head
        self.sizes = MessageSizes(self.counter, session.conversation.tools)
        self.unrecorded = self._estimate_unrecorded()
        self.budget = make_budget(settings, session.window, unrecorded=self.unrecorded)
        self.ledger = Ledger()
        self.memo = Memo()
        self.parse_memo = ParseMemo()
        self.calls: list[BuiltCall] = []
        self.steps: list[WalkStep] = []
        self.history: dict[Ref, list[FormChange]] = {}
        self.arrivals: dict[Ref, int] = {}
        self.previous_messages: list[dict[str, Any]] = []
        self.previous_time: float | None = None

    @property
    def is_plain(self) -> bool:
        """Whether everything is sent as it was recorded."""
        return self.budget is None and not self.settings.left_out and not self.settings.pinned

    @cached_property
    def needed_terms(self) -> NeededTerms:
        return NeededTerms(self.session.conversation, self.sizes)

    @cached_property
    def usages(self) -> list[RecordedUsage | None]:
        return usages_by_call(self.session)

    def build_log(self, log: tuple[Segment, ...], idle: float, memo: Memo | None = None) -> Envelope:
        return _build_log(
            log,
            head=self.head,
            budget=self.budget,
            ledger=self.ledger,
            counter=self.counter,
            rules=self.rules,
            idle=idle,
            memo=memo,
        )

    def _estimate_unrecorded(self) -> int:
        """Tokens of system text and tools that the records lack: the first usage, less what is there."""
        if self.session.has_head:
            return 0
        usage = self.usages[0]
        if usage is None:
            return 0
        first_call = self.session.conversation.calls[0]
        recorded = self.sizes.count_tokens(self.session.conversation.messages[: first_call.end])
        return max(usage.total - recorded, 0)

    def send(self, number: int, call: ModelCall) -> None:
        idle = self._idle_before(call)
        ledger = self.ledger
        request = self.session.conversation.request(call)
        try:
            log = DIALECTS[CHAT].parse(request, memo=self.parse_memo).log
            envelope = self.build_log(_choose_segments(log, self.settings), idle, self.memo)
        except LaminaError as error:
            self._keep_failure(number, call, idle, ledger, str(error))
            return
        self.ledger = envelope.ledger
        messages = request["messages"]
        if not self.is_plain or envelope.ledger.repairs:
            messages = DIALECTS[CHAT].render(envelope)["messages"]
        shared = _count_shared(self.previous_messages, messages)
        continues = shared >= len(self.previous_messages)
        self.previous_messages = messages
        self._note_forms(number, envelope)
        cut = envelope.cut
        has_cut = cut is not None and cut.lowered > 0
        sent_entries = [entry for entry in envelope.entries if entry.form is not Form.OMITTED]
        built = BuiltCall(
            number=number,
            call=call,
            at=call.at,
            idle=idle,
            ledger=ledger,
            tokens=envelope.account.total,
            layers=_sum_layers(sent_entries),
            entries=len(sent_entries),
            left_out=len(envelope.entries) - len(sent_entries),
            room=envelope.room,
            cut=cut.reason if cut is not None and has_cut else "",
            cut_lowered=cut.lowered if cut is not None and has_cut else 0,
            turn=_turn_of(envelope.entries, len(envelope.entries)),
            continues=continues,
        )
        if self.budget is not None:
            built = self._count_needed(built, messages)
        self.calls.append(built)
        sent = PolicyRequest(messages=messages, cut=built.cut, layers=built.layers)
        self.steps.append(WalkStep(call=call, sent=sent, tokens=built.tokens, same=shared))

    def _count_needed(self, built: BuiltCall, messages: list[dict[str, Any]]) -> BuiltCall:
        """The call with how many names its answer needed, and how many of these the request had."""
        terms = self.needed_terms.by_call[built.number]
        text = "\n".join(self.sizes.measure(message).words for message in messages)
        visible = sum(term in text for term in terms)
        return msgspec.structs.replace(built, needed=len(terms), visible=visible)

    def _idle_before(self, call: ModelCall) -> float:
        idle = _idle_between(self.previous_time, call.at)
        if call.at is not None:
            self.previous_time = call.at
        return idle

    def _keep_failure(self, number: int, call: ModelCall, idle: float, ledger: Ledger, error: str) -> None:
        self.calls.append(
            BuiltCall(
                number=number,
                call=call,
                at=call.at,
                idle=idle,
                ledger=ledger,
                tokens=0,
                layers={},
                entries=0,
                left_out=0,
                room=None,
                error=error,
            )
        )
        self.steps.append(WalkStep(call=call, sent=None, failed=error))

    def _note_forms(self, number: int, envelope: Envelope) -> None:
        """Keeps the form of each segment when it arrives, and whenever it changes."""
        for entry in envelope.entries:
            changes = self.history.setdefault(entry.ref, [])
            self.arrivals.setdefault(entry.ref, number)
            if not changes or changes[-1].form != entry.form.name:
                changes.append(FormChange(number, entry.form.name, entry.why))


def _turn_of(entries: Sequence[Entry], end: int) -> int:
    """The turn that a request of so many entries belongs to, counted from 1."""
    if not end:
        return 1
    return max(entries[end - 1].turn, 0) + 1


def _idle_between(before: float | None, after: float | None) -> float:
    """Seconds from one call to the next; 0 where a time is not recorded."""
    if before is None or after is None:
        return 0.0
    return max(after - before, 0.0)


def _build_log(
    log: tuple[Segment, ...],
    *,
    head: Head,
    budget: Budget | None,
    ledger: Ledger,
    counter: Counter,
    rules: CacheRules,
    idle: float,
    memo: Memo | None = None,
) -> Envelope:
    layout = Layout(context="logged", exclude=Filter(keys=frozenset((_LEFT_OUT,))))
    model = str(head.parameters.get("model", ""))
    options = choose_options(DIALECTS[CHAT], head, layout=layout, rates=rates(rules, model))
    return build(
        log,
        head=head,
        budget=budget,
        ledger=ledger,
        counter=counter,
        options=options,
        idle=idle,
        memo=memo,
    )


def _choose_segments(log: tuple[Segment, ...], settings: BuildSettings) -> tuple[Segment, ...]:
    """The log with the segments pinned, and marked to be left out, that the settings name by their refs."""
    if not settings.pinned and not settings.left_out:
        return log
    chosen: list[Segment] = []
    for ref, segment in list_refs(log):
        if ref in settings.left_out:
            chosen.append(msgspec.structs.replace(segment, key=_LEFT_OUT))
        elif ref in settings.pinned:
            chosen.append(msgspec.structs.replace(segment, pinned=True))
        else:
            chosen.append(segment)
    return tuple(chosen)


def _sum_layers(entries: Sequence[Entry]) -> dict[str, int]:
    """Tokens by layer, in the order of the layers."""
    sums = {layer.value: 0 for layer in Layer}
    for entry in entries:
        sums[entry.layer.value] += entry.tokens
    return {name: tokens for name, tokens in sums.items() if tokens}


def _count_shared(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> int:
    for at, (one, other) in enumerate(zip(before, after, strict=False)):
        if one is not other and one != other:
            return at
    return min(len(before), len(after))


def _price_calls(run: _Run) -> list[BuiltCall]:
    """The calls with what a cache read and wrote: as recorded if it was, else by the rules."""
    trace = run.session.conversation.trace
    setting = Setting(
        window=0,
        room=0,
        trigger=0,
        target=0,
        message_sizes=run.sizes,
        rules=run.rules,
        model=trace.model,
    )
    tallies = iter(simulate_cache(run.steps, setting, run.rules))
    priced: list[BuiltCall] = []
    for call in run.calls:
        if call.error:
            priced.append(call)
            continue
        tally = _add_unrecorded(next(tallies), run.unrecorded)
        priced.append(price_call(run, call, tally))
    return priced


def _add_unrecorded(tally: Tally, unrecorded: int) -> Tally:
    """The tally with the head that the records lack: it is read whenever anything is."""
    if not unrecorded:
        return tally
    if tally.read:
        return msgspec.structs.replace(tally, read=tally.read + unrecorded)
    if tally.written:
        return msgspec.structs.replace(tally, written=tally.written + unrecorded)
    return msgspec.structs.replace(tally, uncached=tally.uncached + unrecorded)


def price_call(run: _Run, call: BuiltCall, tally: Tally) -> BuiltCall:
    """One call with its tally, or with the reported one where the session is shown as it was recorded."""
    model = run.session.conversation.trace.model
    usage = run.usages[call.number]
    shows_records = run.is_plain and not run.settings.rules
    if usage is not None and shows_records:
        tally = Tally(
            read=usage.read,
            written=usage.written,
            written_long=usage.written_long,
            uncached=usage.uncached,
            why=tally.why,
        )
    return msgspec.structs.replace(
        call,
        read=tally.read,
        written=tally.written + tally.written_long,
        uncached=tally.uncached,
        output=call.call.output,
        dollars=_price_tally(tally, model, run.rules, call.call.output),
        equivalents=input_equivalents(tally, run.rules, run.rules.read_share(model)),
        simulated=usage is None or not shows_records,
        reported=None if usage is None else usage.total,
        miss="" if call.continues else tally.why,
    )


# Long sessions.


_CHECKED_CALLS = 5
"""Calls of a long session that are built, to see whether measuring it gives the same."""


def measure_calls(run: _Run) -> list[BuiltCall] | None:
    """Every call of a session that is sent as it was recorded, measured in one pass over its entries.

    Nothing is lowered there, so a request is the beginning of the last one, and its size is a sum. A few
    calls are built as well. None is returned if one of them differs, or if something would be lowered.
    """
    if not run.is_plain:
        return None
    conversation = run.session.conversation
    parse_memo = ParseMemo()
    try:
        log = DIALECTS[CHAT].parse(conversation.request(conversation.calls[-1]), memo=parse_memo).log
        envelope = run.build_log(log, 0)
    except LaminaError:
        return None
    if len(envelope.entries) != len(log):
        return None  # something was repaired: sizes are no sums then
    entry_counts = [len(segments) for _, segments in parse_memo.known]
    ends = list(accumulate(entry_counts, initial=0))  # [1, 2, 1] entries end at [0, 1, 3, 4]
    sums = _EntrySums(envelope)
    calls: list[BuiltCall] = []
    previous_time: float | None = None
    previous_tokens = 0
    for number, call in enumerate(conversation.calls):
        end = ends[call.end]
        idle = _idle_between(previous_time, call.at)
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
            turn=_turn_of(envelope.entries, end),
        )
        tally = _guess_tally(run, built.tokens, previous_tokens, idle)
        calls.append(price_call(run, built, _add_unrecorded(tally, run.unrecorded)))
        previous_tokens = built.tokens
        if call.at is not None:
            previous_time = call.at
    if not _are_as_built(run, calls):
        return None
    _note_arrivals(run, envelope, [ends[call.end] for call in conversation.calls])
    return calls


def _note_arrivals(run: _Run, envelope: Envelope, ends: Sequence[int]) -> None:
    """Keeps for each entry the first call whose request it is in. `ends` says how many entries each has."""
    start = 0
    for number, end in enumerate(ends):
        for entry in envelope.entries[start:end]:
            run.arrivals[entry.ref] = number
            run.history[entry.ref] = [FormChange(number, entry.form.name, entry.why)]
        start = end


class _EntrySums:
    """Sums of tokens over the beginnings of a request, as a whole and by layer."""

    def __init__(self, envelope: Envelope) -> None:
        entries = envelope.entries
        self._entries = entries
        self._all = list(accumulate((entry.tokens for entry in entries), initial=0))
        self._fixed = envelope.account.total - self._all[-1]
        system = (entry.tokens if entry.layer is Layer.SYSTEM else 0 for entry in entries)
        self._system = list(accumulate(system, initial=0))
        prompts = (entry.tokens if entry.segment.kind == "user" else 0 for entry in entries)
        self._prompts = list(accumulate(prompts, initial=0))
        self._turn_starts = self._find_turn_starts()

    def tokens_before(self, end: int) -> int:
        """The size of the request that ends before this entry, with its head."""
        return self._fixed + self._all[end]

    def layers_before(self, end: int) -> dict[str, int]:
        """Tokens by layer of the same request: what is older than its last turn is history."""
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
        """Where the turn of each entry begins."""
        starts: list[int] = []
        for at, entry in enumerate(self._entries):
            begins = at == 0 or entry.turn != self._entries[at - 1].turn
            starts.append(at if begins else starts[-1])
        return starts


def _guess_tally(run: _Run, tokens: int, previous_tokens: int, idle: float) -> Tally:
    """What a cache would read of a request that continues the last one: all of it, while it is remembered."""
    rules = run.rules
    model = run.session.conversation.trace.model
    lifetime = rules.lifetimes.get(rules.lifetime, 0.0)
    is_remembered = not lifetime or idle <= lifetime
    read = 0
    if is_remembered and previous_tokens >= rules.least(model):
        read = min(previous_tokens, tokens)
    if rules.write > 1:
        return Tally(read=read, written=tokens - read)
    return Tally(read=read, uncached=tokens - read)


def _are_as_built(run: _Run, calls: Sequence[BuiltCall]) -> bool:
    """Whether a few calls, built one by one, have the measured sizes."""
    step = max(len(calls) // _CHECKED_CALLS, 1)
    for call in calls[::step]:
        request = run.session.conversation.request(call.call)
        try:
            envelope = run.build_log(DIALECTS[CHAT].parse(request).log, 0)
        except LaminaError:
            return False
        if envelope.account.total != call.tokens:
            return False
        if _sum_layers(envelope.entries) != call.layers:
            return False
    return True


def usages_by_call(session: RecordedSession) -> list[RecordedUsage | None]:
    """The reported usage of each call; None where the records have none."""
    usages = [usage for _, usage in sorted(session.conversation.trace.used.items())]
    if len(usages) != len(session.conversation.calls):
        return [None] * len(session.conversation.calls)
    return list(usages)


def _price_tally(tally: Tally, model: str, rules: CacheRules, output: int) -> float | None:
    try:
        return cost(tally, facts_of(model), rules=rules, output=output).total
    except LaminaError:
        return None
