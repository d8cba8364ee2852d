"""One session while it is open: sending a message with its attachments, retrying, summarising, leaving.

Commands are functions of this. It reads no line and knows no command.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from lamina.agent import Agent, Spent, TurnOutcome
from lamina.agent.outcome import Hear
from lamina.cli.chat.attaching import attached, mentioned
from lamina.cli.chat.screen import Screen
from lamina.clients.events import CallUsage, Spoke
from lamina.core.values import Role, Segment
from lamina.dialects import DIALECTS
from lamina.dialects.port import Usage
from lamina.dialects.sending import rendered
from lamina.sessions import Session
from lamina.sessions.turns import ASKED
from lamina.stores.port import Store
from lamina.summaries import Question
from lamina.workspace.workspace import Workspace


class TerminalChat:
    """A session and what it is talked through with. `queue` goes out with the next message.

    `failed`: a message had no answer. `left`: the session is over; `after` is the one to open next, if any.
    """

    def __init__(
        self, session: Session, agent: Agent, *, store: Store, space: Workspace, screen: Screen
    ) -> None:
        self.session, self.agent = session, agent
        self.store, self.space, self.screen = store, space, screen
        self.queue: list[Segment] = []
        self.last = self.spent = Spent()
        self.failed = self.left = False
        self.after = ""
        self._told = 0

    def greet(self, model: str, where: str) -> None:
        """Says who is there, and what was said last."""
        session = self.session
        self.screen.remark(f"{model} at {where} · session {session.conversation} · /help, Ctrl-D leaves")
        said = session.dialogue()
        if not said or not self.screen.live:
            return
        self.screen.remark(f"{session.turns} turn{'s' * (session.turns != 1)} so far; the last:")
        last = max((at for at, each in enumerate(said) if each.role is Role.USER), default=0)
        for each in said[last:]:
            if each.role is Role.USER:
                self.screen.show(f"> {each.text}")
            else:
                self.screen.formatted(each.text)
        if unanswered(session.log):
            self.screen.remark("this was not answered; /retry asks again")

    async def say(self, words: str) -> None:
        """One turn: the message, the files that it names, and those that wait for it."""
        found = await mentioned(words, self.space)
        self.remarks(found.notes)
        self.remarks(f"attached {one.key}" for one in found.segments)
        given, before = [*self.queue, *found.segments], len(self.session.log)
        try:
            await self._turn(partial(self.agent.run, prompt=words, attach=given))
        finally:
            if len(self.session.log) > before:  # they are kept with the message
                self.queue.clear()

    async def retry(self) -> None:
        """The answer to the last message, for the first time or again."""
        if not unanswered(self.session.log):
            await self.session.regenerate()
        await self._turn(self.agent.go_on)

    async def attach(self, path: str) -> None:
        found = await attached(path, self.space)
        self.queue += found.segments
        self.remarks(found.notes)

    async def write(self, asked: Question) -> str:
        """Asks the model for a summary: its words, and nothing of it in the log."""
        client, said = self.agent.client, list[str]()
        request = rendered(asked.envelope, DIALECTS[client.dialect])
        async with client.send(request) as reply:
            async for event in reply:
                if isinstance(event, Spoke):
                    said.append(event.text)
                elif isinstance(event, CallUsage):
                    self.spent = self.spent.after(_usage(event), self.session.setup.model)
        return "".join(said)

    def leave(self, after: str = "") -> None:
        self.left, self.after = True, after

    def fail(self, error: Exception) -> None:
        self.failed = True
        self.screen.problem(str(error))

    def settle(self) -> None:
        """A line is done with, however: whatever is left to say is said."""
        self.screen.end()
        self.remarks(self.session.notes[self._told :])
        self._told = len(self.session.notes)

    def remarks(self, notes: Iterable[str]) -> None:
        for note in notes:
            self.screen.remark(note)

    async def _turn(self, work: Callable[..., Awaitable[TurnOutcome]]) -> None:
        hear: Hear = self.screen.hear
        self.screen.wait()
        outcome = await work(self.session, hear=hear)
        self.screen.end()
        self.last, self.spent = outcome.spent, self.spent + outcome.spent
        if outcome.ending != "end":
            self.failed = self.failed or outcome.ending in ("error", "empty", "refused")
            self.screen.problem(ENDINGS.get(outcome.ending, f"the turn ended: {outcome.ending}"))
        self.screen.remark(self._status())

    def _status(self) -> str:
        envelope, money = self.session.envelope, self.last.money
        if envelope is None:
            return ""
        room = f" of {envelope.room:,}" if envelope.room else ""
        cost = f" · ${money:.4f}" if money else ""
        cut = f" · cut {envelope.cut.number}: {envelope.cut.reason}" if envelope.cut else ""
        return f"{envelope.tokens:,}{room} tokens{cost}{cut}"


ENDINGS = {
    "steps": 'the limit of steps was reached; say "go on" if it should',
    "length": "the answer was cut off at its longest length",
    "refused": "the model's provider refused to answer",
    "error": "the answer broke off",
    "empty": "the answer was empty; /retry asks again",
}


def unanswered(log: tuple[Segment, ...]) -> bool:
    """Whether the last message of the user has no word of the model after it."""
    asked = max((i for i, one in enumerate(log) if one.role is Role.USER and one.meta.get(ASKED)), default=-1)
    return asked >= 0 and not any(one.kind == "assistant" for one in log[asked + 1 :])


def _usage(used: CallUsage) -> Usage:
    return Usage(input=used.input, cached=used.cached, written=used.written, output=used.output)
