"""The chat itself: a line is a message or a command, until the user leaves. Read this first.

    line ──▶ /command
         └─▶ @files ──▶ agent.run(session) ──▶ the answer as it streams ──▶ what it took

Every message is kept before the model is asked, every answer when it is complete, and the words of one that
was interrupted as far as they came: killed at any time, the same session goes on with all of it.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import NamedTuple

import msgspec
from anyio import to_thread

from lamina.agent import Action, Agent, TurnOutcome, open_for, workspace_actions
from lamina.cli.chat.models import ModelRoute, find_route, find_window, limit_answers, open_client
from lamina.cli.chat.sealed_store import find_or_make_key, sealed_address
from lamina.cli.chat.terminal import Terminal
from lamina.cli.fit import layer_lines
from lamina.cli.stored import find_key, hide_password
from lamina.context.tools import Offer, workspace_tools
from lamina.core.envelope import Envelope
from lamina.core.explanation import describe_cut, describe_row, join_folds
from lamina.core.values import Budget, Form
from lamina.dialects.port import PlainHead
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput, LaminaError, StoreError
from lamina.fitting.policy import Policy
from lamina.models.facts import model as facts_of
from lamina.sessions import Session, SetupOptions
from lamina.sessions.records import read_records
from lamina.sessions.setup import Setup, load_user_policy
from lamina.settings import Settings, load_settings
from lamina.stores.address import open_chosen_store
from lamina.stores.port import Store, Where
from lamina.workspace.workspace import Workspace

# `@src/client.py` or `@"two words.txt"`, and not the second half of `me@example.org`.
_MENTION = re.compile(r'(?<![\w@/.])@(?:"([^"\n]+)"|([^\s"@]+))')

_PUNCTUATION = ".,;:!?)]}'"
"""What ends a sentence rather than a path."""

ENDINGS = {
    "steps": "the limit of steps was reached; say go on",
    "length": "the answer was cut off at its longest length; say go on",
    "refused": "the model's provider refused to answer",
    "error": "the answer broke off; /retry asks again",
    "empty": "the answer was empty; /retry asks again",
}


async def talk(arguments: argparse.Namespace) -> int:
    """A whole run: finds store and model, opens the session, and reads lines until the user leaves."""
    terminal = Terminal()
    settings = await to_thread.run_sync(load_settings)
    key = await find_key(arguments.key_file)
    if arguments.sealed and key is None:
        address = sealed_address(arguments.store, settings)
        settings = msgspec.structs.replace(settings, store=address)
        key, remark = await to_thread.run_sync(find_or_make_key, address)
        terminal.remark(remark)
    name = arguments.conversation or f"chat-{datetime.now().astimezone():%Y-%m-%d-%H%M%S}"
    space = await to_thread.run_sync(Workspace, arguments.folder)
    async with open_chosen_store(arguments.store, settings, key=key) as store:
        setup = await _read_setup(store, Where(settings.workspace, name))
        route = await to_thread.run_sync(_choose_route, arguments, settings, setup)
        budget = await to_thread.run_sync(_choose_budget, arguments, settings, setup, route)
        client = open_client(route, os.environ, window=_window_of(budget))
        agent = Agent(client=client, actions=_list_actions(arguments.tools, space), approve=terminal.approve)
        output = limit_answers(route, budget)
        async with (
            client,
            open_for(
                agent,
                store,
                name,
                model=route.model,
                policy=Policy(budget=budget),
                root=arguments.folder,
                setup=SetupOptions(head=PlainHead(output=output)),
                workspace=settings.workspace,
                settings=settings,
            ) as session,
        ):
            chat = Chat(session, agent, space, terminal)
            terminal.remark(f"{route.model} at {route.where} · session {name} · /help, Ctrl-D leaves")
            await chat.read_lines()
            if session.log:
                terminal.remark(f"kept; go on with: {_write_command(arguments, name)}")
    return int(chat.failed and not terminal.live)


async def _read_setup(store: Store, where: Where) -> Setup | None:
    """What a conversation is set up with; None if nothing is stored of it."""
    page = await store.read(where)
    return read_records([record.body for record in page.records]).setup


def _choose_route(arguments: argparse.Namespace, settings: Settings, setup: Setup | None) -> ModelRoute:
    """The model that is named, else the conversation's own, else that of the settings, else any."""
    if setup is not None and arguments.model in ("", setup.model):
        return find_route(setup.model, os.environ, dialect=setup.dialect)
    if arguments.model:
        return find_route(arguments.model, os.environ)
    return find_route(settings.model, os.environ, dialect=settings.dialect)


def _choose_budget(
    arguments: argparse.Namespace, settings: Settings, setup: Setup | None, route: ModelRoute
) -> Budget | None:
    """The window of a session; None for the one that its conversation has.

    A conversation that goes on with another model must not keep the window of the last one.
    """
    last = 0
    is_same_model = setup is not None and setup.model == route.model
    if setup is not None and is_same_model:
        last = _window_of(setup.budget)
    chosen = arguments.window
    if not chosen and setup is None and settings.model in (arguments.model, route.model):
        chosen = _window_of(load_user_policy(settings, os.environ).budget)
    budget = find_window(route, os.environ, chosen=chosen, last=last)
    if budget is None and not is_same_model:
        return facts_of(route.model).budget
    return budget


def _window_of(budget: Budget | int | None) -> int:
    """The context window of a budget; 0 without one."""
    if isinstance(budget, Budget):
        return budget.window
    return budget or 0


def _list_actions(tools: str, space: Workspace) -> tuple[Action, ...]:
    offers: tuple[Offer, ...] = ()
    if tools != "none":
        offers = workspace_tools(space, changes=tools == "all")
    return workspace_actions(offers)


def _write_command(arguments: argparse.Namespace, name: str) -> str:
    """The command that goes on with a session, in the same store and workspace."""
    words = ["lamina", "chat", "--conversation", name]
    if arguments.sealed:
        words.append("--sealed")
    if arguments.store:
        words += ["--store", hide_password(arguments.store)]
    if arguments.key_file:
        words += ["--key-file", arguments.key_file]
    if arguments.folder != ".":
        words += ["--folder", arguments.folder]
    return shlex.join(words)


class Chat:
    """A session and what it is talked through with. `failed`: a message had no answer."""

    def __init__(self, session: Session, agent: Agent, space: Workspace, terminal: Terminal) -> None:
        self.session = session
        self.agent = agent
        self.space = space
        self.terminal = terminal
        self.failed = False
        self._notes_shown = 0

    async def read_lines(self) -> None:
        """Take lines until the user leaves or the input ends. No error of a line ends the chat."""
        while True:
            line = self.terminal.read("> ")
            if line is None or line.strip() == "/quit":
                return
            if line.strip():
                await self._take_line(line)

    async def _take_line(self, line: str) -> None:
        try:
            if not await self.terminal.run(self._act(line)):
                self.terminal.end()
                self.terminal.remark("(interrupted; what was said is kept; say go on, or /retry)")
        except LaminaError as error:
            if isinstance(error, StoreError) and not self.terminal.live:
                raise
            self.failed = True
            self.terminal.problem(str(error))
        finally:
            self.terminal.end()
            for note in self.session.notes[self._notes_shown :]:
                self.terminal.remark(note)
            self._notes_shown = len(self.session.notes)

    async def _act(self, line: str) -> None:
        """A line that begins with a slash and a word is a command; every other one is a message."""
        word, _, rest = line.partition(" ")
        if not (word.startswith("/") and word[1:].isalpha()):
            await self.say(line.strip())
            return
        command = COMMANDS.get(word[1:])
        if command is None:
            hint = "/help lists them; a line that begins with a space is sent as it is"
            for name in difflib.get_close_matches(word[1:], COMMANDS, n=1, cutoff=0.7):
                hint = f"did you mean /{name}? {hint}"
            raise BadInput("there is no such command", place=word, hint=hint)
        await command.act(self, rest.strip())

    async def say(self, words: str) -> None:
        """One turn: the message, and what it names with @."""
        attachments: list[str] = []
        for quoted, bare in dict.fromkeys(_MENTION.findall(words)):
            mention = quoted or bare
            attachment = await to_thread.run_sync(self._find, mention)
            if attachment:
                attachments.append(attachment)
                self.terminal.remark(f"attached {attachment}")
            else:
                self.terminal.remark(f"@{mention}: no such file in the workspace, sent as words")
        await self._run_turn(partial(self.agent.run, prompt=words, attach=attachments))

    def _find(self, mention: str) -> str:
        """What is mentioned: a page, a tag, a file, or a folder with a slash; "" if it is nothing.

        In `look at @src/a.py.` it is `src/a.py`: the name with the full stop is tried first.
        """
        bare = mention.rstrip(_PUNCTUATION)
        if mention.startswith(("#", "http://", "https://")):
            return bare
        for path in (mention, bare):
            try:
                kind = self.space.kind(path)
            except BadInput:  # it leads out of the workspace, or is no path at all
                continue
            if kind == "folder":
                return f"{path.rstrip('/') or '.'}/"
            if kind:
                return path
        return ""

    async def retry(self, _: str) -> None:
        """The answer to the last message, for the first time or again."""
        if not self.session.pending and not self.session.calls:
            await self.session.regenerate()
        await self._run_turn(self.agent.go_on)

    async def edit(self, words: str) -> None:
        """Take back the last message and its answer, and send other words in its place."""
        _require(words, "/edit", "the new words")
        await self.session.rewind(-1)
        await self.say(words)

    async def why(self, key: str) -> None:
        """Show why each segment is sent as it is, or one of them."""
        rows = join_folds(self.session.explain().rows)
        if key:
            rows = [row for row in rows if key in (row.key, row.ref, row.recall)]
        if not rows:
            raise BadInput(f"nothing here is called {key!r}", place="/why", hint="/why lists the keys")
        self.terminal.show("\n".join(map(describe_row, rows)))

    async def context(self, _: str) -> None:
        """Show what fills the window. After a restart the request is built again to see it."""
        if not self.session.log:
            raise BadInput("nothing was said yet", place="/context", hint="ask something first")
        envelope = self.session.envelope or await self.session.build()
        self.terminal.show("\n".join(layer_lines(envelope)))
        if self.session.budget is not None:
            self.terminal.show(f"window {self.session.budget.window:,} tokens")
        cuts = envelope.ledger.cuts
        if cuts:
            self.terminal.show(f"{count_noun(len(cuts), 'cut')}; the last, {describe_cut(cuts[-1])}")

    async def recall(self, key: str) -> None:
        """Show the full text behind a key."""
        self.terminal.show(self.session.recall(_require(key, "/recall", "a key; /why lists them")).text)

    async def help(self, _: str) -> None:
        """Show all commands, each with what it takes and does."""
        usages = {f"/{name} {command.takes}": command.does for name, command in COMMANDS.items()}
        width = max(map(len, usages))
        self.terminal.show("\n".join(f"{usage:<{width}}  {does}" for usage, does in usages.items()))
        self.terminal.show(HELP)

    async def _run_turn(self, turn: Callable[..., Awaitable[TurnOutcome]]) -> None:
        """Run a turn and show its events, and what it took."""
        self.terminal.wait()
        outcome = await turn(self.session, hear=self.terminal.hear)
        self.terminal.end()
        if outcome.ending != "end":
            self.failed = self.failed or outcome.ending in ("error", "empty", "refused")
            self.terminal.problem(ENDINGS.get(outcome.ending, f"the turn ended: {outcome.ending}"))
        if self.session.envelope is not None:
            self.terminal.remark(describe_turn(self.session.envelope, outcome))


def describe_turn(envelope: Envelope, outcome: TurnOutcome) -> str:
    """The line after an answer: what was sent, what of it was cached, what was left out, what it cost.

    `sent 1,204 of 5,500 tokens · 1,000 of 1,210 from the cache · all 12 pieces in full · $0.0031`
    """
    spent = outcome.spent
    parts = [f"sent {envelope.tokens:,} of {envelope.room or 0:,} tokens"]
    if spent.steps > 1:
        parts = [f"{spent.steps} requests, the last of {envelope.tokens:,} tokens"]
    if spent.input:
        parts.append(f"{spent.cached:,} of {spent.input:,} from the cache")
    lowered = sum(entry.form is not Form.FULL for entry in envelope.entries)
    pieces = count_noun(len(envelope.entries), "piece")
    if lowered:
        parts.append(f"of {pieces} {lowered:,} shortened or left out (/why)")
    else:
        parts.append(f"all {pieces} in full")
    if spent.money:
        parts.append(f"${spent.money:.4f}")
    return " · ".join(parts)


def _require(words: str, command: str, what: str) -> str:
    """The argument of a command. Raises BadInput if there is none."""
    if not words:
        raise BadInput(f"it takes {what}", place=command, hint=f"write it after {command}")
    return words


class Command(NamedTuple):
    """A command. It is called with the chat and the rest of the line."""

    takes: str
    does: str
    act: Callable[[Chat, str], Awaitable[None]]


COMMANDS = {
    "context": Command("", "what fills the window, and the last cut", Chat.context),
    "why": Command("[KEY]", "why each piece is sent in full, shortened or not at all", Chat.why),
    "recall": Command("KEY", "show the full text behind a key", Chat.recall),
    "retry": Command("", "ask for the last answer again, or for its rest", Chat.retry),
    "edit": Command("WORDS", "take back the last message, and send these words instead", Chat.edit),
    "help": Command("", "this list", Chat.help),
}

HELP = """
In a message @path attaches a file or folder, @#tag the notes with a tag, @https://... a page.
Ctrl-C interrupts an answer, and what was said is kept; Ctrl-D or /quit leaves."""
