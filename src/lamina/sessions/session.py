"""`Session`: one conversation in a store, and the requests that are built from it.

    async with Session.open("chats.db", "support-42", model="gpt-5") as session:
        await session.ask("Summarise this", attach=["docs/spec.md"])   # stored before the model is called
        answer = await client.chat.completions.create(**await session.request())
        await session.record(answer)                                   # stored after

    gather ──▶ redact ──▶ build ──▶ append (turn and ledger, one group) ──▶ render ──▶ your SDK ──▶ record

A session calls no model. Rewind, fork and regenerate are records too, so nothing is ever removed. One task at
a time may use a session; many sessions may share a store.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec
from anyio import to_thread

from lamina.context.gather import check_source
from lamina.context.port import Source
from lamina.core.entries import is_empty
from lamina.core.envelope import Envelope
from lamina.core.explanation import Manifest, explain
from lamina.core.history_window import LastN
from lamina.core.values import Budget, Form, Ledger, Segment, ToolCall
from lamina.errors import BadInput, BudgetExceeded
from lamina.fitting.policy import Policy, choose_policy
from lamina.fitting.recalls import RECALL, Recalled, recall_text
from lamina.fitting.server_reports import UNBOUND, calibrate_ledger, record_clearing, record_unbound
from lamina.sessions.answers import (
    Answer,
    Recorded,
    Results,
    absorb_answer,
    answer_own_calls,
    list_unanswered,
    make_results,
    order_results,
    task_for_fork,
)
from lamina.sessions.attachments import Attachable, drop_foreign
from lamina.sessions.recording import SessionRecord
from lamina.sessions.records import Control, Fork, pin_of
from lamina.sessions.reports import TurnReport, report_turn
from lamina.sessions.request_builder import OpenSettings, RequestBuilder, SessionRequest
from lamina.sessions.setup import (
    RuntimeOptions,
    Setup,
    SetupOptions,
    Template,
    load_user_policy,
    read_policy,
)
from lamina.sessions.stored_conversation import StoredConversation, once, open_session_store
from lamina.sessions.system_sections import Persona, SystemText, UsualPersona, Words, persona_for
from lamina.sessions.turn_gathering import condense_turn, gather_turn
from lamina.sessions.turn_writer import TurnWriter
from lamina.sessions.turns import (
    Utterance,
    add_metadata,
    check_metadata,
    index_after_prompt,
    index_before_open_calls,
    is_models_turn,
    list_dialogue,
    list_open_calls,
    list_turn_starts,
    locate_turn,
)
from lamina.settings import Settings, load_settings
from lamina.stores.port import Store, Where
from lamina.summaries import Condense, Terms
from lamina.telemetry import active

EMPTY_ANSWER = "the answer was empty, so nothing was recorded; ask again, or regenerate"


class Lifetime:
    """Whether the store of a session, and of its forks, is still open."""

    has_ended = False


class Session:
    """One open conversation. Made by `open`.

    A turn goes on with these: `ask` adds what the user says, `request` gives what to send, `record` adds the
    answer, and `results` adds what tools returned. `add`, `pin`, `rewind`, `regenerate` and `fork` change the
    conversation in other ways. `explain`, `report`, `dialogue` and `recall` say what is in it, and what was
    sent.
    """

    def __init__(self, stored: StoredConversation, builder: RequestBuilder, lifetime: Lifetime) -> None:
        self._stored = stored
        self._lifetime = lifetime
        self._builder = builder
        self._writer = TurnWriter(stored, builder)
        self._record = SessionRecord(stored, builder)
        self._lock = anyio.Lock()

    @staticmethod
    @asynccontextmanager
    async def open(
        store: Store | str | PathLike[str] | None,
        conversation: str,
        *,
        policy: Policy | None = None,
        workspace: str | None = None,
        key: Any = None,
        model: str | None = None,
        system: Words | None = None,
        persona: Persona | Words | UsualPersona | None = None,
        sources: Sequence[Source] = (),
        root: str | PathLike[str] | None = None,
        setup: SetupOptions | None = None,
        runtime: RuntimeOptions | None = None,
        settings: Settings | None = None,
    ) -> AsyncIterator[Session]:
        """Open a conversation, new or as it was left.

        `store` is a store, a path or address (see `lamina.stores.address`), or None for the user's own. With
        a `key`, the store at an address is sealed. The key is given here (or the Path of its file), in
        $LAMINA_KEY, or named by the settings. Opening a sealed store without its key raises KeyNeeded.
        Nothing in `workspace` can be seen from another workspace.

        `policy` says how requests are fitted. Its `budget`, `layout`, `history` and `recall` are stored with
        the conversation, and so are `model` and what is in `setup` (tools, the wire format): what is not
        given is used as it was. What else the policy leaves open is taken from the user's settings.

        `system` and `persona` are the sections of the system text; "" takes back what stood there. Without a
        `persona` the conversation's own is used, or else that of the settings. A function in their place is
        called once a turn, when it begins. `sources` find context for each prompt. `root` is the folder that
        attached paths may not leave. `runtime` has what is seldom needed: redaction, a template, the clock.
        Without `settings` the user's own are read.
        """
        setup = setup or SetupOptions()
        runtime = runtime or RuntimeOptions()
        policy = choose_policy(policy, place="Session.open")
        for index, source in enumerate(sources):
            check_source(source, f"sources[{index}]")
        # A program made its settings itself. No file or variable is named if something in those is wrong.
        environment: Mapping[str, str] = {}
        if settings is None:
            environment = os.environ
            settings = await to_thread.run_sync(load_settings)
        user_policy = load_user_policy(settings, environment or None)
        folder: Path | None = None
        if root is not None:
            folder = Path(root)
        if workspace is None:
            workspace = settings.workspace
        async with open_session_store(store, settings, key=key, environment=environment) as opened_store:
            stored = StoredConversation(opened_store, Where(workspace, conversation))
            await stored.load()
            await stored.refuse_other_doors()
            around = OpenSettings(
                workspace=workspace,
                policy=policy.over(user_policy),
                runtime=runtime,
                system_text=SystemText(
                    store=opened_store,
                    workspace=workspace,
                    contract=system,
                    persona=persona_for(stored.live.log, persona, settings),
                    more=runtime.context,
                    redact=runtime.redact,
                ),
                sources=tuple(sources),
                root=folder,
            )
            sections = await around.system_text.read(calls_functions=False)
            first_setup = Setup(model=settings.model, dialect=settings.dialect).over(read_policy(user_policy))
            changes = {"model": model, **msgspec.structs.asdict(setup)}
            whole_setup = stored.continue_setup(first_setup, changes, policy=policy, runtime=runtime)
            builder = RequestBuilder(whole_setup, around, sections)
            if builder.unsupported:
                stored.notes.append(f"{builder.dialect.name} cannot say: {', '.join(builder.unsupported)}")
            lifetime = Lifetime()
            try:
                yield Session(stored, builder, lifetime)
            finally:
                lifetime.has_ended = True

    @property
    def is_closed(self) -> bool:
        """Whether the block that opened the session has ended."""
        return self._lifetime.has_ended

    def check_open(self) -> None:
        """Raise BadInput if the session was closed."""
        if self.is_closed:
            hint = "open the conversation again, and use the session inside of `with`"
            raise BadInput("the session is closed", place=f"session {self.conversation!r}", hint=hint)

    @asynccontextmanager
    async def _open_lock(self) -> AsyncIterator[None]:
        """Let one task at a time use the session, while it is open."""
        self.check_open()
        async with self._lock:
            if self._stored.stale:
                # An append failed or was cancelled after it had begun. Whoever goes on without a look at the
                # store sends the request of before, and its answer is stored after a turn that it is not for.
                await self._writer.load()
            yield

    @property
    def conversation(self) -> str:
        return self._stored.where.conversation

    @property
    def workspace(self) -> str:
        return self._stored.where.workspace

    @property
    def log(self) -> tuple[Segment, ...]:
        """All segments that were not taken back."""
        return self._stored.live.log

    @property
    def ledger(self) -> Ledger:
        return self._stored.state.ledger

    @property
    def setup(self) -> Setup:
        """What the conversation is built with: model, dialect, budget, layout, tools."""
        return self._builder.setup

    @property
    def budget(self) -> Budget | None:
        """How large a request may be now."""
        return self._builder.budget

    def limit(self, budget: Budget | None) -> None:
        """Use another budget while the session is open: a server may take less than its model."""
        self._builder.budget = budget
        self._writer.forget_envelope()

    def forgo_switch(self) -> None:
        """Use no switch for bound thinking while the session is open: its server refused the last request.

        The last request is built anew, from the ledger of the one before it.
        """
        self._builder.forgo_switch()
        self._writer.take_back_request()

    def drop_thinking(self) -> bool:
        """Ask the server from now on to drop thinking that no longer fits: it refused a request for that.

        The ledger says so, and is stored with the answer. Returns False if the server was asked already,
        cannot be asked, or must not be.
        """
        was_asked = any(cut.reason == UNBOUND for cut in self.ledger.cuts)
        if was_asked or not self._builder.may_drop_thinking:
            return False
        self._writer.take_back_request()
        state = self._stored.state
        self._stored.state = msgspec.structs.replace(state, ledger=record_unbound(state.ledger))
        return True

    def set_history(self, history: LastN | int | Literal["all"]) -> None:
        """Use another window over history from here on: `LastN`, a number of messages, or "all".

        It is stored with the next turn. A wider window sends again what a narrower one had taken out, at a
        recorded cut.
        """
        self._builder.set_history(history)
        self._writer.forget_envelope()

    @property
    def envelope(self) -> Envelope | None:
        """The last request that was built, if there is one."""
        return self._writer.envelope

    @property
    def terms(self) -> Terms:
        """What this conversation is built with, for whoever writes summaries of it."""
        return self._builder.terms

    @property
    def parent(self) -> Fork | None:
        """The conversation that this one was forked from, and where."""
        return self._stored.live.parent

    @property
    def notes(self) -> tuple[str, ...]:
        """What a caller should know: state that was rebuilt, attachments that were left out."""
        return tuple(self._stored.notes)

    @property
    def pending(self) -> bool:
        """Whether it is the model's turn to speak."""
        return is_models_turn(self.log)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that wait for a result."""
        return list_open_calls(self.log)

    @property
    def turns(self) -> int:
        """How many turns there are."""
        return len(list_turn_starts(self.log, self._builder.options.kinds))

    def tail(self, count: int) -> tuple[Segment, ...]:
        """The last segments of the conversation, in order; all of them if there are no more."""
        if count < 1:
            return ()
        return tuple(self.log[-count:])

    async def ask(
        self,
        prompt: str,
        *,
        attach: Iterable[Attachable | tuple[Attachable, int]] = (),
        hints: Mapping[str, str] | None = None,
        template: Template | None = None,
        history: LastN | int | Literal["all"] | None = None,
        metadata: Mapping[str, Any] | None = None,
        idle: float = 0,
        key: str = "",
        condense: Condense | None = None,
    ) -> Envelope:
        """Add the user's turn, with its attachments and what the sources find, and build its request.

        Turn and ledger are stored as one group before this returns. If no request is possible
        (BudgetExceeded), nothing is stored. A turn that is repeated with the same `key` is stored once.
        `history` is the window over history from this turn on, as for `set_history`, unless the turn fails.
        `metadata` is kept with the message and never sent, such as `{"source": "voice"}`: JSON values, which
        `dialogue` gives back.
        `idle` is how many seconds passed since the last request: if the cache is cold by now, a cut is made
        early. With `condense`, a model is asked to put the attachments of this turn into fewer words if they
        are too much. They are stored in full, with the summary that is sent instead of them.
        """
        async with self._open_lock():
            self._builder.refuse_missing()
            with self._builder.try_history(history):
                self._writer.begin_turn()
                with self._writer.watch.phase("gather"):
                    self._stored.notes += await self._builder.refresh_sections(
                        opens_conversation=not self.log
                    )
                    turn = await gather_turn(
                        prompt,
                        attach=attach,
                        hints=hints,
                        template=template,
                        metadata=check_metadata(metadata),
                        builder=self._builder,
                        log=self.log,
                        envelope=self.envelope,
                    )
                self._writer.note_left_out(turn.notes)
                segments: Sequence[Segment] = self._builder.prepare_segments(turn.segments)
                if not segments:
                    raise BadInput("nothing is left of it", place="prompt", hint="check what redact does")
                if condense is not None:
                    with self._writer.watch.phase("condense"):
                        condensed = await condense_turn(
                            segments, condense, builder=self._builder, log=self.log, ledger=self.ledger
                        )
                    segments = condensed.segments
                    self._stored.notes += condensed.notes
                # What sources find may differ when a turn is repeated. What its caller gave does not.
                repeatable = once(key, turn.from_caller)
                return await self._writer.extend(segments, once=repeatable, idle=idle, opens_turn=True)

    async def record(
        self, answer: Answer, *, metadata: Mapping[str, Any] | None = None, key: str = ""
    ) -> Recorded:
        """Add what the model answered: an object of its SDK, a dict, events of a stream, or text.

        `metadata` is kept with the message and never sent, as for `ask`.

        A `Reply` of lamina's own clients is read to its end. An answer without content is not stored, and a
        note says so. What is no answer at all raises BadInput.

        Raises Conflict if another writer came between request and answer. Then nothing is stored, and the
        session has read what is new.
        """
        async with self._open_lock():
            self._builder.refuse_missing()
            absorbed = await absorb_answer(answer, self._builder.dialect)
            answered = add_metadata(absorbed.segments, check_metadata(metadata))
            segments = self._builder.prepare_segments(answered)
            usage = absorbed.usage
            state = self._stored.state
            # Looked up before the append: a cut is known by the number of records that it was made for.
            cut = state.find_made_cut(self._stored.live.count)
            ledger = calibrate_ledger(state.ledger, usage, self._builder.counter)
            ledger = record_clearing(ledger, usage)
            is_blank_answer = all(is_empty(segment.parts) for segment in segments)
            if is_blank_answer:
                segments = []
                self._stored.notes.append(EMPTY_ANSWER)
            else:
                await self._writer.append(
                    segments,
                    state=state.after_append(ledger),
                    once=once(key, answered),
                    rebase=False,
                )
            dialect = self._builder.dialect.name
            if self.envelope is not None:
                await self._record.add(self.envelope, usage, stop=absorbed.stop, cut=cut)
            if usage.input:
                active().count_usage(
                    dialect, self.setup.model, sent=usage.input, cached=usage.cached, output=usage.output
                )
            calls = [call for call in self.calls if not self.is_own_call(call)]
            return Recorded(segments=tuple(segments), calls=tuple(calls), usage=usage, stop=absorbed.stop)

    async def results(self, *results: Results, idle: float = 0, key: str = "") -> Envelope:
        """Add the results of tools, and build the next request of the same turn.

        `results` map the id of each call to its result, or are segments or `ToolResult` parts. The session
        itself answers calls of its own tools. Results are stored even if no request is possible with them.
        """
        async with self._open_lock():
            self._builder.refuse_missing()
            self._writer.begin_turn()
            calls = list_open_calls(self.log)
            # Some servers give every call the same id. What the application returns is of its own tools.
            apps_first = sorted(calls, key=self.is_own_call)
            segments = make_results(results, apps_first)
            own_calls = [call for call in list_unanswered(calls, segments) if self.is_own_call(call)]
            segments += await answer_own_calls(own_calls, self._stored)
            segments = order_results(segments, calls)
            prepared = self._builder.prepare_segments(segments)
            repeatable = once(key, segments)
            try:
                return await self._writer.extend(prepared, once=repeatable, idle=idle, rebase=False)
            except BudgetExceeded:
                # What a tool has done cannot be done again: its result is stored, though nothing can be sent.
                state = self._stored.state.after_append()
                await self._writer.append(prepared, state=state, once=repeatable, rebase=False)
                raise

    async def add(self, *segments: Segment, key: str = "") -> None:
        """Add segments as they are: messages from elsewhere, or context without a question."""
        async with self._open_lock():
            self._builder.refuse_missing()
            own = drop_foreign(segments, self.workspace)
            self._writer.note_left_out(own.notes)
            opens_conversation = not self.log
            if opens_conversation:
                await self._builder.refresh_sections(opens_conversation=True)
            prepared = self._builder.prepare_segments(own.segments)
            await self._writer.append(prepared, once=once(key, own.segments), opens_turn=opens_conversation)

    async def build(self, *, idle: float = 0) -> Envelope:
        """Build the request for the conversation as it is, and store its ledger."""
        async with self._open_lock():
            if self._stored.state.fresh:
                return self._writer.current_envelope(idle)
            return await self._writer.extend([], idle=idle)

    async def request(self) -> dict[str, Any]:
        """The request in the words of the dialect, ready for an SDK's client."""
        envelope = await self.build()
        with self._writer.watch.phase("render"):
            state = self._stored.state
            cut = state.find_made_cut(self._stored.live.count)
            return self._builder.render(envelope, before=state.before, cut=cut)

    def explain(self) -> Manifest:
        """Every segment of the last request with its layer, form, tokens and reason."""
        return explain(self._writer.last_envelope())

    def report(self) -> TurnReport:
        """What the last request did to the prefix, why, and what building it took."""
        writer = self._writer
        request = SessionRequest(envelope=writer.last_envelope(), dialect=self._builder.dialect.name)
        return report_turn(
            request,
            writer.request_before(),
            cut=writer.last_cut(),
            seconds=writer.watch.seconds,
            left_out=writer.left_out,
        )

    def dialogue(self) -> tuple[Utterance, ...]:
        """What user and model said, without context and tags, as it was typed."""
        return list_dialogue(self.log)

    def recall(self, key: str, *, part: tuple[int, int] | None = None, find: str = "") -> Recalled:
        """The full text behind a handle or key, a `part` of it, or the places where `find` occurs.

        `part` is (start, length) in characters.
        """
        active().count_recalls(1)
        return recall_text(self.log, key, ledger=self.ledger, part=part, find=find)

    async def pin(self, key: str, on: bool = True) -> None:  # noqa: FBT001, FBT002 - as one says it
        """Pin a segment, so that no cut lowers it; `on=False` lets it be lowered again.

        If it was lowered already, it is sent in full again at a recorded cut. Raises NotFound for an unknown
        key, BudgetExceeded if it does not fit beside what must be sent (nothing is pinned then), and Conflict
        if another writer added something meanwhile.
        """
        async with self._open_lock():
            entries = self._writer.last_envelope().entries
            in_full = {entry.ref for entry in entries if entry.form is Form.FULL}
            record = pin_of(self.log, key, on=on, in_full=in_full)
            if record is None:
                return
            group = self._stored.group([record], ())
            state = self._stored.state.after_append()
            self._builder.build(group.live.log, state)  # raises BudgetExceeded before anything is stored
            await self._writer.add_group(group, state)

    async def rewind(self, at: int | str) -> None:
        """Take back a turn (by number, negative from the end) or a segment (by key), and what follows it.

        Nothing is removed: a record says that it is taken back. What a later cut had lowered is sent in full
        again. Raises Conflict if another writer added something meanwhile.
        """
        async with self._open_lock():
            await self._writer.take_back(locate_turn(self.log, at, self._builder.options.kinds))

    async def regenerate(self) -> Envelope:
        """Take back the last answer with its steps, and build the request for the same prompt again."""
        async with self._open_lock():
            self._writer.begin_turn()
            await self._writer.take_back(index_after_prompt(self.log))
            if self._stored.state.fresh:
                return self._writer.current_envelope()
            return await self._writer.extend([])

    async def fork(self, at: int | str | None = None, name: str = "", *, task: str = "") -> Session:
        """Start a new conversation with everything before `at`; None is everything.

        With a `task`, the fork is the conversation of a sub-agent: it begins with what was sent last, which a
        cache has, and goes on with the task as a message from this conversation. An answer whose calls wait
        for results stays behind.

        The fork does not need this conversation any more. Raises Conflict if there is a conversation of this
        name already.
        """
        async with self._open_lock():
            index = len(self.log)
            if at is not None:
                index = locate_turn(self.log, at, self._builder.options.kinds)
            elif task:  # no API accepts calls without their results
                index = index_before_open_calls(self.log)
            place = self._writer.place(index)
            where = Where(self.workspace, name or f"{self.conversation}@{place}")
            fork = StoredConversation(self._stored.store, where)
            controls: list[Control] = [Fork(conversation=self.conversation, at=place), self.setup]
            state = self._stored.state.after_rewind(self.log[:index], place)
            state = state.for_fork(self._stored.live.places, ahead=len(controls))
            segments = list(self.log[:index])
            if task:
                segments += self._builder.prepare_segments([task_for_fork(task, self.conversation)])
            await fork.append(fork.group(controls, segments), state)
        builder = RequestBuilder(self.setup, self._builder.around, self._builder.sections)
        return Session(fork, builder, self._lifetime)

    async def reload(self) -> None:
        """Read the conversation again, with what others added to it."""
        async with self._open_lock():
            await self._writer.load()

    def is_own_call(self, call: ToolCall) -> bool:
        """Whether the session itself answers this call."""
        return self.setup.recall and call.name == RECALL.name
