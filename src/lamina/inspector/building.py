"""Every call of a session, built again under some settings.

A build is pure, so a request of a recorded session can be made again at any time from its log and the ledger
before it. This file walks through a session once, and keeps the ledger before each call and what changed. The
whole envelope of one call is built again when somebody looks at it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lamina.caches import CacheRules, Tally, all_rules, cost, rates, rules_for
from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.layout import Filter, Layout
from lamina.core.memo import Memo
from lamina.core.recall import list_refs
from lamina.core.tokens import Counter
from lamina.core.values import Budget, Entry, Form, Layer, Ledger, Ref, Segment
from lamina.dialects import DIALECTS
from lamina.dialects.memos import ParseMemo
from lamina.dialects.translate import choose_options
from lamina.errors import BadInput, LaminaError
from lamina.inspector.sessions import Session
from lamina.models.counters import counter_for
from lamina.models.counters.openai import o200k
from lamina.models.facts import model as facts_of
from lamina.replay.message_sizes import MessageSizes
from lamina.replay.model_calls import CHAT, ModelCall
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

_KEPT_BUILDS = 8
"""Sessions, under some settings, that are kept in memory."""


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
    since the records do not have them.
    """

    number: int
    call: ModelCall
    at: float | None
    idle: float
    ledger: Ledger
    tokens: int
    layers: Mapping[str, int]
    kinds: Mapping[str, int]
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
    miss: str = ""


class BuiltSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session under some settings, call by call, and the form of each segment over time."""

    session: Session
    settings: BuildSettings
    rules: CacheRules
    budget: Budget | None
    counter: Counter
    calls: tuple[BuiltCall, ...]
    history: Mapping[Ref, tuple[FormChange, ...]]
    arrivals: Mapping[Ref, int]


class SessionBuilder:
    """Builds sessions, and keeps the last few. One lock guards them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._built: OrderedDict[tuple[str, int, BuildSettings], BuiltSession] = OrderedDict()

    def build(self, session: Session, settings: BuildSettings) -> BuiltSession:
        key = (session.summary.id, session.summary.messages, settings)
        with self._lock:
            built = self._built.get(key)
            if built is None:
                built = build_session(session, settings)
            self._built[key] = built
            self._built.move_to_end(key)
            while len(self._built) > _KEPT_BUILDS:
                self._built.popitem(last=False)
        return built


def build_session(session: Session, settings: BuildSettings) -> BuiltSession:
    """Every call of the session under these settings."""
    trace = session.conversation.trace
    counter = counter_for(trace.model) if trace.model else o200k()
    rules = _find_rules(settings.rules, trace.model, trace.dialect)
    budget = make_budget(settings, session.window)
    run = _Run(session, settings, budget=budget, rules=rules, counter=counter)
    for number, call in enumerate(session.conversation.calls):
        run.send(number, call)
    return BuiltSession(
        session=session,
        settings=settings,
        rules=rules,
        budget=budget,
        counter=counter,
        calls=tuple(_price_calls(run)),
        history={ref: tuple(changes) for ref, changes in run.history.items()},
        arrivals=run.arrivals,
    )


def build_call(built: BuiltSession, number: int) -> Envelope:
    """The envelope of one call, built again from the ledger before it."""
    call = find_call(built, number)
    log = read_log(built, call)
    return _build_log(
        log,
        budget=built.budget,
        ledger=call.ledger,
        counter=built.counter,
        rules=built.rules,
        idle=call.idle,
        session=built.session,
    )


def build_in_full(built: BuiltSession, number: int) -> Envelope:
    """The same call with nothing lowered: it says how large everything was that is left out."""
    call = find_call(built, number)
    return _build_log(
        read_log(built, call),
        budget=None,
        ledger=Ledger(),
        counter=built.counter,
        rules=built.rules,
        idle=0,
        session=built.session,
    )


def find_call(built: BuiltSession, number: int) -> BuiltCall:
    if not 0 <= number < len(built.calls):
        raise BadInput(
            f"there is no request {number}",
            place="request",
            hint=f"the session has requests 0 to {len(built.calls) - 1}",
        )
    return built.calls[number]


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


def make_budget(settings: BuildSettings, window_of_model: int) -> Budget | None:
    """The budget of these settings; None if everything is sent as it was recorded."""
    if settings.policy == AS_RECORDED:
        return None
    if settings.policy != LAMINA:
        raise BadInput(
            f"there is no policy {settings.policy!r}",
            place="policy",
            hint=f"use one of {', '.join(POLICIES)}",
        )
    window = settings.window or window_of_model
    budget = Budget(window=window, reserve=window // _RESERVED_PART, target=settings.target)
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

    def __init__(
        self,
        session: Session,
        settings: BuildSettings,
        *,
        budget: Budget | None,
        rules: CacheRules,
        counter: Counter,
    ) -> None:
        self.session = session
        self.settings = settings
        self.budget = budget
        self.rules = rules
        self.counter = counter
        self.ledger = Ledger()
        self.memo = Memo()
        self.parse_memo = ParseMemo()
        self.calls: list[BuiltCall] = []
        self.steps: list[WalkStep] = []
        self.history: dict[Ref, list[FormChange]] = {}
        self.arrivals: dict[Ref, int] = {}
        self.previous_messages: list[dict[str, Any]] = []
        self.previous_time: float | None = None

    def send(self, number: int, call: ModelCall) -> None:
        idle = self._idle_before(call)
        ledger = self.ledger
        request = self.session.conversation.request(call)
        try:
            log = DIALECTS[CHAT].parse(request, memo=self.parse_memo).log
            log = _choose_segments(log, self.settings)
            envelope = _build_log(
                log,
                budget=self.budget,
                ledger=ledger,
                counter=self.counter,
                rules=self.rules,
                idle=idle,
                session=self.session,
                memo=self.memo,
            )
        except LaminaError as error:
            self._keep_failure(number, call, idle, ledger, str(error))
            return
        self.ledger = envelope.ledger
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
            layers=_sum_tokens(sent_entries, by_kind=False),
            kinds=_sum_tokens(sent_entries, by_kind=True),
            entries=len(sent_entries),
            left_out=len(envelope.entries) - len(sent_entries),
            room=envelope.room,
            cut=cut.reason if cut is not None and has_cut else "",
            cut_lowered=cut.lowered if cut is not None and has_cut else 0,
            continues=continues,
        )
        self.calls.append(built)
        sent = PolicyRequest(messages=messages, cut=built.cut, layers=built.layers)
        self.steps.append(WalkStep(call=call, sent=sent, tokens=built.tokens, same=shared))

    def _idle_before(self, call: ModelCall) -> float:
        if call.at is None:
            return 0.0
        idle = 0.0
        if self.previous_time is not None:
            idle = max(call.at - self.previous_time, 0.0)
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
                kinds={},
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


def _build_log(
    log: tuple[Segment, ...],
    *,
    budget: Budget | None,
    ledger: Ledger,
    counter: Counter,
    rules: CacheRules,
    idle: float,
    session: Session,
    memo: Memo | None = None,
) -> Envelope:
    chat = DIALECTS[CHAT]
    head = chat.parse(session.conversation.request(session.conversation.calls[0])).head
    layout = Layout(context="logged", exclude=Filter(keys=frozenset((_LEFT_OUT,))))
    model = session.conversation.trace.model
    options = choose_options(chat, head, layout=layout, rates=rates(rules, model))
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


def _sum_tokens(entries: Sequence[Entry], *, by_kind: bool) -> dict[str, int]:
    sums: dict[str, int] = {} if by_kind else {layer.value: 0 for layer in Layer}
    for entry in entries:
        name = entry.segment.kind if by_kind else entry.layer.value
        sums[name] = sums.get(name, 0) + entry.tokens
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
        message_sizes=MessageSizes(run.counter, run.session.conversation.tools),
        rules=run.rules,
        model=trace.model,
    )
    tallies = iter(simulate_cache(run.steps, setting, run.rules))
    read_share = run.rules.read_share(trace.model)
    usages = _usages_by_call(run.session)
    shows_records = (
        run.settings.policy == AS_RECORDED and not run.settings.rules and not run.settings.left_out
    )
    priced: list[BuiltCall] = []
    for call in run.calls:
        if call.error:
            priced.append(call)
            continue
        tally = next(tallies)
        usage = usages[call.number] if shows_records else None
        if usage is not None:
            tally = Tally(
                read=usage.read,
                written=usage.written,
                written_long=usage.written_long,
                uncached=usage.uncached,
                why=tally.why,
            )
        priced.append(
            msgspec.structs.replace(
                call,
                read=tally.read,
                written=tally.written + tally.written_long,
                uncached=tally.uncached,
                output=call.call.output,
                dollars=_price_tally(tally, trace.model, run.rules, call.call.output),
                equivalents=input_equivalents(tally, run.rules, read_share),
                simulated=usage is None,
                miss="" if call.continues else tally.why,
            )
        )
    return priced


def _usages_by_call(session: Session) -> list[RecordedUsage | None]:
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
