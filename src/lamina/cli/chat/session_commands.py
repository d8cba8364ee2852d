"""Commands about sessions and how they are set up: their names, models, windows and personas."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import anyio

from lamina.agent.profiles import EXPLORER
from lamina.cli.chat.conversation import Command, NextSession, TerminalChat, require
from lamina.cli.chat.costs import copy_cost
from lamina.cli.output import shorten
from lamina.context.memory import MEMORY
from lamina.conversations.deleting import cost_place, delete_conversation
from lamina.core.history_window import LastN
from lamina.core.wording import text_of
from lamina.errors import BadInput, LaminaError
from lamina.formats.codec import encode
from lamina.sessions.records import read_records
from lamina.sessions.system_sections import Words
from lamina.sessions.turns import list_dialogue, write_page
from lamina.stores.paging import every_conversation
from lamina.stores.port import Where

MOST_SESSIONS = 30
"""Sessions that the list shows. Each of them is read for it."""

LONGEST_PATH = 1_000
"""Characters of a path; a longer persona is a text."""


async def _sessions(chat: TerminalChat, _: str) -> None:
    """List the sessions of this workspace, those that were used last at the end."""
    names = await list_sessions(chat)
    if not names:
        chat.screen.show("none is kept yet")
        return
    rows = [await _describe_session(chat, name) for name in names[-MOST_SESSIONS:]]
    width = max(len(row.name) for row in rows)
    lines = []
    for row in sorted(rows, key=lambda row: row.last):
        mark = " "
        if row.name == chat.session.conversation:
            mark = "*"
        line = f"{mark} {row.name:<{width}}  {row.last:<16}  {row.first_words}".rstrip()
        lines.append(shorten(line, chat.screen.width))
    if len(names) > len(rows):
        lines.append(f"and {len(names) - len(rows):,} more, which `lamina conversations list` names")
    chat.screen.show("\n".join(lines))


class SessionRow(NamedTuple):
    """A line of the list: the session's name, the time of its last words, and how it began."""

    name: str
    last: str
    first_words: str


async def _describe_session(chat: TerminalChat, name: str) -> SessionRow:
    """One row of /sessions: its name, its last moment in the user's time zone, and its first words."""
    page = await chat.store.read(Where(chat.session.workspace, name))
    try:
        log = read_records([record.body for record in page.records]).log
    except LaminaError:
        return SessionRow(name, "", "(it cannot be read; see lamina conversations verify)")
    dialogue = list_dialogue(log)
    if not dialogue:
        return SessionRow(name, "", "(nothing was said yet)")
    last = ""
    if dialogue[-1].at:
        last = f"{datetime.fromisoformat(dialogue[-1].at).astimezone():%Y-%m-%d %H:%M}"
    return SessionRow(name, last, " ".join(dialogue[0].text.split()))


async def list_sessions(chat: TerminalChat) -> list[str]:
    """The names of all sessions of this workspace."""
    heads = every_conversation(chat.store, chat.session.workspace)
    return [head.conversation async for head in heads if head.conversation != MEMORY]


async def _new(chat: TerminalChat, name: str) -> None:
    """Begin a new session, under this name or a fresh one."""
    chat.leave(_fresh_session(chat, name or fresh_name()))


def _fresh_session(chat: TerminalChat, name: str) -> NextSession:
    """A new session with the model of this one."""
    setup = chat.session.setup
    return NextSession(name=name, model=setup.model, window=chat.route.window, history=setup.history)


async def _open(chat: TerminalChat, name: str) -> None:
    await _require_session(chat, name, command="/open")
    chat.leave(NextSession(name=name))


async def _require_session(chat: TerminalChat, name: str, *, command: str) -> None:
    if name not in await list_sessions(chat):
        raise BadInput(f"there is no session {name!r}", place=command, hint="/sessions lists them")


async def _rename(chat: TerminalChat, name: str) -> None:
    """Give the session another name. It is copied whole under the new name before the old one is deleted."""
    require(name, command="/rename", what="a name", hint="write it after /rename")
    session = chat.session
    if not session.log:
        raise BadInput("nothing was said yet", place="/rename", hint=f"/new {name} begins one of this name")
    if name in await list_sessions(chat):
        raise BadInput(f"there is a session {name!r}", place="/rename", hint="choose another name")
    old = Where(session.workspace, session.conversation)
    page = await chat.store.read(old)
    bodies = [record.body for record in page.records]
    await chat.store.append(Where(session.workspace, name), bodies, expect=0, state=page.head.state)
    await copy_cost(
        chat.store,
        cost_place(session.workspace, session.conversation),
        cost_place(session.workspace, name),
    )
    await delete_conversation(chat.store, session.workspace, session.conversation)
    chat.reopen(name=name)


async def _delete(chat: TerminalChat, name: str) -> None:
    """Delete a session for good, this one or another. The user is asked first."""
    name = name or chat.session.conversation
    await _require_session(chat, name, command="/delete")
    otherwise = f"lamina conversations delete {name} --yes"
    if not await chat.confirm(f"delete {name!r} and all that was said in it, for good?", otherwise=otherwise):
        chat.screen.show("nothing was deleted")
        return
    await delete_conversation(chat.store, chat.session.workspace, name)
    chat.screen.show(f"{name!r} is deleted")
    if name == chat.session.conversation:
        chat.leave(_fresh_session(chat, fresh_name()))


async def _export(chat: TerminalChat, path: str) -> None:
    """Write the session into a file: a page to read, or, as .jsonl, one JSON record to a line."""
    target = anyio.Path(path or f"{chat.session.conversation}.md")
    target = await target.expanduser()
    if await target.exists():
        question = f"{target} is there already; overwrite it?"
        if not await chat.confirm(question, otherwise="name another file"):
            chat.screen.show("nothing was written")
            return
    text = _export_text(chat, lines=target.suffix == ".jsonl")
    try:
        await target.write_text(text, "utf-8")
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", place=str(target), hint="check it") from None
    chat.screen.show(f"written to {target}")


def _export_text(chat: TerminalChat, *, lines: bool) -> str:
    if lines:
        return "".join(f"{encode(segment).decode()}\n" for segment in chat.session.log)
    return write_page(chat.session.log)


async def _model(chat: TerminalChat, words: str) -> None:
    """Go on with another model, or show which one this is."""
    if not words:
        chat.screen.show(f"{chat.session.setup.model}; /model NAME [WINDOW] changes it for this session")
        return
    name, _, window_text = words.partition(" ")
    window = 0
    if window_text:
        window = _whole_number(window_text, command="/model")
    chat.reopen(model=name, window=window)


async def _window(chat: TerminalChat, words: str) -> None:
    """Use another context window for this session, or show which one it has."""
    if not words:
        budget = chat.session.budget
        size = "not known"
        if budget is not None:
            size = f"{budget.window:,} tokens"
        chat.screen.show(f"the window of {chat.session.setup.model} is {size}; /window N changes it")
        return
    chat.reopen(window=_whole_number(words, command="/window"))


async def _last(chat: TerminalChat, words: str) -> None:
    """Send only the last messages of the history from here on, or all of it."""
    if not words:
        history = chat.session.setup.history
        sent = "all messages are"
        if history is not None:
            sent = f"the last {history.messages:,} messages are"
        chat.screen.show(f"{sent} sent; /last N or /last all changes it")
        return
    if words == "all":
        chat.session.set_history("all")
        chat.screen.show("all messages are sent, as far as they fit")
        return
    count = _whole_number(words, command="/last")
    chat.session.set_history(LastN(count))
    chat.screen.show(f"the last {count:,} messages are sent; the rest is kept, and can be recalled")


def _whole_number(text: str, *, command: str) -> int:
    digits = text.strip().replace(",", "").replace("_", "")
    if not digits.isdecimal() or not int(digits):
        raise BadInput(f"{text!r:.40} is not a number", place=command, hint="give a whole number above 0")
    return int(digits)


async def _agent(chat: TerminalChat, name: str) -> None:
    """Go on with a named agent, which has a persona, tools and limits of its own; or list those there are."""
    if not name:
        chat.screen.show(_list_agents(chat) or NO_AGENTS)
        return
    if name == "none":
        chat.reopen(agent="", persona=EXPLORER)
        return
    profile = chat.agents[name]
    chat.persona = None  # the one that was chosen before is not this agent's
    chat.reopen(agent=name, model=profile.model)


NO_AGENTS = "there is none; docs/agent.md says how to write agents.toml, which stands beside your settings"


def _list_agents(chat: TerminalChat) -> str:
    """One line for each agent: its name, marked if it is the one that answers, and what it does."""
    lines = []
    width = max(map(len, chat.agents), default=0)
    for name, profile in sorted(chat.agents.items()):
        mark = "*" if name == chat.agent.profile.name else " "
        lines.append(shorten(f"{mark} {name:<{width}}  {profile.about}".rstrip(), chat.screen.width))
    return "\n".join(lines)


async def _persona(chat: TerminalChat, text: str) -> None:
    """Change who the model is in this session, or show who it is."""
    if not text:
        chat.screen.show(_describe_persona(chat))
        return
    chat.reopen(persona=find_persona(text, place="/persona"))


def _describe_persona(chat: TerminalChat) -> str:
    """Who the model is from the next message on: as it was chosen in this run, else as it was sent last."""
    if isinstance(chat.persona, Path):
        return f"the text of {chat.persona}"
    if chat.persona is not None:
        return str(chat.persona)
    texts: dict[str, str] = {}
    for segment in chat.session.log:
        if segment.kind == "persona":
            texts[segment.key] = text_of(segment.parts)  # a later one of the same key replaces it
    return "\n\n".join(filter(None, texts.values())) or "the usual one; /persona TEXT|FILE changes it"


def find_persona(text: str, *, place: str) -> Words | None:
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
    # A mistyped `persona.md` would else be sent as the persona itself.
    if " " not in text and path.suffix:
        hint = "check the path, or give the persona itself as a text"
        raise BadInput("there is no such file", place=f"{place} {text}", hint=hint)
    return text


SESSION_COMMANDS = {
    "model": Command("[NAME]", "go on with another model; NAME N sets its window, too", _model),
    "window": Command("[N]", "the context window in tokens, for this session", _window),
    "last": Command("[N|all]", "send only the last N messages of the history", _last),
    "agent": Command("[NAME]", "go on with a named agent, or with none; without a name, list them", _agent),
    "persona": Command("[P]", "who the model is: a text, or a file that has it", _persona),
    "new": Command("[NAME]", "begin another session", _new),
    "open": Command("NAME", "go on with another session, and its model", _open),
    "sessions": Command("", "list the sessions: when each was last used, and how it began", _sessions),
    "rename": Command("NAME", "give this session another name", _rename),
    "export": Command("[FILE]", "write this session to a file: Markdown, or JSON lines in .jsonl", _export),
    "delete": Command("[NAME]", "delete this session or another, for good", _delete),
}


def fresh_name() -> str:
    """A name for a session that says when it began."""
    return f"chat-{datetime.now().astimezone():%Y-%m-%d-%H%M%S}"
