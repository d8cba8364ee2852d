"""One session while it is open: sending a message with its attachments, retrying, summarising, leaving.

Commands are functions of this. It reads no line and knows no command.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import anyio

from lamina.agent import Agent, TurnCost, TurnOutcome
from lamina.agent.outcome import TurnEvent
from lamina.cli.chat.attaching import attach_mentions, attach_path
from lamina.cli.chat.costs import CountedCost, add_cost, open_cost
from lamina.cli.chat.screen import Screen
from lamina.clients.events import TextEvent, UsageEvent
from lamina.context.relevance import PROMPT_KEY
from lamina.core.values import Role, Segment
from lamina.dialects import DIALECTS
from lamina.dialects.sending import render_request
from lamina.dialects.usage import count_noun
from lamina.sessions import Session
from lamina.stores.port import Store
from lamina.summaries import Question
from lamina.workspace.workspace import Workspace

if TYPE_CHECKING:
    from lamina.inspector.server import Server
    from lamina.replay.values import Trace, UnreadableLine


class SessionSource:
    """The open session, for the inspector. Its log is a tuple, so another thread may read it at any time."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def state(self) -> int:
        return len(self._session.log)

    def read(self) -> list[Trace | UnreadableLine]:
        from lamina.replay.traces.lamina_exports import log_to_trace  # noqa: PLC0415 - only for the inspector

        session = self._session
        return [log_to_trace(session.log, session.conversation, model=session.setup.model or "")]


class TerminalChat:
    """A session and what it is talked through with. `queue` goes out with the next message.

    `failed`: a message had no answer. `left`: the session is over; `after` is the one to open next, if any.
    """

    def __init__(
        self, session: Session, agent: Agent, *, store: Store, space: Workspace, screen: Screen
    ) -> None:
        self.session = session
        self.agent = agent
        self.store = store
        self.space = space
        self.screen = screen
        self.queue: list[Segment] = []
        self.last = TurnCost()
        self.cost = CountedCost()
        self.failed = False
        self.left = False
        self.after = ""
        self._notes_shown = 0
        self._inspector: Server | None = None
        self._serving = ExitStack()

    async def begin(self, model: str, where: str) -> None:
        """Shows which model and session this is, and the last turn; and finds what it has cost so far.

        The last turn is shown on a terminal only. It begins with the last message of the user.
        """
        self.cost = await open_cost(self.store, self.session)
        session = self.session
        self.screen.remark(
            f"{model} {where} · session {session.conversation} · /help, /inspect, Ctrl-D leaves"
        )
        dialogue = session.dialogue()
        if not dialogue or not self.screen.live:
            return
        self.screen.remark(f"{count_noun(session.turns, 'turn')} so far; the last:")
        last_question = max((at for at, line in enumerate(dialogue) if line.role is Role.USER), default=0)
        for line in dialogue[last_question:]:
            if line.role is Role.USER:
                self.screen.show(f"> {line.text}")
            else:
                self.screen.formatted(line.text)
        if is_unanswered(session.log):
            self.screen.remark("this was not answered; /retry asks again")

    async def say(self, words: str) -> None:
        """One turn: the message, the files that it names, and those that wait for it."""
        mentioned_files = await attach_mentions(words, self.space)
        self.remarks(mentioned_files.notes)
        self.remarks(f"attached {segment.key}" for segment in mentioned_files.segments)
        attachments = [*self.queue, *mentioned_files.segments]
        segments_before = len(self.session.log)
        try:
            await self._run_turn(partial(self.agent.run, prompt=words, attach=attachments))
        finally:
            if len(self.session.log) > segments_before:  # they are kept with the message
                self.queue.clear()

    async def retry(self) -> None:
        """The answer to the last message, for the first time or again."""
        if not is_unanswered(self.session.log):
            await self.session.regenerate()
        await self._run_turn(self.agent.go_on)

    async def attach(self, path: str) -> None:
        gathered = await attach_path(path, self.space)
        self.queue += gathered.segments
        self.remarks(gathered.notes)

    async def write(self, question: Question) -> str:
        """Asks the model for a summary: its words, and nothing of it in the log."""
        client = self.agent.client
        request = render_request(question.envelope, DIALECTS[client.dialect])
        texts: list[str] = []
        async with client.send(request) as reply:
            async for event in reply:
                if isinstance(event, TextEvent):
                    texts.append(event.text)
                elif isinstance(event, UsageEvent):
                    await self._add_cost(TurnCost().after(event, self.session.setup.model))
        return "".join(texts)

    def start_inspector(self) -> str:
        """Serve the pages about this session on a free port of this machine. Returns their address."""
        from lamina.inspector.server import make_server  # noqa: PLC0415 - few chats need it
        from lamina.inspector.sessions import Sessions  # noqa: PLC0415 - as above
        from lamina.inspector.views import Inspector  # noqa: PLC0415 - as above

        if self._inspector is None:
            sessions = Sessions(sources=[SessionSource(self.session)])
            self._inspector = make_server(Inspector(sessions))
            self._serving.enter_context(self._inspector.running())
        return self._inspector.address

    def leave(self, after: str = "") -> None:
        self.left = True
        self.after = after

    def close(self) -> None:
        """Stop what was started for this session, however it ended.

        A server that still runs when Python itself ends would wait for its thread, which is gone by then.
        """
        self._serving.close()

    def fail(self, error: Exception) -> None:
        self.failed = True
        self.screen.problem(str(error))

    def settle(self) -> None:
        """Ends a line, however it went, and shows the notes that are new."""
        self.screen.end()
        self.remarks(self.session.notes[self._notes_shown :])
        self._notes_shown = len(self.session.notes)

    def remarks(self, notes: Iterable[str]) -> None:
        for note in notes:
            self.screen.remark(note)

    async def _run_turn(self, turn: Callable[..., Awaitable[TurnOutcome]]) -> None:
        """Run a turn and show its events. What its calls cost is recorded, even if it is interrupted."""
        self.last = TurnCost()

        async def hear(event: TurnEvent) -> None:
            if isinstance(event, UsageEvent):
                self.last = self.last.after(event, self.session.setup.model)
            await self.screen.hear(event)

        self.screen.wait()
        try:
            outcome = await turn(self.session, hear=hear)
        except BaseException:
            with anyio.CancelScope(shield=True):  # the calls before an interruption have their price
                await self._add_cost(self.last)
            raise
        self.screen.end()
        self.last = outcome.spent
        await self._add_cost(outcome.spent)
        if outcome.ending != "end":
            if outcome.ending in ("error", "empty", "refused"):
                self.failed = True
            self.screen.problem(ENDINGS.get(outcome.ending, f"the turn ended: {outcome.ending}"))
        self.screen.remark(self._status())

    async def _add_cost(self, spent: TurnCost) -> None:
        if spent.steps:
            self.cost = await add_cost(self.store, self.session, spent, uncounted=self.cost.uncounted)

    def _status(self) -> str:
        """Such as "1,204 of 5,500 tokens · $0.0100 · cut 2: over the trigger", for the end of a turn."""
        envelope = self.session.envelope
        if envelope is None:
            return ""
        tokens = f"{envelope.tokens:,}"
        if envelope.room:
            tokens += f" of {envelope.room:,}"
        status = f"{tokens} tokens"
        if self.last.money:
            status += f" · ${self.last.money:.4f}"
        if envelope.cut:
            status += f" · cut {envelope.cut.number}: {envelope.cut.reason}"
        return status


ENDINGS = {
    "steps": 'the limit of steps was reached; say "go on" if it should',
    "length": "the answer was cut off at its longest length",
    "refused": "the model's provider refused to answer",
    "error": "the answer broke off",
    "empty": "the answer was empty; /retry asks again",
}


def is_unanswered(log: tuple[Segment, ...]) -> bool:
    """Whether the last message of the user has no word of the model after it.

    That is so if an answer was interrupted before its first word, or the model could not be reached.
    """
    last_question = None
    for at, segment in enumerate(log):
        if segment.role is Role.USER and segment.meta.get(PROMPT_KEY):
            last_question = at
    if last_question is None:
        return False
    return not any(segment.kind == "assistant" for segment in log[last_question + 1 :])
