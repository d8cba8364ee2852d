"""Builds the requests of one conversation from its setup and from what the application gave.

A log and a state go in, and an envelope or a request comes out. A `RequestBuilder` stores nothing.

`rebuild_request` builds the request before this one again, if another process sent it. The store has log,
setup and ledger, and the same of these give the same bytes. So this is done only when somebody asks for a
report, and nothing more has to be stored. The hashes in the ledger show whether it is the one that was sent.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from lamina.clients.ollama import choose_arguments
from lamina.context.port import Source
from lamina.context.relevance import Relevance
from lamina.core.build import build
from lamina.core.entries import count_same
from lamina.core.envelope import Envelope
from lamina.core.epochs import NEW_SUMMARIES, find_end_of
from lamina.core.history_window import LastN
from lamina.core.memo import BuildMemo
from lamina.core.options import Phase, not_measured
from lamina.core.values import Cut, Ledger, Segment, SentMark
from lamina.dialects.json_values import find_model
from lamina.dialects.memos import CheckMemo, StreamMemo
from lamina.dialects.render_memo import RenderMemo
from lamina.dialects.sending import find_violations, make_refusal, settle_repairs
from lamina.dialects.translate import choose_binding
from lamina.errors import BadInput, BudgetExceeded, LaminaError
from lamina.fitting.markers import place_markers
from lamina.fitting.names import name_segments
from lamina.fitting.policy import Policy
from lamina.fitting.server_reports import add_server_help, with_headers
from lamina.sessions.redaction import redact_segments
from lamina.sessions.setup import (
    RuntimeOptions,
    Setup,
    StoredOptions,
    Template,
    budget_for,
    dialect_for,
    head_for,
    list_arguments,
    options_for,
)
from lamina.sessions.stored_conversation import SessionState
from lamina.sessions.system_sections import SystemText
from lamina.summaries import Terms
from lamina.telemetry import active


class OpenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a session was opened with and keeps while it is open, whatever its setup is by then.

    Attached paths may not leave `root`.
    """

    workspace: str
    policy: Policy
    runtime: RuntimeOptions
    system_text: SystemText
    sources: tuple[Source, ...] = ()
    root: Path | None = None


class RequestBuilder:
    """Everything that a build of one conversation needs except its log and state.

    `sections` are those of the system text, as they were read last.
    """

    def __init__(self, setup: Setup, around: OpenSettings, sections: tuple[Segment, ...]) -> None:
        self.setup = setup
        self.around = around
        self.sections = sections
        self._stored_options = setup.stored_options or StoredOptions()
        policy = around.policy
        self.dialect = dialect_for(setup)
        own_head = head_for(setup, self.dialect, policy)
        self.head = own_head.head
        self.unsupported = own_head.left
        self.budget = budget_for(setup, policy, self.dialect, self.head)
        own_policy = msgspec.structs.replace(policy, budget=setup.budget)
        self._inferred = own_policy.describe_inferred(setup.model, dialect=self.dialect.name)
        self.counter = policy.find_counter(setup.model)
        self._drop_block = True
        self.breakpoints = policy.breakpoints
        if self.breakpoints == "auto":
            self.breakpoints = "plan"  # a session writes its requests itself: they bring no markers
        self.options = options_for(setup, policy, self.dialect, self.head, salt=around.workspace)
        self.relevance: Relevance | None = None
        if isinstance(self.options.order, Relevance):
            self.relevance = self.options.order
        self._memo = BuildMemo()
        self._render_memo = RenderMemo()
        self._check_memo = CheckMemo()
        self._stream_memo = StreamMemo()

    @property
    def terms(self) -> Terms:
        """What the conversation is built with, for whoever writes summaries of it."""
        return Terms(budget=self.budget, head=self.head, counter=self.counter, options=self.options)

    def refuse_missing(self) -> None:
        """Raise BadInput if the conversation had functions that it was opened without."""
        arguments = list_arguments(self.around.policy, self.around.runtime)
        missing = tuple(name for name in self._stored_options.functions if name not in arguments)
        if missing:
            raise BadInput(
                f"it was opened without functions that it had: {', '.join(missing)}",
                place="Session.open",
                hint="give them again: redact and template in runtime=RuntimeOptions(...), words and kinds "
                f"in policy=Policy(...); or go on without them: RuntimeOptions(forgo={missing!r})",
            )

    @property
    def template(self) -> Template | None:
        """The template of the caller, or else the stored one; None if there is neither."""
        if self.around.runtime.template is not None:
            return self.around.runtime.template
        return self._stored_options.template or None

    async def refresh_sections(self, *, opens_conversation: bool) -> tuple[str, ...]:
        """Read the sections of the system text for a turn, once. If that fails, they stay, with a note.

        The turn goes on with the system text of the last one. The first turn has none, so it fails.
        """
        if not self.around.system_text.changes_by_turn:
            return ()
        try:
            self.sections = await self.around.system_text.read()
        except Exception as error:
            if opens_conversation:
                raise
            reason = str(error) or type(error).__name__
            return (f"the system text stays as it was: {reason[:200]}",)
        return ()

    def set_history(self, history: LastN | int | Literal["all"]) -> None:
        """Use another window over history. It is read as `Policy(history=…)` reads it."""
        self.setup = self.setup.over({"history": Policy(history=history).history})
        self.options = msgspec.structs.replace(self.options, window=self.setup.history)

    @contextmanager
    def try_history(self, history: LastN | int | Literal["all"] | None) -> Iterator[None]:
        """Use another window over history from here on, unless what is done with it fails."""
        setup = self.setup
        options = self.options
        if history is not None:
            self.set_history(history)
        try:
            yield
        except BaseException:
            self.setup = setup
            self.options = options
            raise

    def forgo_switch(self) -> None:
        """Ask the server no more to drop thinking. Cuts wait then while the model thinks in a tool loop."""
        self._drop_block = False
        binding = choose_binding(self.dialect, self.head.parameters, drop_block=False)
        self.options = msgspec.structs.replace(self.options, binding=binding)

    @property
    def may_drop_thinking(self) -> bool:
        """Whether the server may be asked to drop thinking that no longer fits."""
        binding = choose_binding(self.dialect, self.head.parameters, drop_block=self._drop_block)
        return binding == "drop"

    def build(
        self,
        log: Sequence[Segment],
        state: SessionState,
        *,
        idle: float = 0,
        phase: Phase = not_measured,
    ) -> Envelope:
        """Build the request for a log. BudgetExceeded names the layer that takes most of the room.

        `phase` measures the phases of the build.
        """
        trace = active().start_build(self.setup.model)
        try:
            envelope = build(
                log,
                head=self.head,
                budget=self.budget,
                ledger=state.ledger,
                counter=self.counter,
                idle=idle,
                options=self.options,
                memo=self._memo,
                phase=phase,
            )
        except BudgetExceeded as error:
            trace.end(error="BudgetExceeded")
            raise self._name_largest_layer(error, log, state) from None
        trace.record_fit(tokens=envelope.tokens, cut=envelope.cut)
        trace.end()
        if self._inferred:
            envelope = msgspec.structs.replace(envelope, notes=(*envelope.notes, self._inferred))
        return settle_repairs(envelope, self.dialect, before=state.ledger.mark, memo=self._memo)

    def render(self, envelope: Envelope, *, before: SentMark | None, cut: Cut | None) -> dict[str, Any]:
        """Write the envelope in the words of the dialect, with its cache markers.

        `before` is the mark of the request before it, `cut` the one that was made for it. A header that the
        request needs is in its `extra_headers`, where SDKs take them.
        Raises InvalidRequest if the API would refuse the request and mending it would mean to invent text.
        """
        if not self.setup.model and self.setup.own is None:
            hint = "give one to Session.open"
            raise BadInput("there is no model", place="request", hint=hint)
        model_name = find_model(self.head.parameters)
        marked_request = place_markers(
            self.dialect.wire.render(envelope, self._render_memo),
            envelope,
            self.dialect,
            breakpoints=self.breakpoints,
            counter=self.counter,
            before=before,
            cut=cut,
            rules=self.around.policy.find_rules(model_name, dialect=self.dialect.name),
            memo=self._stream_memo,
            same_entries=count_same(self._stream_memo.parts.entries, envelope.entries),
        )
        violations = find_violations(marked_request.request, self.dialect, self._check_memo)
        if violations:
            raise make_refusal(marked_request.request, violations)
        helped = add_server_help(
            marked_request.request, self.dialect, envelope.ledger, drop_block=self._drop_block
        )
        if self.dialect.name == "ollama" and self.budget is not None:
            # The SDK has no argument against a server that drops the first messages of a long request.
            return choose_arguments(helped.request, self.budget.window)
        return with_headers(helped.request, helped.headers, beta="betas" in helped.request)

    def prepare_segments(self, segments: Iterable[Segment]) -> list[Segment]:
        """The segments as they may be stored: redacted, and with the time at which they came.

        A segment that has a time keeps it.
        """
        now = ""
        if self.around.runtime.clock:
            now = self.around.runtime.clock().isoformat()
        prepared: list[Segment] = []
        for segment in redact_segments(segments, self.around.runtime.redact):
            if segment.at:
                prepared.append(segment)
            else:
                prepared.append(msgspec.structs.replace(segment, at=now))
        return prepared

    def _name_largest_layer(
        self, error: BudgetExceeded, log: Sequence[Segment], state: SessionState
    ) -> BudgetExceeded:
        """The error with the layer that has most of what cannot be lowered.

        The request is built once more without a budget, to see which layer each segment stands in.
        """
        unlimited = build(
            log, head=self.head, ledger=state.ledger, counter=self.counter, options=self.options
        )
        names = {key for key, _ in error.segments}
        amounts = Tally[str]()
        for entry in unlimited.entries:
            if entry.segment.key in names or entry.ref in names:
                amounts[entry.layer.value] += entry.tokens
        reasons = [error.reason]
        if amounts:
            largest_layer = amounts.most_common(1)[0][0]
            reasons.append(f"mostly the {largest_layer} layer")
        reason = "; ".join(filter(None, reasons))
        named = BudgetExceeded(
            floor=error.floor, room=error.room, segments=error.segments, reason=reason, hint=error.hint
        )
        return name_segments(named, log)


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was built, and the dialect that it was sent in."""

    envelope: Envelope
    dialect: str


class StoredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a store has of the last request. The log may have grown since, by an answer for example."""

    log: tuple[Segment, ...]
    setup: Setup
    ledger: Ledger


def rebuild_request(stored: StoredRequest, builder: RequestBuilder) -> SessionRequest | None:
    """Build the request that was sent. Returns None if that is not possible, after a rewind for example.

    The log may have grown since. Its earlier lengths are tried until the prefix is the one that the
    ledger marks.
    """
    mark = stored.ledger.mark
    if mark is None:
        return None
    try:
        past_builder = RequestBuilder(stored.setup, builder.around, builder.sections)
    except LaminaError:
        return None
    # The ledger has what the window over history took out. The window must not take out more.
    options = past_builder.options
    if options.window is not None:
        options = msgspec.structs.replace(options, window=options.window.at_rest)
    for log in _earlier_logs(stored):
        try:
            envelope = build(
                log,
                head=past_builder.head,
                ledger=stored.ledger,
                counter=past_builder.counter,
                options=options,
            )
        except LaminaError:
            continue
        if find_end_of(mark, envelope.entries, envelope.root) is not None:
            not_sent_yet = len(envelope.sent) - mark.sent
            sent = msgspec.structs.replace(envelope, tail=not_sent_yet)
            return SessionRequest(envelope=sent, dialect=past_builder.dialect.name)
    return None


def _earlier_logs(stored: StoredRequest) -> Iterator[tuple[Segment, ...]]:
    """Yield the log as it may have been when the request was built.

    Segments that were appended since come after the request and do no harm. A summary is an exception: its
    place is before the end of the request. So the last summaries are taken out one after the other.
    """
    log = list(stored.log)
    yield tuple(log)
    summary_indices = [index for index, segment in enumerate(log) if segment.covers]
    for index in reversed(summary_indices[-NEW_SUMMARIES:]):
        del log[index]
        yield tuple(log)
