"""The commands of a chat, lines that begin with a slash: functions of the chat and the rest of the line.

They show and do what a session offers, and keep nothing of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import NamedTuple

from lamina.cli.chat.conversation import TerminalChat
from lamina.cli.chat.maps import NOTHING, account, reason, reasons, window_map
from lamina.cli.explain import price
from lamina.core.hashing import handle
from lamina.core.recall import identified, names
from lamina.core.values import Form, Segment
from lamina.core.wording import text_of
from lamina.errors import BadInput, BudgetExceeded, NotFound
from lamina.summaries import compact

Act = Callable[[TerminalChat, str], Awaitable[None]]


class Command(NamedTuple):
    """What a command takes and does, in words, and the function behind it."""

    takes: str
    does: str
    act: Act


async def _help(chat: TerminalChat, _: str) -> None:
    wide = max(len(f"/{name} {one.takes}") for name, one in COMMANDS.items())
    lines = [f"{f'/{name} {one.takes}':<{wide}}  {one.does}" for name, one in COMMANDS.items()]
    more = (
        "@path in a message attaches a file or folder; Tab completes it. Alt-Enter begins a new line.\n"
        "Ctrl-C interrupts an answer, and what was said is kept; Ctrl-D leaves."
    )
    chat.screen.show("\n".join([*lines, "", more]))


async def _context(chat: TerminalChat, _: str) -> None:
    session = chat.session
    envelope = session.envelope or (await session.build() if session.log else None)
    if envelope is None:
        chat.screen.show(NOTHING)
        return
    chat.screen.show(window_map(envelope, session.explain(), session.budget))


async def _why(chat: TerminalChat, key: str) -> None:
    rows = chat.session.explain().rows if chat.session.log else ()
    if not rows:
        chat.screen.show(NOTHING)
    elif not key:
        chat.screen.show(reasons(rows, width=chat.screen.width))
    else:
        found = _meant(chat, key)
        known = [row for row in rows if names(identified(chat.session.log)).get(row.ref) is found]
        chat.screen.show("\n\n".join(reason(row, text_of(found.parts)) for row in known) or NOTHING)


async def _compact(chat: TerminalChat, instructions: str) -> None:
    chat.screen.wait()
    made = await compact(chat.session, chat.write, instructions=instructions)
    chat.screen.end()
    for note in made.notes:
        chat.screen.remark(note)
    if made.segment is None:
        chat.screen.show("nothing was summarised")
        return
    await chat.session.build()
    chat.screen.show(f"summarised by the {made.by}: {made.before:,} tokens are {made.after:,} now")


async def _pin(chat: TerminalChat, key: str) -> None:
    if not key:
        held = [name(one) for one in chat.session.log if one.pinned]
        chat.screen.show("\n".join(held) or "nothing is pinned; /pin KEY does it, /why lists the keys")
        return
    found = _meant(chat, key)
    ref = _ref(chat, found)
    await chat.session.pin(ref)
    try:
        envelope = await chat.session.build()
    except BudgetExceeded:
        await chat.session.pin(ref, on=found.pinned)  # as it was
        raise
    if envelope.entry(ref).form is Form.FULL:
        chat.screen.show(f"{name(found)} stands in full, and no cut lowers it")
    else:
        chat.screen.show(
            f"{name(found)} was lowered before, and is lowered no further; attach it to send it anew"
        )


async def _unpin(chat: TerminalChat, key: str) -> None:
    if not key:
        raise BadInput("it takes a key", place="/unpin", hint="/pin lists what is pinned")
    found = _meant(chat, key)
    await chat.session.pin(_ref(chat, found), on=False)
    chat.screen.show(f"{name(found)} may be lowered by the next cut")


async def _recall(chat: TerminalChat, given: str) -> None:
    if not given:
        raise BadInput("it takes a key", place="/recall", hint="/why lists them")
    found = _meant(chat, given)
    chat.screen.show(text_of(found.parts))


async def _cost(chat: TerminalChat, _: str) -> None:
    envelope = chat.session.envelope
    ahead = ""
    if envelope is not None and (cost := price(chat.session.setup.model, envelope.tokens)):
        ahead = (
            f"the last request again: {envelope.tokens:,} tokens, ${cost['uncached']:.4f} uncached, "
            f"${cost['read']:.4f} from the cache ({cost['as_of']})"
        )
    chat.screen.show(account(chat.last, chat.spent, ahead))


async def _attach(chat: TerminalChat, path: str) -> None:
    if path:
        await chat.attach(path.removeprefix("@").strip('"'))
    held = ", ".join(one.key for one in chat.queue) or "nothing"
    chat.screen.show(f"with your next message: {held}")


async def _retry(chat: TerminalChat, _: str) -> None:
    await chat.retry()


async def _sessions(chat: TerminalChat, _: str) -> None:
    listed = [one.conversation for one in await chat.store.list(chat.session.workspace, limit=10_000)]
    own = chat.session.conversation
    chat.screen.show("\n".join(f"{'*' if one == own else ' '} {one}" for one in listed) or "none is kept yet")


async def _new(chat: TerminalChat, named: str) -> None:
    chat.leave(named or fresh_name())


async def _open(chat: TerminalChat, named: str) -> None:
    listed = [one.conversation for one in await chat.store.list(chat.session.workspace, limit=10_000)]
    if named not in listed:
        raise BadInput(f"there is no session {named!r}", place="/open", hint="/sessions lists them")
    chat.leave(named)


async def _quit(chat: TerminalChat, _: str) -> None:
    chat.leave()


COMMANDS = {
    "attach": Command("[PATH]", "attach a file or folder to the next message", _attach),
    "context": Command("", "what the model sees: layers, tokens, forms, budget", _context),
    "why": Command("[KEY]", "why each segment stands in its form", _why),
    "pin": Command("[KEY]", "keep a segment as it stands, whatever is cut", _pin),
    "unpin": Command("KEY", "let a cut lower it again", _unpin),
    "recall": Command("KEY", "show the full text behind a key", _recall),
    "compact": Command("[HOW]", "summarise what is old, now", _compact),
    "cost": Command("", "what this chat took so far", _cost),
    "retry": Command("", "ask for the last answer again", _retry),
    "new": Command("[NAME]", "begin another session", _new),
    "open": Command("NAME", "go on with another session", _open),
    "sessions": Command("", "list the sessions that are kept", _sessions),
    "help": Command("", "this list", _help),
    "quit": Command("", "leave; the session is kept", _quit),
}


def name(segment: Segment) -> str:
    """What a segment is called: its key, else its handle."""
    if segment.key:
        return segment.key
    [identity] = identified([segment])
    return handle(identity.content)


def keys(log: tuple[Segment, ...]) -> list[str]:
    """What the segments of a log are called, the newest first."""
    return list(dict.fromkeys(name(one) for one in reversed(log)))


def _meant(chat: TerminalChat, key: str) -> Segment:
    """The segment with this key, handle or ref; or the only one whose name begins like that."""
    known = names(identified(chat.session.log))
    start = key.rstrip("…")
    if key in known:
        return known[key]
    begun = {id(one): one for called, one in known.items() if start and called.startswith(start)}
    if len(begun) == 1:
        return next(iter(begun.values()))
    if begun:
        raise BadInput(
            f"{len(begun)} keys begin with {start!r}", place="key", hint="give more of it; /why lists them"
        )
    raise NotFound(key)


def _ref(chat: TerminalChat, found: Segment) -> str:
    return next(each.ref for each in identified(chat.session.log) if each.segment is found)


def fresh_name() -> str:
    """A name for a session that says when it began."""
    return f"chat-{datetime.now().astimezone():%Y-%m-%d-%H%M%S}"
