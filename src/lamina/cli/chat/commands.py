"""The commands of a chat, lines that begin with a slash: functions of the chat and the rest of the line.

They show and do what a session offers, and keep nothing of their own. Those about sessions, models and
personas are in `session_commands`.

A saved prompt is a Markdown file in the folder `prompts` of the user's settings, to be edited with any
editor. It is sent with `/prompt NAME words`. The words stand where the prompt has `{}`, else after it.
"""

from __future__ import annotations

import re
from pathlib import Path

from anyio import to_thread

from lamina.cli.chat.conversation import (
    Command,
    TerminalChat,
    change_fact,
    list_facts,
    remember_fact,
    require,
)
from lamina.cli.chat.maps import NOTHING, reasons_table, segment_reason, spending_text, window_map
from lamina.cli.chat.session_commands import SESSION_COMMANDS
from lamina.cli.explain import input_price
from lamina.cli.output import shorten
from lamina.core.hashing import handle
from lamina.core.recall import identify_segments, index_by_name
from lamina.core.values import Form, Segment
from lamina.core.wording import describe_segment, text_of
from lamina.errors import BadInput, BudgetExceeded
from lamina.settings import config_folder
from lamina.summaries import compact

NO_FACTS = 'nothing is remembered; begin a line with "remember that", or use /remember'
NO_PROMPTS = "no prompt is saved; /save NAME TEXT saves one"

FOLDER = "prompts"
PLACE = "{}"

_NAME = re.compile(r"[\w-]{1,60}")
"""A name that is a file name on every system."""


async def _search(chat: TerminalChat, query: str) -> None:
    """Show the passages of the workspace and of old chats that answer a query best, with numbers."""
    require(query, command="/search", what="words", hint="write what to look for after /search")
    chat.screen.wait("reading the workspace and the chats")
    passages, notes = await chat.searched.find(query)
    chat.screen.end()
    chat.passages = passages
    chat.remarks(notes)
    if not passages:
        chat.screen.show("nothing was found")
        return
    width = chat.screen.width
    lines = []
    for number, passage in enumerate(passages, 1):
        title = f"{number:>2}  {passage.sort} {passage.name}"
        if passage.place:
            title += f", {passage.place}"
        lines.append(shorten(title, width))
        lines.append(shorten(f"    {' '.join(passage.text.split())}", width))
    lines.append("/attach N sends one with your next message; /open NAME goes on with a chat")
    chat.screen.show("\n".join(lines))


async def _remember(chat: TerminalChat, text: str) -> None:
    require(text, command="/remember", what="a fact", hint="for instance: /remember I write British English")
    number = await remember_fact(chat.memory, text, source=chat.session.conversation)
    chat.screen.show(f"remembered as {number}, for every chat")


async def _memory(chat: TerminalChat, words: str) -> None:
    """Show what is remembered, or change one fact."""
    if not words:
        chat.screen.show(list_facts(await chat.memory.facts()) or NO_FACTS)
        return
    number, _, text = words.partition(" ")
    require(text, command="/memory", what="a number and a text", hint="/memory 2 The new text")
    await change_fact(chat.memory, number, text.strip(), source=chat.session.conversation)
    chat.screen.show(f"{number} is changed")


async def _forget(chat: TerminalChat, number: str) -> None:
    require(number, command="/forget", what="a number", hint="/memory lists them")
    fact = await chat.memory.forget(number, source=chat.session.conversation)
    chat.screen.show(f"forgotten: {fact.text}")


async def _prompt(chat: TerminalChat, words: str) -> None:
    """Send a saved prompt, with the rest of the line in it; or list those that are saved."""
    if not words:
        prompts = await to_thread.run_sync(list_prompts)
        lines = [
            shorten(f"{name}: {' '.join(text.split())}", chat.screen.width) for name, text in prompts.items()
        ]
        chat.screen.show("\n".join(lines) or NO_PROMPTS)
        return
    name, _, rest = words.partition(" ")
    await chat.say(await to_thread.run_sync(fill_prompt, name, rest.strip()))


async def _save(chat: TerminalChat, words: str) -> None:
    """Save a prompt: the given text, or else the last message."""
    require(words, command="/save", what="a name and a text", hint="/save review Look for mistakes in {}")
    name, _, text = words.partition(" ")
    path = await to_thread.run_sync(save_prompt, name, text.strip() or chat.last_words())
    chat.screen.show(f"saved in {path}; /prompt {name} sends it")


LOOKUP_COMMANDS = {
    "search": Command("WORDS", "find passages in the workspace and in old chats", _search),
    "remember": Command("FACT", "keep a fact for every chat", _remember),
    "memory": Command("[N TEXT]", "what is remembered; with N TEXT, change it", _memory),
    "forget": Command("N", "forget a fact", _forget),
    "prompt": Command("[NAME]", "send a saved prompt, with the words after its name in it", _prompt),
    "save": Command("NAME [TEXT]", "save a prompt: TEXT, or your last message", _save),
}


async def _help(chat: TerminalChat, _: str) -> None:
    """Show all commands, each with what it takes and does."""
    usages = {f"/{name} {command.takes}": command.does for name, command in COMMANDS.items()}
    width = max(len(usage) for usage in usages)
    lines = [f"{usage:<{width}}  {does}" for usage, does in usages.items()]
    more = (
        "In a message @path attaches a file or folder, @#tag the notes with a tag, @https://... a page; Tab\n"
        'completes. A line that begins with "remember that" is kept for every chat. Alt-Enter begins a new\n'
        "line. Ctrl-C interrupts an answer, and what was said is kept; Ctrl-D leaves."
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
    chat.screen.show(window_map(envelope, session.explain(), session.budget, session.setup.prefer))


async def _inspect(chat: TerminalChat, _: str) -> None:
    address = chat.start_inspector()
    chat.screen.show(f"what the model sees, request by request: {address}")


async def _why(chat: TerminalChat, key: str) -> None:
    """Show why each segment is sent as it is, or all that is known of one."""
    if not chat.session.log:
        chat.screen.show(NOTHING)
        return
    rows = chat.session.explain().rows
    if not key:
        chat.screen.show(reasons_table(rows, width=chat.screen.width))
        return
    digest = _find_digest(chat, key)
    if digest is not None:
        [row] = [row for row in rows if row.key == digest]
        chat.screen.show(segment_reason(row, chat.session.recall(digest).text))
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
    was_pinned = _list_pinned(chat)
    await chat.session.pin(_pin_name(chat, key, segment))
    for new_ref in _list_pinned(chat) - was_pinned:
        ref = new_ref
    try:
        envelope = await chat.session.build()
    except BudgetExceeded:
        await chat.session.pin(ref, on=ref in was_pinned)  # as it was
        raise
    if envelope.entry(ref).form is Form.FULL:
        chat.screen.show(f"{segment_name(segment)} stands in full, and no cut shortens it")
        return
    chat.screen.show(
        f"{segment_name(segment)} was shortened before, and no further from now on; attach it to send it anew"
    )


async def _unpin(chat: TerminalChat, key: str) -> None:
    require(key, command="/unpin", what="a key", hint="/pin lists what is pinned")
    segment = _find_segment(chat, key)
    await chat.session.pin(_pin_name(chat, key, segment), on=False)
    chat.screen.show(f"{segment_name(segment)} may be shortened by the next cut")


async def _recall(chat: TerminalChat, key: str) -> None:
    require(key, command="/recall", what="a key", hint="/why lists them")
    digest = _find_digest(chat, key)
    if digest is None:
        chat.screen.show(text_of(_find_segment(chat, key).parts))
    else:
        chat.screen.show(chat.session.recall(digest).text)


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


async def _attach(chat: TerminalChat, name: str) -> None:
    """Attach something to the next message, and show what waits for it."""
    if name:
        await chat.attach(name.removeprefix("@").strip('"'))
    waiting = ", ".join(describe_segment(segment) for segment in chat.queue) or "nothing"
    chat.screen.show(f"with your next message: {waiting}")


async def _retry(chat: TerminalChat, _: str) -> None:
    await chat.retry()


async def _continue(chat: TerminalChat, _: str) -> None:
    await chat.go_on()


async def _edit(chat: TerminalChat, words: str) -> None:
    """Send other words in place of the last message; without words, let the user edit them."""
    last_words = chat.last_words()
    if words:
        await chat.edit(words)
        return
    if not chat.lines.edits:
        raise BadInput("it takes the new words", place="/edit", hint="write them after it")
    chat.draft = last_words


async def _quit(chat: TerminalChat, _: str) -> None:
    chat.leave()


COMMANDS = {
    "attach": Command(
        "[NAME]", "attach a file, folder, #tag, link or found passage to the next message", _attach
    ),
    **LOOKUP_COMMANDS,
    "context": Command("", "what the model sees: where the tokens go, what was cut", _context),
    "inspect": Command("", "the same in a browser, for every request so far", _inspect),
    "why": Command("[KEY]", "why each piece is sent in full, shortened or not at all", _why),
    "pin": Command("[KEY]", "keep a message or a file as it stands, whatever is cut", _pin),
    "unpin": Command("KEY", "let a cut shorten it again", _unpin),
    "recall": Command("KEY", "show the full text behind a key", _recall),
    "compact": Command("[HOW]", "summarise what is old, now", _compact),
    "cost": Command("", "what the last turn and the whole conversation took", _cost),
    "retry": Command("", "ask for the last answer again", _retry),
    "edit": Command("[WORDS]", "change the last message and send it again", _edit),
    "continue": Command("", "go on with an answer that was interrupted or cut off", _continue),
    **SESSION_COMMANDS,
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


def _find_digest(chat: TerminalChat, key: str) -> str | None:
    """The key of the digest that is meant, which may be shortened; None if no digest has it."""
    start = key.rstrip("…")
    keys = [fold.key for fold in chat.session.ledger.folds if start and fold.key.startswith(start)]
    return keys[0] if len(keys) == 1 else None


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


def _list_pinned(chat: TerminalChat) -> set[str]:
    """The refs of all segments that are pinned."""
    return {each.ref for each in identify_segments(chat.session.log) if each.segment.pinned}


def _pin_name(chat: TerminalChat, key: str, segment: Segment) -> str:
    """The name to pin a segment by. By its key the session pins the copy that is sent in full.

    A file that was attached twice has two refs, and the newer one is only a reference to the older.
    """
    ref = _ref_of(chat, segment)
    if key == ref or not segment.key:
        return ref
    return segment.key


def _ref_of(chat: TerminalChat, segment: Segment) -> str:
    """The ref of a segment, by which the session knows it."""
    return next(each.ref for each in identify_segments(chat.session.log) if each.segment is segment)


def prompts_folder() -> Path:
    return config_folder() / FOLDER


def list_prompts() -> dict[str, str]:
    """The saved prompts by name, each with its text. A file that cannot be read is left out."""
    prompts: dict[str, str] = {}
    for path in sorted(prompts_folder().glob("*.md")):
        try:
            prompts[path.stem] = path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue
    return prompts


def fill_prompt(name: str, words: str) -> str:
    """The text of a saved prompt with the user's words in it."""
    prompts = list_prompts()
    if name not in prompts:
        hint = "/prompt lists them; /save NAME TEXT saves one"
        raise BadInput(f"no prompt is called {name!r}", place="/prompt", hint=hint)
    text = prompts[name]
    if PLACE in text:
        return text.replace(PLACE, words)
    return f"{text}\n\n{words}".strip()


def save_prompt(name: str, text: str) -> Path:
    """Write a prompt into its file, in place of an older one of its name."""
    if not _NAME.fullmatch(name):
        hint = "use letters, digits, - and _, at most 60"
        raise BadInput(f"{name!r:.80} is no name for a prompt", place="/save", hint=hint)
    path = prompts_folder() / f"{name}.md"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(f"{text}\n", "utf-8")
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", place=str(path), hint="check it") from None
    return path
