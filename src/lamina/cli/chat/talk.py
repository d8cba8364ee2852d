"""The chat itself: a line is a message or a command, until the user leaves. Read this first.

    line ──▶ /command
         └─▶ @files ──▶ agent.run(session) ──▶ the answer as it streams ──▶ what it took

Every message is kept before the model is asked, every answer when it is complete, and the words of one that
was interrupted as far as they came: killed at any time, the same session goes on with all of it.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import shlex
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
from anyio import to_thread

from lamina.agent import (
    Agent,
    AgentRegistry,
    load_agents,
    open_for,
    workspace_actions,
)
from lamina.cli.chat.approving import Approval
from lamina.cli.chat.attaching import Choice, mention_choices
from lamina.cli.chat.commands import COMMANDS, list_prompts, segment_names
from lamina.cli.chat.conversation import NextSession, Surroundings, TerminalChat
from lamina.cli.chat.costs import KeptRoute, read_route
from lamina.cli.chat.keys import describe_key, find_or_make_key, sealed_address
from lamina.cli.chat.lines import Interrupts, LineSource, echo_typing, lines_for
from lamina.cli.chat.reached_models import ModelChoice, ReachedModel, is_same_model, reach_model
from lamina.cli.chat.screen import Screen
from lamina.cli.chat.search import SearchedTexts
from lamina.cli.chat.session_commands import find_persona, fresh_name, list_sessions
from lamina.cli.stored import find_key, hide_password
from lamina.context.memory import MEMORY, Memory
from lamina.context.tools import Offer, workspace_tools
from lamina.core.values import Budget, Segment
from lamina.dialects.port import PlainHead
from lamina.errors import BadInput, LaminaError, StoreError
from lamina.fitting.policy import Policy
from lamina.models.facts import model as facts_of
from lamina.sessions import Session, SetupOptions
from lamina.sessions.records import read_records
from lamina.sessions.setup import Setup, load_user_policy
from lamina.settings import Settings, config_folder, data_folder, load_settings
from lamina.stores.address import open_chosen_store
from lamina.stores.port import Store, Where
from lamina.workspace.workspace import Workspace

PROMPT = "> "
HISTORY = "chat_history"

AGENTS_FILE = "agents.toml"
"""The user's own agents, beside the settings."""


async def talk(arguments: argparse.Namespace) -> int:
    """A whole run: finds store and model, and opens one session after the other."""
    settings = await to_thread.run_sync(load_settings)
    persona = find_persona(arguments.persona, place="--persona")
    root = Path(os.path.expanduser(arguments.folder))  # noqa: ASYNC240, PTH111
    space = await to_thread.run_sync(Workspace, root)
    key = await find_key(arguments.key_file)
    sealed_note = ""
    if arguments.sealed and key is None:
        address = sealed_address(arguments.store, settings)
        settings = msgspec.structs.replace(settings, store=address)
        kept_key = await to_thread.run_sync(find_or_make_key, address)
        key = kept_key.key
        sealed_note = describe_key(kept_key)
    async with open_chosen_store(arguments.store, settings, key=key) as store:
        # Typed lines go into a plain file, which must not hold what a sealed store encrypts.
        is_private = key is not None or arguments.store == "memory:"
        agents = await load_own_agents()
        chat_run = ChatRun(
            arguments, settings, store, space, root, agents=agents, keeps_history=not is_private
        )
        if sealed_note:
            chat_run.screen.remark(sealed_note)
        first = NextSession(
            name=arguments.conversation or fresh_name(),
            model=arguments.model,
            window=arguments.window,
            persona=persona,
        )
        async with chat_run.closing():
            if not chat_run.lines.asks:
                return await chat_run.run_sessions(first)
            with chat_run.interrupts.listen():
                return await chat_run.run_sessions(first)


class ChatRun:
    """What all sessions of one run share, and the model that answers now."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        settings: Settings,
        store: Store,
        space: Workspace,
        root: Path,
        *,
        agents: AgentRegistry,
        keeps_history: bool,
    ) -> None:
        self.arguments = arguments
        self.settings = settings
        self.store = store
        self.space = space
        self.agents = agents
        history_path = data_folder() / HISTORY if keeps_history else None
        self.lines: LineSource = lines_for(history_path, self._choices)
        self.screen = Screen(live=self.lines.asks)
        self.interrupts = Interrupts(lambda: print(f"\n{PROMPT}", end="", flush=True))
        self.approval = Approval(self.lines, self.screen, self.interrupts.stop)
        self.memory = Memory(store, Where(settings.workspace, MEMORY))
        self.searched = SearchedTexts(store, settings.workspace, space, root)
        self.open_session: Session | None = None
        self._session_names: list[str] = []
        self._failed = False
        self._model_choice = ModelChoice()
        self._reached: ReachedModel | None = None
        self._model_in_use = contextlib.AsyncExitStack()

    @contextlib.asynccontextmanager
    async def closing(self) -> AsyncIterator[None]:
        """Close the model and the search index at the end of the run."""
        try:
            yield
        finally:
            await self.searched.close()
            await self._model_in_use.aclose()

    async def run_sessions(self, first: NextSession) -> int:
        """Open sessions until the user leaves; the exit status."""
        next_session: NextSession | None = first
        while next_session is not None:
            setup = await self._read_setup(next_session.name)
            agent_name = self._choose_agent(next_session, setup)
            model_choice = await self._find_model(next_session, setup)
            reached_model = await self._reach(model_choice)
            agent = self._make_agent(reached_model, agent_name)
            budget = _budget_for(model_choice, reached_model)
            async with self._open(agent, reached_model, next_session, budget) as session:
                self.open_session = session
                route = KeptRoute(server=reached_model.server, window=self._model_choice.window)
                surroundings = Surroundings(
                    self.store, self.space, self.screen, self.lines, self.memory, self.searched, self.agents
                )
                chat = TerminalChat(session, agent, surroundings, route=route, opened_as=next_session)
                self._session_names = await list_sessions(chat)
                with contextlib.closing(chat):
                    await chat.begin(reached_model.model, reached_model.where, again=next_session.again)
                    await self._read_lines(chat)
                name = session.conversation
                next_session = chat.after
                self._failed = self._failed or chat.failed
        if session.log:
            self.screen.remark(f"kept; go on with: {self._command(name)}")
        if self._failed and not self.lines.asks:
            return 1
        return 0

    async def _reach(self, model_choice: ModelChoice) -> ReachedModel:
        """The model of the next session. If it cannot be reached, the one that answers now goes on."""
        if self._reached is not None and self._is_reached(model_choice, self._reached):
            return self._reached
        opening = contextlib.AsyncExitStack()
        try:
            reached_model = await opening.enter_async_context(
                reach_model(model_choice, environment=os.environ)
            )
        except LaminaError as error:
            if self._reached is None:
                raise
            self._failed = True
            self.screen.problem(str(error))
            self.screen.remark(f"{self._reached.model} goes on")
            return self._reached
        await self._model_in_use.aclose()
        self._model_in_use = opening
        self._model_choice = model_choice
        self._reached = reached_model
        return reached_model

    def _is_reached(self, model_choice: ModelChoice, reached_model: ReachedModel) -> bool:
        """Whether the model that answers now is the chosen one, at its server and with its window."""
        is_same_server = model_choice.server in ("", reached_model.server)
        is_same_window = model_choice.window == self._model_choice.window
        return model_choice.model == reached_model.model and is_same_server and is_same_window

    async def _read_setup(self, name: str) -> Setup | None:
        """What a conversation is set up with; None if nothing is stored of it."""
        page = await self.store.read(Where(self.settings.workspace, name))
        return read_records([record.body for record in page.records]).setup

    def _choose_agent(self, next_session: NextSession, setup: Setup | None) -> str:
        """The name of the agent that was asked for, or else of the conversation's own; "" for none."""
        if next_session.agent is not None:
            return next_session.agent
        own_name = str(setup.agent.get("name", "")) if setup is not None else ""
        if own_name and own_name not in self.agents:
            self.screen.remark(f"there is no agent {own_name!r} any more; the chat goes on without it")
            return ""
        return own_name

    async def _find_model(self, next_session: NextSession, setup: Setup | None) -> ModelChoice:
        """Which model a session wants, and what its conversation says about it.

        What is kept of the conversation's own model (its server, its window) says nothing about another.
        """
        if setup is None:
            return self._choose_model(next_session)
        model = next_session.model or setup.model
        if not is_same_model(model, setup.model):
            return ModelChoice(model=model, window=next_session.window)
        route = await read_route(self.store, self.settings.workspace, next_session.name)
        return ModelChoice(
            model=model,
            dialect=setup.dialect,
            server=route.server,
            window=next_session.window or route.window,
            last_window=_window_of(setup.budget),
        )

    def _choose_model(self, next_session: NextSession) -> ModelChoice:
        """The model of a conversation of which nothing is stored: as asked for, else that of the settings."""
        model = next_session.model or self.settings.model
        window = next_session.window
        if model == self.settings.model:
            window = window or _window_of(load_user_policy(self.settings, os.environ).budget)
        if self._reached is not None and is_same_model(model, self._reached.model):
            return _choose_again(self._reached, window)
        return ModelChoice(model=model, dialect=self.settings.dialect, window=window)

    def _command(self, name: str) -> str:
        """The command that goes on with a session, in the same store and workspace."""
        words = ["lamina", "chat", "--conversation", name]
        if self.arguments.sealed:
            words.append("--sealed")
        if self.arguments.store:
            words += ["--store", hide_password(self.arguments.store)]
        if self.arguments.key_file:
            words += ["--key-file", self.arguments.key_file]
        if self.arguments.folder != ".":
            words += ["--folder", self.arguments.folder]
        return shlex.join(words)

    def _open(
        self, agent: Agent, reached_model: ReachedModel, next_session: NextSession, budget: Budget | None
    ) -> AbstractAsyncContextManager[Session]:
        """Open a session. It keeps its persona and its window over history, unless they are given."""
        return open_for(
            agent,
            self.store,
            next_session.name,
            model=reached_model.model,
            policy=Policy(budget=budget, history=next_session.history),
            persona=next_session.persona,
            sources=[self.memory.source(log=self._log)],
            setup=SetupOptions(
                head=PlainHead(output=reached_model.output), agent={} if next_session.agent == "" else None
            ),
            workspace=self.settings.workspace,
            settings=self.settings,
        )

    def _log(self) -> tuple[Segment, ...]:
        if self.open_session is None:
            return ()
        return self.open_session.log

    async def _read_lines(self, chat: TerminalChat) -> None:
        """Read lines and take them, until the user leaves or the input ends."""
        while not chat.left:
            draft = chat.draft
            chat.draft = ""
            line = await self.lines.read(PROMPT, draft=draft)
            if line is None:
                return
            if line.strip():
                await self._take_line(chat, line, edits=bool(draft))

    async def _take_line(self, chat: TerminalChat, line: str, *, edits: bool) -> None:
        """One line, which Ctrl-C interrupts, and for which no error ends the chat.

        `edits`: it is sent in place of the last message.
        """
        action = chat.edit(line.strip()) if edits else _act_on_line(chat, line)
        try:
            with echo_typing(on=False):
                is_done = await self.interrupts.run(action)
            if not is_done:
                self.screen.end()
                self.screen.remark("(interrupted; what was said is kept; /continue goes on)")
        except LaminaError as error:
            if isinstance(error, StoreError) and not self.lines.asks:
                raise
            chat.fail(error)
        finally:
            chat.settle()

    def _make_agent(self, reached_model: ReachedModel, name: str) -> Agent:
        """The agent of this name, or one with the usual persona and all tools."""
        tools = self.arguments.tools
        offers: tuple[Offer, ...] = ()
        if tools != "none":
            offers = workspace_tools(self.space, changes=tools == "all")
        actions = workspace_actions(offers)
        if name:
            return self.agents.make(name, client=reached_model.client, actions=actions, approve=self.approval)
        return Agent(client=reached_model.client, actions=actions, approve=self.approval)

    def _choices(self, before: str) -> Iterator[Choice]:
        """What Tab offers: commands, what some of them take, and paths and tags after @."""
        word, space, rest = before.partition(" ")
        if word.startswith("/") and not space:
            yield from _complete(word[1:], COMMANDS, label="/{}")
            return
        match word:
            case "/pin" | "/recall" | "/why":
                yield from _complete(rest, segment_names(self._log()))
            case "/attach":
                yield from mention_choices(f"@{rest.removeprefix('@')}", self.space)
            case "/prompt":
                yield from _complete(rest, list_prompts())
            case "/agent":
                yield from _complete(rest, self.agents)
            case "/open" | "/delete":
                yield from _complete(rest, self._session_names)
            case _:
                yield from mention_choices(before, self.space)


async def load_own_agents() -> AgentRegistry:
    """The agents of the user's own file; none without one."""
    file = config_folder() / AGENTS_FILE
    if not await to_thread.run_sync(file.is_file):
        return AgentRegistry({})
    return await to_thread.run_sync(load_agents, file)


def _window_of(budget: Budget | int | None) -> int:
    """The context window of a budget; 0 without one."""
    if isinstance(budget, Budget):
        return budget.window
    return budget or 0


def _choose_again(reached_model: ReachedModel, window: int) -> ModelChoice:
    """The model that answers now, for a conversation of which nothing is stored."""
    return ModelChoice(
        model=reached_model.model,
        dialect=reached_model.client.dialect,
        server=reached_model.server,
        window=window,
        last_window=_window_of(reached_model.budget),
    )


def _budget_for(model_choice: ModelChoice, reached_model: ReachedModel) -> Budget | None:
    """The budget of a session; None for the one that its conversation has.

    A conversation that goes on with another model must not keep the window of the last one.
    """
    if reached_model.budget is not None:
        return reached_model.budget
    if model_choice.last_window and is_same_model(model_choice.model, reached_model.model):
        return None
    return facts_of(reached_model.model).budget


def _complete(beginning: str, names: Iterable[str], *, label: str = "{}") -> Iterator[Choice]:
    """The names that begin like this. `label` is how one stands in the list that Tab opens."""
    for name in names:
        if name.startswith(beginning):
            yield Choice(len(beginning), name, label.format(name))


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
        for name in difflib.get_close_matches(word[1:], COMMANDS, n=1, cutoff=0.7):
            hint = f"did you mean /{name}? {hint}"
        raise BadInput("there is no such command", place=word, hint=hint)
    await command.act(chat, rest.strip())
