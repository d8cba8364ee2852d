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
import difflib
import os
import shlex
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
from anyio import to_thread

from lamina.agent import Agent, open_for, workspace_actions
from lamina.cli.chat.approving import Approval
from lamina.cli.chat.attaching import Choice, path_choices
from lamina.cli.chat.commands import COMMANDS, fresh_name, segment_names
from lamina.cli.chat.conversation import TerminalChat
from lamina.cli.chat.finding import ReachedModel, reach_model
from lamina.cli.chat.lines import LineSource, echo_typing, lines_for
from lamina.cli.chat.screen import Screen
from lamina.cli.stored import find_key, hide_password
from lamina.context.tools import workspace_tools
from lamina.core.values import Budget
from lamina.dialects.port import PlainHead
from lamina.errors import BadInput, LaminaError, StoreError
from lamina.fitting.policy import Policy
from lamina.sessions import RuntimeOptions, Session, SetupOptions, files_mentioned
from lamina.sessions.system_sections import Words
from lamina.settings import Settings, data_folder, load_settings
from lamina.stores.address import open_chosen_store
from lamina.stores.port import Store
from lamina.workspace.workspace import Workspace

PROMPT = "> "
HISTORY = "chat_history"
LONGEST_PATH = 1_000
"""Characters of a path; a longer persona is a text."""


async def talk(arguments: argparse.Namespace) -> int:
    """A whole run: finds store and model, and opens one session after the other."""
    settings = await to_thread.run_sync(load_settings)
    persona = _find_persona(arguments.persona)
    space = await to_thread.run_sync(Workspace, os.path.expanduser(arguments.workspace))  # noqa: ASYNC240, PTH111
    key = await find_key(arguments.key_file)
    async with open_chosen_store(arguments.store, settings, key=key) as store:
        name = arguments.session or fresh_name()
        model, dialect = await _find_model(arguments.model, store, name, settings)
        reaching = reach_model(model, dialect=dialect, window=arguments.window, environment=os.environ)
        async with reaching as reached_model:
            private = key is not None or arguments.store == "memory:"
            chat_run = ChatRun(
                arguments, settings, store, reached_model, space, persona=persona, history=not private
            )
            if not chat_run.lines.asks:
                return await chat_run.run_sessions(name)
            with chat_run.interrupts.listen():
                return await chat_run.run_sessions(name)


class Interrupts:
    """Ctrl-C: ends what is under way, if anything is, and never the program."""

    def __init__(self, idle: Callable[[], None]) -> None:
        self._scope: anyio.CancelScope | None = None
        self._idle = idle

    @contextlib.contextmanager
    def listen(self) -> Iterator[None]:
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

    async def run(self, action: Awaitable[None]) -> bool:
        """Runs what Ctrl-C interrupts; whether it came to its end."""
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                await action
            finally:
                self._scope = None
        return not scope.cancelled_caught


class ChatRun:
    """What all sessions of one run share."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        settings: Settings,
        store: Store,
        reached_model: ReachedModel,
        space: Workspace,
        *,
        persona: Words | None,
        history: bool,
    ) -> None:
        self.arguments = arguments
        self.settings = settings
        self.store = store
        self.reached_model = reached_model
        self.space = space
        self.persona = persona
        history_path = data_folder() / HISTORY if history else None
        self.lines: LineSource = lines_for(history_path, self._choices)
        self.screen = Screen(live=self.lines.asks)
        self.interrupts = Interrupts(lambda: print(f"\n{PROMPT}", end="", flush=True))
        self.open_session: Session | None = None
        self.agent = self._make_agent()

    async def run_sessions(self, name: str) -> int:
        """Opens sessions until the user leaves; the exit status."""
        failed = False
        next_name = name
        while next_name:
            name = next_name
            async with self._open(name) as session:
                self.open_session = session
                chat = TerminalChat(
                    session, self.agent, store=self.store, space=self.space, screen=self.screen
                )
                with contextlib.closing(chat):
                    await chat.begin(self.reached_model.model, self.reached_model.where)
                    await self._read_lines(chat)
                next_name = chat.after
                failed = failed or chat.failed
        if session.log:
            self.screen.remark(f"kept; go on with: {self._command(name)}")
        if failed and not self.lines.asks:
            return 1
        return 0

    def _command(self, name: str) -> str:
        """The command that goes on with a session, in the same store and workspace."""
        words = ["lamina", "chat", "--session", name]
        if self.arguments.store:
            words += ["--store", hide_password(self.arguments.store)]
        if self.arguments.key_file:
            words += ["--key-file", self.arguments.key_file]
        if self.arguments.workspace != ".":
            words += ["--workspace", self.arguments.workspace]
        return shlex.join(words)

    def _open(self, name: str) -> AbstractAsyncContextManager[Session]:
        return open_for(
            self.agent,
            self.store,
            name,
            model=self.reached_model.model,
            policy=Policy(budget=self.reached_model.budget, counter=self.reached_model.counter),
            runtime=RuntimeOptions(mentioned=files_mentioned(self.space)),
            persona=self.persona,
            setup=SetupOptions(head=PlainHead(output=self.reached_model.output)),
            workspace=self.settings.workspace,
            settings=self.settings,
        )

    async def _read_lines(self, chat: TerminalChat) -> None:
        """Read lines and take them, until the user leaves or the input ends."""
        while not chat.left:
            line = await self.lines.read(PROMPT)
            if line is None:
                return
            if line.strip():
                await self._take_line(chat, line)

    async def _take_line(self, chat: TerminalChat, line: str) -> None:
        """One line, which Ctrl-C interrupts, and for which no error ends the chat."""
        try:
            with echo_typing(on=False):
                is_done = await self.interrupts.run(_act_on_line(chat, line))
            if not is_done:
                self.screen.end()
                self.screen.remark("(interrupted; what was said is kept)")
        except LaminaError as error:
            if isinstance(error, StoreError) and not self.lines.asks:
                raise
            chat.fail(error)
        finally:
            chat.settle()

    def _make_agent(self) -> Agent:
        tools = self.arguments.tools
        offers = () if tools == "none" else workspace_tools(self.space, changes=tools == "all")
        approval = Approval(self.lines, self.screen, self.interrupts.stop)
        return Agent(client=self.reached_model.client, actions=workspace_actions(offers), approve=approval)

    def _choices(self, before: str) -> Iterator[Choice]:
        """What Tab offers: commands, the keys that some of them take, and paths after @."""
        word, space, rest = before.partition(" ")
        if word.startswith("/") and not space:
            yield from _complete(word[1:], COMMANDS, shown="/{}")
        elif word in ("/pin", "/recall", "/why") and self.open_session is not None:
            yield from _complete(rest, segment_names(self.open_session.log))
        elif word == "/attach":
            yield from path_choices(f"@{rest.removeprefix('@')}", self.space)
        else:
            yield from path_choices(before, self.space)


def _complete(beginning: str, names: Iterable[str], *, shown: str = "{}") -> Iterator[Choice]:
    """The names that begin like this. `shown` is how one stands in the list that Tab opens."""
    for name in names:
        if name.startswith(beginning):
            yield Choice(len(beginning), name, shown.format(name))


async def _act_on_line(chat: TerminalChat, line: str) -> None:
    """A line that begins with a slash and a word is a command; every other one is a message."""
    word, _, rest = line.partition(" ")
    is_command = word.startswith("/") and word[1:].isalpha()
    if not is_command:
        await chat.say(line.strip())
        return
    command = COMMANDS.get(word[1:])
    if command is None:
        hint = "/help lists them; a line that begins with a space is sent as it is"
        for name in difflib.get_close_matches(word[1:], COMMANDS, n=1):
            hint = f"did you mean /{name}? {hint}"
        raise BadInput("there is no such command", place=word, hint=hint)
    await command.act(chat, rest.strip())


async def _find_model(name: str, store: Store, session_name: str, settings: Settings) -> tuple[str, str]:
    """The model that is named, the conversation's own, or that of the settings; and its dialect."""
    if name:
        return name, ""
    large = Budget(window=1_000_000)  # nothing is built here, so the window of the model does not matter
    policy = Policy(budget=large)
    opening = Session.open(
        store, session_name, workspace=settings.workspace, settings=settings, policy=policy
    )
    async with opening as session:
        return session.setup.model, session.setup.dialect


def _find_persona(text: str) -> Words | None:
    """The persona, as words or as the file that has them; None for the chat's own.

    `persona.md` must be a file, since words do not look like that. A long text is never taken for a path.
    """
    if not text:
        return None
    if len(text) > LONGEST_PATH or "\n" in text:
        return text
    path = Path(text).expanduser()
    if path.is_file():
        return path
    if " " not in text and path.suffix:
        hint = "check the path, or give the persona itself as a text"
        raise BadInput("there is no such file", place=f"--persona {text}", hint=hint)
    return text
