"""The session: the imperative shell around the pure core.

    async with Session.open("chats.db", "support-42", model="gpt-5") as session:
        await session.ask("Summarise this", attach=["docs/spec.md"])   # kept before the model is called
        answer = await client.chat.completions.create(**await session.request())
        await session.record(answer)                                   # kept after

    gather ──▶ redact ──▶ build ──▶ append (turn and ledger, one group) ──▶ render ──▶ your SDK ──▶ record

It calls no model. What it does to the past (rewind, fork, regenerate) are records too: nothing is removed.
One task at a time works on a session; many sessions may share a store.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec

from lamina.context.port import Source
from lamina.core.arrange import Layout
from lamina.core.envelope import Envelope
from lamina.core.explanation import Manifest, explain
from lamina.core.history_window import LastN
from lamina.core.options import Options
from lamina.core.tokens import Counter
from lamina.core.values import Budget, Form, Head, Ledger, Segment, ToolCall
from lamina.dialects.port import PlainHead
from lamina.errors import BadInput, BudgetExceeded, Conflict
from lamina.fitting.markers import Breakpoints
from lamina.fitting.server_reports import calibrated, record_clearing
from lamina.sessions.answers import Answer, Recorded, Results, absorbed, results_of
from lamina.sessions.attachments import Attachable, attached, hinted, turn_of
from lamina.sessions.mentioned_attachments import Mentioned, files_mentioned
from lamina.sessions.opening import loaded, opened, prepared, settings_for
from lamina.sessions.previous_request import Request
from lamina.sessions.recalled import Recalled, recalled
from lamina.sessions.records import Control, Fork, pin_of
from lamina.sessions.redaction import Redact, redacted
from lamina.sessions.reports import Timer, TurnReport, report
from lamina.sessions.request_builder import Clock, RequestBuilder, Template, Ways, prompt_of, utc_now
from lamina.sessions.setup import Setup
from lamina.sessions.stored_conversation import StoredConversation, once
from lamina.sessions.system_sections import (
    Persona,
    UsualPersona,
    Words,
    changes_by_turn,
    persona_for,
    sections,
)
from lamina.sessions.turn_writer import Work
from lamina.sessions.turns import Utterance, after_prompt, dialogue, index_of, pending, starts, waiting
from lamina.settings import Settings
from lamina.stores.port import Store, Where
from lamina.summaries import Condense, Terms, condensed, with_summary


class Session:
    """One conversation, open. Made by `open`."""

    def __init__(
        self, kept: StoredConversation, desk: RequestBuilder, *, timer: Timer = time.perf_counter
    ) -> None:
        self._kept, self._desk = kept, desk
        self._work, self._lock = Work(kept, desk, timer), anyio.Lock()

    @staticmethod
    @asynccontextmanager
    async def open(
        store: Store | str | PathLike[str] | None,
        conversation: str,
        *,
        workspace: str | None = None,
        model: str | None = None,
        dialect: str | None = None,
        budget: Budget | None = None,
        layout: Layout | None = None,
        head: PlainHead | Head | None = None,
        recall: bool | None = None,
        history: LastN | Literal["all"] | None = None,
        agent: Mapping[str, Any] | None = None,
        system: Words = "",
        persona: Persona | Words | UsualPersona | None = None,
        context: Sequence[Segment] = (),
        sources: Sequence[Source] = (),
        redact: Redact | None = None,
        template: Template | None = None,
        root: str | PathLike[str] | None = None,
        mentioned: Mentioned | None = None,
        breakpoints: Breakpoints = "plan",
        counter: Counter | None = None,
        options: Options | None = None,
        clock: Clock | None = utc_now,
        timer: Timer = time.perf_counter,
        settings: Settings | None = None,
        key: Any = None,
    ) -> AsyncIterator[Session]:
        """Opens a conversation, new or as it was left.

        `store` is a store, a path or address (`stores.address`), or None for the user's own. With
        a `key` (or the Path of its file), given here, in $LAMINA_KEY or named by the settings, the store at
        an address is sealed; a sealed one without its key is KeyNeeded. What belongs to
        `workspace` cannot be seen from another. `model`, `dialect`, `budget`, `layout`, `head` (tools and
        parameters, in plain words or the dialect's), `recall` (whether the model is given the recall tool),
        `history` (how much of it is sent: the last messages, or "all") and `agent` are kept with the
        conversation: given none, it goes on as it was. `system`, `persona` and `context` are the sections of
        the system text; without a `persona` the conversation's own stands, else that of the settings.
        A function in their place is asked at each turn. `sources` find context for each prompt; `redact`
        sees every text before it is kept or sent; `root` is the folder that attached paths may not leave.
        `mentioned` finds what messages of an imported page refer to, before the first request; without it,
        it is looked for among the files below `root`.
        """
        usual = await settings_for(settings)
        where = Where(usual.workspace if workspace is None else workspace, conversation)
        environment = os.environ if settings is None else {}
        async with opened(store, usual, key=key, environment=environment) as found:
            kept = await loaded(found, where)
            who = persona_for(kept.told.log, persona, usual)

            async def asked_sections() -> tuple[Segment, ...]:
                text = await sections(system, who, context, store=found, workspace=where.workspace)
                return tuple(redacted(text, redact))

            ways = Ways(
                sections=await asked_sections(),
                asked_sections=asked_sections if changes_by_turn(system, who) else None,
                sources=tuple(sources),
                redact=redact,
                template=template,
                clock=clock,
                root=None if root is None else Path(root),
                mentioned=files_mentioned(root) if mentioned is None and root is not None else mentioned,
                breakpoints=breakpoints,
                counter=counter,
                options=options,
            )
            given = {
                "model": model,
                "dialect": dialect,
                "budget": budget,
                "layout": layout,
                "head": head,
                "recall": recall,
                "history": history,
                "agent": None if agent is None else dict(agent),
            }
            desk = prepared(kept, usual, ways, given)
            yield Session(kept, desk, timer=timer)

    @property
    def conversation(self) -> str:
        return self._kept.where.conversation

    @property
    def workspace(self) -> str:
        return self._kept.where.workspace

    @property
    def log(self) -> tuple[Segment, ...]:
        """Everything that was said and not taken back."""
        return self._kept.told.log

    @property
    def ledger(self) -> Ledger:
        return self._kept.state.ledger

    @property
    def setup(self) -> Setup:
        """What it is built with: model, dialect, budget, layout, tools."""
        return self._desk.setup

    @property
    def budget(self) -> Budget | None:
        """How large a request may be now."""
        return self._desk.budget

    def limit(self, budget: Budget | None) -> None:
        """Another budget for as long as the session is open: a server may take less than its model."""
        self._desk.budget = budget
        self._work.forget()

    def set_history(self, history: LastN | Literal["all"]) -> None:
        """Another window over history from here on; it is kept with the next turn.

        A wider one brings nothing back by itself: what was taken out is recalled.
        """
        self._desk.set_history(history)
        self._work.forget()

    @property
    def envelope(self) -> Envelope | None:
        """The last request that was built, if there is one: what stands in it, and how."""
        return self._work.envelope

    @property
    def terms(self) -> Terms:
        """What a build of this conversation is made with, for whoever writes summaries of it."""
        desk = self._desk
        return Terms(budget=desk.budget, head=desk.head, counter=desk.counter, options=desk.options)

    @property
    def parent(self) -> Fork | None:
        """The conversation that this one was forked from, and where."""
        return self._kept.told.parent

    @property
    def notes(self) -> tuple[str, ...]:
        """What a caller should know: state that was rebuilt, attachments that were left out."""
        return tuple(self._kept.notes)

    @property
    def pending(self) -> bool:
        """Whether it is the model's turn to speak."""
        return pending(self.log)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that wait for a result."""
        return waiting(self.log)

    @property
    def turns(self) -> int:
        """How many turns there are."""
        return len(starts(self.log, self._desk.options.kinds))

    async def ask(
        self,
        prompt: str,
        *,
        attach: Iterable[Attachable | tuple[Attachable, int]] = (),
        hints: Mapping[str, str] | None = None,
        template: Template | None = None,
        idle: float = 0,
        key: str = "",
        condense: Condense | None = None,
    ) -> Envelope:
        """Adds the user's turn, with its attachments and what the sources find, and builds its request.

        Turn and ledger are kept as one group before this returns. With the same `key` a repeated turn is
        kept once. If no request is possible (BudgetExceeded), nothing is kept. `idle` is how many seconds
        passed since the last request: a cut is made early where the cache is cold anyway. With `condense` a
        model is asked, now, to put attachments of this turn into fewer words if they are too much; they are
        kept in full, with the summary that stands for them.
        """
        async with self._lock:
            self._work.begin()
            with self._work.watch.phase("gather"):
                await self._work.rebuild_mentioned()
                self._kept.notes += await self._desk.ask_sections()
                own = await self._given(prompt, attach, hints, template)
                gathered = await self._desk.gathered(prompt, self._work.envelope)
                self._work.note_left_out(gathered.notes)
                found, others = self._desk.own(gathered)
                found, repeated = self._desk.unsaid(found, self.log)
                self._work.note_left_out([*others, *repeated])
            turn = self._desk.ready(turn_of([*found, *own[:-1]], own[-1], self._desk.options.kinds))
            if not turn:
                raise BadInput("nothing is left of it", place="prompt", hint="check what redact does")
            if condense is not None:
                with self._work.watch.phase("condense"):
                    turn = await self._condensed(turn, condense)
            return await self._work.extend(turn, once=once(key, own), idle=idle, opens=True)

    async def record(self, answer: Answer, *, key: str = "") -> Recorded:
        """Adds what the model answered: an object of its SDK, a dict, events of a stream, or text.

        Raises Conflict if another writer came between request and answer; then nothing is kept, and the
        session has what is new.
        """
        async with self._lock:
            found = await absorbed(answer, self._desk.dialect)
            segments = self._desk.ready(found.segments)
            state = self._kept.state
            ledger = record_clearing(calibrated(state.ledger, found.usage, self._desk.counter), found.usage)
            if segments:
                await self._work.append(
                    segments, state=state.grown(ledger), once=once(key, found.segments), rebase=False
                )
            calls = tuple(call for call in waiting(self.log) if not self._own_call(call))
            return Recorded(segments=tuple(segments), calls=calls, usage=found.usage, stop=found.stop)

    async def results(self, *given: Results, idle: float = 0, key: str = "") -> Envelope:
        """Adds the results of tools, and builds the next request of the same turn.

        `given` maps the id of each call to its result, or has results ready-made. Calls of the recall tool
        are answered by the session. Results are kept even if no request is possible with them.
        """
        async with self._lock:
            self._work.begin()
            made = results_of(given, waiting(self.log), self.log, self.ledger, recall=self.setup.recall)
            ready, repeated = self._desk.ready(made), once(key, made)
            try:
                return await self._work.extend(ready, once=repeated, idle=idle, rebase=False)
            except BudgetExceeded:
                await self._work.append(ready, state=self._kept.state.grown(), once=repeated, rebase=False)
                raise

    async def add(self, *segments: Segment, key: str = "") -> None:
        """Adds segments that are ready: messages from elsewhere, context without a question."""
        async with self._lock:
            mine, others = self._desk.own(segments)
            self._work.note_left_out(others)
            await self._work.append(self._desk.ready(mine), once=once(key, mine), opens=not self.log)

    async def build(self, *, idle: float = 0) -> Envelope:
        """The request for the conversation as it is, and its ledger kept."""
        async with self._lock:
            await self._work.rebuild_mentioned()
            if not self._kept.told.count or self._kept.state.fresh:
                return self._work.now(idle)
            return await self._work.extend([], idle=idle)

    async def request(self) -> dict[str, Any]:
        """The request in the words of the dialect, ready for an SDK's client."""
        envelope = await self.build()
        with self._work.watch.phase("render"):
            return self._desk.render(envelope, self._kept.state.before)

    def explain(self) -> Manifest:
        """Every segment of the last request with its layer, form, tokens and reason."""
        return explain(self._work.last())

    def report(self) -> TurnReport:
        """What the last request did to the prefix, why, and what building it took."""
        work = self._work
        request = Request(envelope=work.last(), dialect=self._desk.dialect.name)
        return report(
            request, work.before(), cut=work.cut(), seconds=work.watch.seconds, left_out=work.left_out
        )

    def dialogue(self) -> tuple[Utterance, ...]:
        """What user and model said, without context and tags, as it was typed."""
        return dialogue(self.log)

    def recall(self, key: str, *, part: tuple[int, int] | None = None, find: str = "") -> Recalled:
        """The full text behind a handle or key; `part` of it as (start, length); or where `find` occurs."""
        return recalled(self.log, key, ledger=self.ledger, part=part, find=find)

    async def pin(self, key: str, on: bool = True) -> None:  # noqa: FBT001, FBT002 - as one says it
        """Keeps a segment in full, whatever a cut lowers; `on=False` lets it be lowered again.

        If it was lowered already, it stands in full again at a recorded cut. Raises NotFound for an unknown
        key, BudgetExceeded if it does not fit beside what must stand (nothing is pinned then), Conflict if
        another writer added something meanwhile.
        """
        async with self._lock:
            in_full = {entry.ref for entry in self._work.last().entries if entry.form is Form.FULL}
            record = pin_of(self.log, key, on=on, in_full=in_full)
            if record is None:
                return
            group = self._kept.group([record], ())
            state = self._kept.state.grown()
            self._work.desk.build(group.told.log, state)
            try:
                await self._kept.append(group, state)
            except Conflict:
                await self._work.load()
                raise

    async def rewind(self, at: int | str) -> None:
        """Takes back a turn (by number, negative from the end) or a segment (by key), and what follows it.

        Nothing is removed: a record says that it is taken back. What a later cut had lowered stands in full
        again. Raises Conflict if another writer added something meanwhile.
        """
        async with self._lock:
            await self._work.take_back(index_of(self.log, at, self._desk.options.kinds))

    async def regenerate(self) -> Envelope:
        """Takes back the last answer, with its steps, and builds the request for the same prompt again."""
        async with self._lock:
            self._work.begin()
            await self._work.rebuild_mentioned()
            await self._work.take_back(after_prompt(self.log))
            return self._work.now() if self._kept.state.fresh else await self._work.extend([])

    async def fork(self, at: int | str | None = None, name: str = "") -> Session:
        """A new conversation that begins with everything before `at`; None is everything.

        It goes its own way from there, and does not need this one any more. Raises Conflict if there is a
        conversation of this name.
        """
        async with self._lock:
            index = len(self.log) if at is None else index_of(self.log, at, self._desk.options.kinds)
            place = self._work.place(index)
            where = Where(self.workspace, name or f"{self.conversation}@{place}")
            kept = StoredConversation(self._kept.store, where)
            controls: list[Control] = [Fork(conversation=self.conversation, at=place), self.setup]
            state = self._kept.state.rewound(self.log[:index], place)
            moved = state.moved(self._kept.told.places, ahead=len(controls))
            await kept.append(kept.group(controls, self.log[:index]), moved)
        return Session(
            kept, RequestBuilder(self.setup, self._desk.ways, self.workspace), timer=self._work.timer
        )

    async def reload(self) -> None:
        """Reads the conversation again, with what others added to it."""
        async with self._lock:
            await self._work.load()

    async def _given(
        self, prompt: str, attach: Iterable[Any], hints: Mapping[str, str] | None, template: Template | None
    ) -> list[Segment]:
        """What the caller gave for a turn; the prompt is the last."""
        ways = self._desk.ways
        found = await attached(attach, workspace=self.workspace, root=ways.root)
        self._work.note_left_out(found.notes)
        return [*found.segments, *hinted(hints), prompt_of(prompt, template or ways.template)]

    async def _condensed(self, turn: list[Segment], condense: Condense) -> list[Segment]:
        """A turn with a summary of what is too much in it, if a model gave one; else a note says why not."""
        outcome = await condensed(self.log, turn, condense, terms=self.terms, ledger=self.ledger)
        self._kept.notes += outcome.notes
        if outcome.segment is None:
            return turn
        told = outcome.segment.meta["summary"] | {"before": outcome.before, "after": outcome.after}
        made = msgspec.structs.replace(outcome.segment, meta={"summary": told})
        ready = self._desk.ready([made])
        return with_summary(turn, ready[0], kinds=self._desk.options.kinds) if ready else turn

    def _own_call(self, call: ToolCall) -> bool:
        return self.setup.recall and call.name == "recall"
