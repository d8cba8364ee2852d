"""The commands of a chat, lines that begin with a slash: functions of the chat and the rest of the line.

They show and do what a session offers, and keep nothing of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import NamedTuple

from lamina.cli.chat.conversation import TerminalChat
from lamina.cli.chat.maps import NOTHING, reasons_table, segment_reason, shorten, spending_text, window_map
from lamina.cli.explain import input_price
from lamina.core.hashing import handle
from lamina.core.recall import identify_segments, index_by_name
from lamina.core.values import Form, Segment
from lamina.core.wording import text_of
from lamina.errors import BadInput, BudgetExceeded, LaminaError
from lamina.sessions.records import read_records
from lamina.sessions.turns import list_dialogue
from lamina.stores.port import Where
from lamina.summaries import compact

MOST_SESSIONS = 30
"""Sessions that the list shows. Each of them is read for it."""

Act = Callable[[TerminalChat, str], Awaitable[None]]


class Command(NamedTuple):
    """What a command takes and does, in words, and the function behind it."""

    takes: str
    does: str
    act: Act


async def _help(chat: TerminalChat, _: str) -> None:
    """Show all commands, each with what it takes and does."""
    usages = {f"/{name} {command.takes}": command.does for name, command in COMMANDS.items()}
    width = max(len(usage) for usage in usages)
    lines = [f"{usage:<{width}}  {does}" for usage, does in usages.items()]
    more = (
        "@path in a message attaches a file or folder; Tab completes it. Alt-Enter begins a new line.\n"
        "Ctrl-C interrupts an answer, and what was said is kept; Ctrl-D leaves."
    )
    chat.screen.show("\n".join([*lines, "", more]))


async def _context(chat: TerminalChat, _: str) -> None:
    """Show what fills the window. After a restart the request is built again to see it."""
    session = chat.session
    envelope = session.envelope
    if envelope is None and session.log:
        envelope = await session.build()
    if envelope is None:
        chat.screen.show(NOTHING)
        return
    chat.screen.show(window_map(envelope, session.explain(), session.budget))


async def _inspect(chat: TerminalChat, _: str) -> None:
    address = chat.start_inspector()
    chat.screen.show(f"what the model sees, request by request: {address}")


async def _why(chat: TerminalChat, key: str) -> None:
    """Show why each segment is sent as it is, or all that is known of one."""
    rows = chat.session.explain().rows if chat.session.log else ()
    if not rows:
        chat.screen.show(NOTHING)
        return
    if not key:
        chat.screen.show(reasons_table(rows, width=chat.screen.width))
        return
    segment = _find_segment(chat, key)
    text = text_of(segment.parts)
    segments_by_name = index_by_name(identify_segments(chat.session.log))
    reasons = [segment_reason(row, text) for row in rows if segments_by_name.get(row.ref) is segment]
    chat.screen.show("\n\n".join(reasons) or NOTHING)


async def _compact(chat: TerminalChat, instructions: str) -> None:
    """Summarise the conversation so far, and show what that saved.

    The request is built at once, so that /context shows it as the next message will find it.
    """
    chat.screen.wait()
    compaction = await compact(chat.session, chat.write, instructions=instructions)
    chat.screen.end()
    chat.remarks(compaction.notes)
    if compaction.segment is None:
        if not compaction.notes:
            chat.screen.show("nothing was summarised")
        return
    await chat.session.build()
    tokens = f"{compaction.before:,} tokens are {compaction.after:,} now"
    chat.screen.show(f"summarised by the {compaction.by}: {tokens}")


async def _pin(chat: TerminalChat, key: str) -> None:
    """Pin a segment, or list those that are pinned.

    The request is built at once. If the pinned segment leaves no room for the rest, the pin is taken
    back.
    """
    if not key:
        pinned = [segment_name(segment) for segment in chat.session.log if segment.pinned]
        chat.screen.show("\n".join(pinned) or "nothing is pinned; /pin KEY does it, /why lists the keys")
        return
    segment = _find_segment(chat, key)
    ref = _ref_of(chat, segment)
    await chat.session.pin(ref)
    try:
        envelope = await chat.session.build()
    except BudgetExceeded:
        await chat.session.pin(ref, on=segment.pinned)  # as it was
        raise
    if envelope.entry(ref).form is Form.FULL:
        chat.screen.show(f"{segment_name(segment)} stands in full, and no cut lowers it")
        return
    chat.screen.show(
        f"{segment_name(segment)} was lowered before, and is lowered no further; attach it to send it anew"
    )


async def _unpin(chat: TerminalChat, key: str) -> None:
    if not key:
        raise BadInput("it takes a key", place="/unpin", hint="/pin lists what is pinned")
    segment = _find_segment(chat, key)
    await chat.session.pin(_ref_of(chat, segment), on=False)
    chat.screen.show(f"{segment_name(segment)} may be lowered by the next cut")


async def _recall(chat: TerminalChat, key: str) -> None:
    if not key:
        raise BadInput("it takes a key", place="/recall", hint="/why lists them")
    chat.screen.show(text_of(_find_segment(chat, key).parts))


async def _cost(chat: TerminalChat, _: str) -> None:
    chat.screen.show(spending_text(chat.last, chat.cost, _cost_of_last_request(chat)))


def _cost_of_last_request(chat: TerminalChat) -> str:
    """What the last request would cost once more; empty without a request or a price."""
    envelope = chat.session.envelope
    if envelope is None:
        return ""
    price = input_price(chat.session.setup.model, envelope.tokens)
    if price is None:
        return ""
    return (
        f"the last request again: {envelope.tokens:,} tokens, ${price['uncached']:.4f} uncached, "
        f"${price['read']:.4f} from the cache ({price['as_of']})"
    )


async def _attach(chat: TerminalChat, path: str) -> None:
    """Attach a file or folder to the next message, and show what waits for it."""
    if path:
        await chat.attach(path.removeprefix("@").strip('"'))
    waiting = ", ".join(segment.key for segment in chat.queue) or "nothing"
    chat.screen.show(f"with your next message: {waiting}")


async def _retry(chat: TerminalChat, _: str) -> None:
    await chat.retry()


async def _sessions(chat: TerminalChat, _: str) -> None:
    """List the sessions of this workspace, those that were used last at the end."""
    names = await _list_sessions(chat)
    if not names:
        chat.screen.show("none is kept yet")
        return
    rows = [await _describe_session(chat, name) for name in names[-MOST_SESSIONS:]]
    width = max(len(row.name) for row in rows)
    lines = []
    for row in sorted(rows, key=lambda row: row.last):
        mark = "*" if row.name == chat.session.conversation else " "
        line = f"{mark} {row.name:<{width}}  {row.last:<16}  {row.first_words}".rstrip()
        lines.append(shorten(line, chat.screen.width))
    if len(names) > len(rows):
        lines.append(f"and {len(names) - len(rows):,} more, which `lamina sessions list` names")
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
        return SessionRow(name, "", "(it cannot be read; see lamina sessions verify)")
    dialogue = list_dialogue(log)
    if not dialogue:
        return SessionRow(name, "", "(nothing was said yet)")
    last = ""
    if dialogue[-1].at:
        last = f"{datetime.fromisoformat(dialogue[-1].at).astimezone():%Y-%m-%d %H:%M}"
    return SessionRow(name, last, " ".join(dialogue[0].text.split()))


async def _list_sessions(chat: TerminalChat) -> list[str]:
    """The names of all sessions of this workspace."""
    heads = await chat.store.list(chat.session.workspace, limit=10_000)
    return [head.conversation for head in heads]


async def _new(chat: TerminalChat, name: str) -> None:
    """Begin a new session, under this name or a fresh one."""
    chat.leave(name or fresh_name())


async def _open(chat: TerminalChat, name: str) -> None:
    if name not in await _list_sessions(chat):
        raise BadInput(f"there is no session {name!r}", place="/open", hint="/sessions lists them")
    chat.leave(name)


async def _quit(chat: TerminalChat, _: str) -> None:
    chat.leave()


COMMANDS = {
    "attach": Command("[PATH]", "attach a file or folder to the next message", _attach),
    "context": Command("", "what the model sees: layers, tokens, forms, budget", _context),
    "inspect": Command("", "the same in a browser, for every request so far", _inspect),
    "why": Command("[KEY]", "why each piece is sent in full, shortened or not at all", _why),
    "pin": Command("[KEY]", "keep a segment as it stands, whatever is cut", _pin),
    "unpin": Command("KEY", "let a cut lower it again", _unpin),
    "recall": Command("KEY", "show the full text behind a key", _recall),
    "compact": Command("[HOW]", "summarise what is old, now", _compact),
    "cost": Command("", "what the last turn and the whole conversation took", _cost),
    "retry": Command("", "ask for the last answer again", _retry),
    "new": Command("[NAME]", "begin another session", _new),
    "open": Command("NAME", "go on with another session", _open),
    "sessions": Command("", "list the sessions: when each was last used, and how it began", _sessions),
    "help": Command("", "this list", _help),
    "quit": Command("", "leave; the session is kept", _quit),
}


def segment_name(segment: Segment) -> str:
    """What a segment is called: its key, else its handle."""
    if segment.key:
        return segment.key
    [identity] = identify_segments([segment])
    return handle(identity.content)


def segment_names(log: tuple[Segment, ...]) -> list[str]:
    """What the segments of a log are called, the newest first."""
    return list(dict.fromkeys(segment_name(segment) for segment in reversed(log)))


def _find_segment(chat: TerminalChat, key: str) -> Segment:
    """The segment with this key, handle or ref; or the only one whose name begins like that.

    A key may be copied from a table in which it was shortened, with an ellipsis at its end.
    """
    segments_by_name = index_by_name(identify_segments(chat.session.log))
    if key in segments_by_name:
        return segments_by_name[key]
    start = key.rstrip("…")
    matches: dict[int, Segment] = {}  # by id: a segment has several names
    for name, segment in segments_by_name.items():
        if start and name.startswith(start):
            matches[id(segment)] = segment
    if not matches:
        raise BadInput(f"nothing here is called {key!r}", place="key", hint="/why lists the keys")
    if len(matches) > 1:
        hint = "give more of it; /why lists them"
        raise BadInput(f"{len(matches)} keys begin with {start!r}", place="key", hint=hint)
    [match] = matches.values()
    return match


def _ref_of(chat: TerminalChat, segment: Segment) -> str:
    """The ref of a segment, by which the session knows it."""
    return next(each.ref for each in identify_segments(chat.session.log) if each.segment is segment)


def fresh_name() -> str:
    """A name for a session that says when it began."""
    return f"chat-{datetime.now().astimezone():%Y-%m-%d-%H%M%S}"
