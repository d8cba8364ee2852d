"""The chat itself: a line is a message or a command, until the user leaves. Read this first.

    line ──▶ /command
         └─▶ @files ──▶ agent.run(session) ──▶ the answer as it streams ──▶ what it took

Every message is kept before the model is asked, every answer when it is complete, and the words of one that
was interrupted as far as they came: killed at any time, the same session goes on with all of it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import anyio
from anyio import to_thread

from lamina.agent import Agent, offered, open_for
from lamina.cli.chat.approving import Approval
from lamina.cli.chat.attaching import Choice, choices
from lamina.cli.chat.commands import COMMANDS, fresh_name, keys
from lamina.cli.chat.conversation import TerminalChat
from lamina.cli.chat.finding import Reached, reached
from lamina.cli.chat.lines import LineSource, lines_for
from lamina.cli.chat.screen import Screen
from lamina.cli.stored import key_of
from lamina.context.tools import workspace_tools
from lamina.core.values import Budget
from lamina.dialects.port import PlainHead
from lamina.errors import BadInput, LaminaError, StoreError
from lamina.sessions import Session, files_mentioned
from lamina.sessions.system_sections import Words
from lamina.settings import Settings, data_folder, load_settings
from lamina.stores.address import open_default_store, open_store
from lamina.stores.port import Store
from lamina.workspace.workspace import Workspace

PROMPT = "> "
HISTORY = "chat_history"


async def talk(arguments: argparse.Namespace) -> int:
    """A whole run: finds store and model, and opens one session after the other."""
    settings = await to_thread.run_sync(load_settings)
    space = await to_thread.run_sync(Workspace, os.path.expanduser(arguments.workspace))  # noqa: ASYNC240, PTH111
    key = key_of(arguments.key_file)
    async with _store(arguments.store, settings, key) as store:
        wanted = arguments.session or fresh_name()
        model, dialect = await _model(arguments.model, store, wanted, settings)
        way = reached(model, dialect=dialect, window=arguments.window, environment=os.environ)
        async with way as found:
            private = key is not None or arguments.store == "memory:"
            room = Room(arguments, settings, store, found, space, history=not private)
            with room.interrupts.heard() if room.lines.asks else contextlib.nullcontext():
                return await room.sessions(wanted)


class Interrupts:
    """Ctrl-C: ends what is under way, if anything is, and never the program."""

    def __init__(self, idle: Callable[[], None]) -> None:
        self._scope: anyio.CancelScope | None = None
        self._idle = idle

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(signal.SIGINT, self.stop)
        except NotImplementedError:  # some systems: there Ctrl-C ends the chat, and what was said is kept
            yield
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def stop(self) -> None:
        if self._scope is None:
            self._idle()
        else:
            self._scope.cancel()

    async def run(self, work: Awaitable[None]) -> bool:
        """Whether the work came to its end."""
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                await work
            finally:
                self._scope = None
        return not scope.cancelled_caught


class Room:
    """What all sessions of one run share."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        settings: Settings,
        store: Store,
        found: Reached,
        space: Workspace,
        *,
        history: bool,
    ) -> None:
        self.arguments, self.settings, self.store, self.found, self.space = (
            arguments,
            settings,
            store,
            found,
            space,
        )
        path = data_folder(os.environ) / HISTORY if history else None
        self.lines: LineSource = lines_for(path, self._choices)
        self.screen = Screen(live=self.lines.asks)
        self.interrupts = Interrupts(lambda: print(f"\n{PROMPT}", end="", flush=True))
        self.open: Session | None = None
        self.agent = self._agent()

    async def sessions(self, name: str) -> int:
        """Opens sessions until the user leaves; the exit status."""
        persona = _persona(self.arguments.persona)
        found, failed, after = self.found, False, name
        while after:
            opening = open_for(
                self.agent,
                self.store,
                after,
                model=found.model,
                budget=found.budget,
                counter=found.counter,
                persona=persona,
                head=PlainHead(output=found.output),
                workspace=self.settings.workspace,
                settings=self.settings,
                mentioned=files_mentioned(self.space),
            )
            async with opening as session:
                self.open, last = session, after
                chat = TerminalChat(
                    session, self.agent, store=self.store, space=self.space, screen=self.screen
                )
                chat.greet(found.model, found.where)
                await self._lines_of(chat)
                after, failed = chat.after, failed or chat.failed
        if session.log:
            self.screen.remark(f"kept; go on with: lamina chat --session {last}")
        return 1 if failed and not self.lines.asks else 0

    async def _lines_of(self, chat: TerminalChat) -> None:
        while not chat.left:
            line = await self.lines.read(PROMPT)
            if line is None:
                return
            if line.strip():
                await self._guarded(chat, line)

    async def _guarded(self, chat: TerminalChat, line: str) -> None:
        """One line, which Ctrl-C interrupts, and for which no error ends the chat."""
        try:
            if not await self.interrupts.run(_acted(chat, line)):
                self.screen.end()
                self.screen.remark("(interrupted; what was said is kept)")
        except LaminaError as error:
            if isinstance(error, StoreError) and not self.lines.asks:
                raise
            chat.fail(error)
        finally:
            chat.settle()

    def _agent(self) -> Agent:
        tools = self.arguments.tools
        offers = () if tools == "none" else workspace_tools(self.space, changes=tools == "all")
        approval = Approval(self.lines, self.screen, self.interrupts.stop)
        return Agent(client=self.found.client, actions=offered(offers), approve=approval)

    def _choices(self, before: str) -> Iterator[Choice]:
        """What Tab offers: commands, the keys that some of them take, and paths after @."""
        word, space, rest = before.partition(" ")
        if word.startswith("/") and not space:
            known = (name for name in COMMANDS if name.startswith(word[1:]))
            yield from (Choice(len(word) - 1, name, f"/{name}") for name in known)
        elif word in ("/pin", "/recall", "/why") and self.open is not None:
            fitting = (key for key in keys(self.open.log) if key.startswith(rest))
            yield from (Choice(len(rest), key, key) for key in fitting)
        elif word == "/attach":
            yield from (each for each in choices(f"@{rest.removeprefix('@')}", self.space))
        else:
            yield from choices(before, self.space)


async def _acted(chat: TerminalChat, line: str) -> None:
    """A line that begins with a slash and a word is a command; every other one is a message."""
    word, _, rest = line.partition(" ")
    if not (word.startswith("/") and word[1:].isalpha()):
        await chat.say(line.strip())
    elif word[1:] in COMMANDS:
        await COMMANDS[word[1:]].act(chat, rest.strip())
    else:
        hint = "/help lists them; a line that begins with a space is sent as it is"
        raise BadInput("there is no such command", place=word, hint=hint)


@contextlib.asynccontextmanager
async def _store(address: str, settings: Settings, key: object) -> AsyncIterator[Store]:
    """The store that is named, else the user's own, made where it is not there."""
    opening = open_store(address, key=key) if address else open_default_store(settings, key=key)
    async with opening as store:
        yield store


async def _model(given: str, store: Store, name: str, settings: Settings) -> tuple[str, str]:
    """The model that is asked for, the conversation's own, or that of the settings; and its dialect."""
    if given:
        return given, ""
    large = Budget(window=1_000_000)  # nothing is built here, so that an unknown model is no matter
    opening = Session.open(store, name, workspace=settings.workspace, settings=settings, budget=large)
    async with opening as session:
        return session.setup.model, session.setup.dialect


def _persona(given: str) -> Words | None:
    """The persona that is asked for, as words or as the file that has them; None for the chat's own."""
    if not given:
        return None
    path = Path(given).expanduser()
    return path if len(given) < 1_000 and "\n" not in given and path.is_file() else given
