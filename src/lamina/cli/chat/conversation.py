"""One session while it is open: it sends messages with their attachments, retries, edits and leaves.

Commands are functions of this. It reads no line and knows no command.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import anyio
import msgspec

from lamina.agent import Agent, AgentRegistry, TurnCost, TurnOutcome
from lamina.agent.outcome import TurnEvent
from lamina.cli.chat.attaching import attach_mentions, attach_name
from lamina.cli.chat.costs import CountedCost, KeptRoute, add_cost, keep_route, open_cost
from lamina.cli.chat.lines import LineSource
from lamina.cli.chat.maps import describe_turn
from lamina.cli.chat.screen import Screen
from lamina.cli.chat.search import FoundPassage, SearchedTexts
from lamina.clients.events import TextEvent, UsageEvent
from lamina.context.memory import Fact, Memory
from lamina.context.relevance import PROMPT_KEY
from lamina.core.history_window import LastN
from lamina.core.values import Role, Segment
from lamina.core.wording import text_of
from lamina.dialects import DIALECTS
from lamina.dialects.sending import render_request
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput
from lamina.sessions import Session
from lamina.sessions.system_sections import Words
from lamina.sessions.turns import Utterance, list_turn_starts
from lamina.stores.port import Store
from lamina.summaries import Question
from lamina.workspace.workspace import Workspace

if TYPE_CHECKING:
    from lamina.gateway.inspection import PageServer
    from lamina.replay.values import Trace, UnreadableLine


_REMEMBER = re.compile(r"^[ \t]*(?:please,? )?remember(?: that|:)[ \t]+(\S.*)$", re.IGNORECASE | re.MULTILINE)
"""A line that asks for it: `Remember that I live in Graz.` or `remember: tabs, not spaces`."""


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


class Surroundings(NamedTuple):
    """What all sessions of one run share."""

    store: Store
    space: Workspace
    screen: Screen
    lines: LineSource
    memory: Memory
    searched: SearchedTexts
    agents: AgentRegistry


class NextSession(msgspec.Struct, frozen=True, kw_only=True):
    """Which session is opened next, and what is other than it was kept.

    Without a `model` it is the conversation's own; `window` 0 is the one that was kept, and without a
    `history` so is the window over history. `agent` is the name of one, "" for none, and None for the
    conversation's own. `again`: it is the session that was just left, so its last turn is not shown.
    """

    name: str
    model: str = ""
    window: int = 0
    persona: Words | None = None
    history: LastN | Literal["all"] | None = None
    agent: str | None = None
    queue: tuple[Segment, ...] = ()
    again: bool = False


class TerminalChat:
    """A session and what it is talked through with. `queue` goes out with the next message.

    `failed`: a message had no answer. `left`: the session is over; `after` is the one to open next, if any.
    `draft` is what the next line begins with, and takes the place of the last message when it is sent.
    `passages` are what the last search found.
    """

    def __init__(
        self,
        session: Session,
        agent: Agent,
        surroundings: Surroundings,
        *,
        route: KeptRoute,
        opened_as: NextSession,
    ) -> None:
        self.session = session
        self.agent = agent
        self.route = route
        self.persona = opened_as.persona
        self.store = surroundings.store
        self.space = surroundings.space
        self.screen = surroundings.screen
        self.lines = surroundings.lines
        self.memory = surroundings.memory
        self.searched = surroundings.searched
        self.agents = surroundings.agents
        self.queue = list(opened_as.queue)
        self.passages: list[FoundPassage] = []
        self.draft = ""
        self.last = TurnCost()
        self.cost = CountedCost()
        self.failed = False
        self.left = False
        self.after: NextSession | None = None
        self._notes_shown = 0
        self._inspector: PageServer | None = None
        self._serving = ExitStack()

    async def begin(self, model: str, where: str, *, again: bool = False) -> None:
        """Show which model and session this is, and the last turn; and find what it has cost so far.

        The last turn is shown on a terminal only, and not `again`. It begins with the user's last message.
        """
        self.cost = await open_cost(self.store, self.session)
        session = self.session
        if session.log:
            await keep_route(self.store, session, self.route)
        self.screen.remark(
            f"{model} {where} · session {session.conversation} · /help, /inspect, Ctrl-D leaves"
        )
        if session.dialogue() and self.screen.live and not again:
            self._show_last_turn()

    def _show_last_turn(self) -> None:
        """Show what was said since the user's last message."""
        session = self.session
        self.screen.remark(f"{count_noun(session.turns, 'turn')} so far; the last:")
        last_turn: list[Utterance] = []
        for line in session.dialogue():
            if line.role is Role.USER:
                last_turn = []
            last_turn.append(line)
        for line in last_turn:
            if line.role is Role.USER:
                self.screen.show(f"> {line.text}")
            else:
                self.screen.formatted(line.text)
        if is_unanswered(session.log):
            self.screen.remark("this was not answered; /retry asks again")

    async def say(self, words: str) -> None:
        """One turn: the message, what it names with @, and what waits for it.

        What the message asks to be remembered is remembered before the model is asked.
        """
        for fact in find_requests(words):
            number = await remember_fact(self.memory, fact, source=self.session.conversation)
            self.screen.remark(
                f"remembered as {number} for every chat: {fact} (/memory shows and changes it)"
            )
        mentioned = await attach_mentions(words, self.space)
        self.remarks(mentioned.notes)
        self.remarks(f"attached {segment.key}" for segment in mentioned.segments)
        attachments = [*self.queue, *mentioned.segments]
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

    async def go_on(self) -> None:
        """The rest of an answer that was interrupted, cut off, or stopped at a limit."""
        if not self.session.log:
            raise BadInput("nothing was said yet", place="/continue", hint="ask something first")
        if self.session.pending or self.session.calls:
            await self._run_turn(self.agent.go_on)
            return
        await self.say(GO_ON)

    async def edit(self, words: str) -> None:
        """Send other words in place of the last message, with what was attached to it.

        The message and its answer are taken back. A file that the new words name is read anew.
        """
        attachments = self._last_attachments()
        await self.session.rewind(-1)
        # What was found by a search has no key, so its words tell it apart.
        waiting = {segment.key or text_of(segment.parts): segment for segment in [*attachments, *self.queue]}
        mentioned = await attach_mentions(words, self.space)
        for segment in mentioned.segments:
            waiting.pop(segment.key, None)
        self.queue = list(waiting.values())
        await self.say(words)

    def last_words(self) -> str:
        """The last message of the user. Raises BadInput if there is none."""
        for line in reversed(self.session.dialogue()):
            if line.role is Role.USER:
                return line.text
        raise BadInput("nothing was said yet", place="chat", hint="ask something first")

    def _last_attachments(self) -> list[Segment]:
        log = self.session.log
        starts = list_turn_starts(log, self.session.terms.options.kinds)
        if not starts:
            return []
        attachments = []
        for segment in log[starts[-1] :]:
            if segment.role is not Role.USER or segment.meta.get(PROMPT_KEY):
                continue
            if segment.key.startswith("memory"):  # a source brings the facts by itself
                continue
            attachments.append(segment)
        return attachments

    async def attach(self, name: str) -> None:
        """Keep a file, folder, tag, page or passage of the last search for the next message."""
        if name.isdecimal() and self.passages:
            self.queue.append(self._passage(int(name)).as_segment())
            return
        gathered = await attach_name(name, self.space)
        if not gathered.segments:
            raise BadInput("nothing here has this name", place=name, hint="; ".join(gathered.notes[:3]))
        self.queue += gathered.segments
        self.remarks(gathered.notes)

    def _passage(self, number: int) -> FoundPassage:
        if not 1 <= number <= len(self.passages):
            hint = f"the last search found {len(self.passages)}"
            raise BadInput(f"there is no passage {number}", place="/attach", hint=hint)
        return self.passages[number - 1]

    async def confirm(self, question: str, *, otherwise: str) -> bool:
        """Whether the user says yes. Raises BadInput with another way if nobody can be asked."""
        if not self.lines.asks:
            raise BadInput("nobody is there to confirm it", place="chat", hint=otherwise)
        try:
            answer = await self.lines.ask(f"{question} [y/N] ")
        except KeyboardInterrupt:  # Ctrl-C is a no
            return False
        return (answer or "").strip().lower() in ("y", "yes")

    async def write(self, question: Question) -> str:
        """Ask the model for a summary: its words, and nothing of it in the log."""
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
        from lamina.gateway.inspection import PageServer  # noqa: PLC0415 - few chats need it
        from lamina.inspector.sessions import Sessions  # noqa: PLC0415 - as above
        from lamina.inspector.views import Inspector  # noqa: PLC0415 - as above

        if self._inspector is None:
            sessions = Sessions(sources=[SessionSource(self.session)])
            self._inspector = PageServer(Inspector(sessions))
            self._serving.enter_context(self._inspector.running())
        return self._inspector.address

    def leave(self, after: NextSession | None = None) -> None:
        self.left = True
        self.after = after

    def reopen(
        self,
        *,
        name: str = "",
        model: str = "",
        window: int = 0,
        persona: Words | None = None,
        agent: str | None = None,
    ) -> None:
        """Leave the session and open it again under another name, with another model, persona or agent.

        What was changed before stays changed, also if nothing was said since and nothing of it is stored.
        """
        if not model:
            model = self.session.setup.model
            window = window or self.route.window
        self.leave(
            NextSession(
                name=name or self.session.conversation,
                model=model,
                window=window,
                persona=persona or self.persona,
                history=self.session.setup.history or "all",
                agent=self.agent.profile.name if agent is None else agent,
                queue=tuple(self.queue),
                again=True,
            )
        )

    def close(self) -> None:
        """Stop what was started for this session, however it ended.

        A server that still runs when Python itself ends would wait for its thread, which is gone by then.
        """
        self._serving.close()

    def fail(self, error: Exception) -> None:
        self.failed = True
        self.screen.problem(str(error))

    def settle(self) -> None:
        """End a line, however it went, and show the notes that are new."""
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

        # Before the first answer, too: a chat that is killed while it waits for it must find its model again.
        self.cost = await keep_route(self.store, self.session, self.route)
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
        if self.session.envelope is not None:
            self.screen.account(describe_turn(self.session.envelope, self.last, self.session.report()))

    async def _add_cost(self, spent: TurnCost) -> None:
        if spent.steps:
            self.cost = await add_cost(self.store, self.session, spent, uncounted=self.cost.uncounted)


GO_ON = "Go on exactly where you stopped, without repeating anything."

ENDINGS = {
    "steps": "the limit of steps was reached; /continue goes on",
    "length": "the answer was cut off at its longest length; /continue goes on",
    "refused": "the model's provider refused to answer",
    "error": "the answer broke off",
    "empty": "the answer was empty; /retry asks again",
}


def is_unanswered(log: tuple[Segment, ...]) -> bool:
    """Whether the last message of the user has no word of the model after it.

    That is so if an answer was interrupted before its first word, or the model could not be reached.
    """
    for segment in reversed(log):
        if segment.kind == "assistant":
            return False
        if segment.role is Role.USER and segment.meta.get(PROMPT_KEY):
            return True
    return False


def find_requests(text: str) -> list[str]:
    """What a message asks to be remembered: the rest of each line that begins with `remember that`."""
    return [match.strip() for match in _REMEMBER.findall(text)]


async def remember_fact(memory: Memory, text: str, *, source: str) -> str:
    """Add a fact under the next free number, unless there is the same already. Returns its number."""
    facts = await memory.facts()
    for fact in facts:
        if fact.text == text:
            return fact.name
    numbers = [int(fact.name) for fact in facts if fact.name.isdecimal()]
    name = str(max(numbers, default=0) + 1)
    await memory.remember(name, text, by="user", source=source)
    return name


async def change_fact(memory: Memory, name: str, text: str, *, source: str) -> None:
    """Put another text in the place of a fact."""
    if name not in [fact.name for fact in await memory.facts()]:
        raise BadInput(f"there is no fact {name!r}", place="/memory", hint="/memory lists them")
    await memory.remember(name, text, by="user", source=source)


def list_facts(facts: Iterable[Fact]) -> str:
    """One line for each fact: its number, its text, and the chat that it comes from."""
    lines = []
    for fact in facts:
        line = f"{fact.name:>3}  {fact.text}"
        if fact.source:
            line += f"  ({fact.source})"
        lines.append(line)
    return "\n".join(lines)


Act = Callable[[TerminalChat, str], Awaitable[None]]


class Command(NamedTuple):
    """A command. It is called with the chat and the rest of the line."""

    takes: str
    does: str
    act: Act


def require(words: str, *, command: str, what: str, hint: str) -> str:
    """The argument of a command. Raises BadInput if there is none."""
    if not words:
        raise BadInput(f"it takes {what}", place=command, hint=hint)
    return words
