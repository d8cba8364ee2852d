"""`lamina log`: the conversations of a store, one of them, or what a gateway does right now.

`shown_conversations` prints one, and `tail` follows a gateway.
"""

from __future__ import annotations

import argparse
import shutil
import sys

import anyio

from lamina.cli.output import emit, progress, shorten, show, tell
from lamina.cli.parser import add_json, read_moment, whole_number
from lamina.cli.shown_conversations import describe_talk, format_date, show_conversation
from lamina.cli.stored import add_store, open_named_store
from lamina.cli.tail import follow
from lamina.conversations.listing import ListedTalk, list_talks
from lamina.conversations.recorded_log import read_recorded_log
from lamina.conversations.store import recorded_workspace
from lamina.core.values import Segment
from lamina.core.wording import text_of
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput
from lamina.sessions import Session
from lamina.stores.port import Store

_EXAMPLES = """\
Without a NAME it lists the conversations of every door, newest first. With one it shows that conversation.
The beginning of a NAME will do, if no other begins alike.

A gateway writes one line for each request beside its store, with sizes and causes and no content. With -f the
last of these lines are printed, and then each that comes, until Ctrl-C. NAME may then be another such file,
or - for the standard error of `lamina serve`. `lamina cost --store` says what conversations cost together.

examples:
  lamina log --since 7d --text "retry"
  lamina log claude-code-5f
  lamina log -f
  lamina log -f --store chats.db -n 100 --once
  lamina serve 2>&1 | lamina log -f -
  lamina log -f --json | jq 'select(.event == "miss")'

exit status: 0 done, 2 input that cannot be used, 4 the store refuses it or does not have it
"""

_LISTS = ("since", "client", "door", "text")
_FOLLOWS = ("settings", "last", "once")


def describe(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add(
        "name",
        metavar="NAME",
        nargs="?",
        default="",
        help="a conversation; with -f, a file of a gateway's lines",
    )
    add_store(parser)
    listing = parser.add_argument_group("which are listed")
    add = listing.add_argument
    add("--since", metavar="DATE", type=read_moment, help="since a date (2026-11-01), or 7d, 12h")
    add("--client", metavar="ID", help="a part of the client's own id, or of the name")
    add("--door", metavar="DOOR", help="gateway, wrap or session")
    add("--text", metavar="WORDS", help="these words are in it, as far as texts are kept")
    add = parser.add_argument_group("a gateway").add_argument
    add("--follow", "-f", action="store_true", help="print the requests of a gateway as they come")
    add("--settings", metavar="FILE", help="the TOML file with the settings of the gateway")
    add("-n", metavar="N", dest="last", type=whole_number, help="start with the last N lines (20)")
    add("--once", action="store_true", help="print what is there with its sum, and exit")
    add_json(parser, "what was found; with -f, an object for each event")


def run(arguments: argparse.Namespace) -> int:
    if arguments.follow:
        _refuse(arguments, (*_LISTS, "workspace", "key_file"), "it is for a list of conversations")
        return follow(arguments)
    _refuse(arguments, _FOLLOWS, "it is for -f")
    if arguments.name:
        _refuse(arguments, _LISTS, "it is for a list of conversations")
    return anyio.run(_read, arguments)


def _refuse(arguments: argparse.Namespace, options: tuple[str, ...], hint: str) -> None:
    """Refuse an option that would not be read."""
    for option in options:
        if getattr(arguments, option) not in (None, False):
            name = f"--{option.replace('_', '-')}".replace("--last", "-n")
            raise BadInput(f"{name} is not read here", place="log", hint=f"leave it out; {hint}")


async def _read(arguments: argparse.Namespace) -> int:
    async with open_named_store(arguments) as (store, workspace):
        if arguments.name:
            return await show_conversation(store, workspace, arguments)
        return await _list(store, workspace, arguments)


async def _list(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Print the conversations, those that were used last first."""
    talks: list[ListedTalk] = []
    with progress("reading the conversations"):
        async for talk in list_talks(store, workspace):
            if not _is_wanted(talk, arguments):
                continue
            if await _has_words(store, workspace, talk, (arguments.text or "").casefold()):
                talks.append(talk)
    talks.sort(key=lambda talk: talk.updated, reverse=True)
    if arguments.json:
        emit({"conversations": [describe_talk(talk) for talk in talks]})
        return 0
    for talk in talks:
        title = f"{format_date(talk.updated):<16}  {talk.title or talk.name}"
        if sys.stdout.isatty():
            title = shorten(title, shutil.get_terminal_size().columns)
        show(title, f"    {talk.name}  {_summarise(talk)}")
    tell(count_noun(len(talks), "conversation"))
    return 0


def _is_wanted(talk: ListedTalk, arguments: argparse.Namespace) -> bool:
    """Whether a conversation passes the filters of a list, as far as its line tells."""
    if arguments.since is not None and talk.updated < arguments.since:
        return False
    if arguments.door and arguments.door != talk.door:
        return False
    part = arguments.client or ""
    return part in talk.client or part in talk.name


async def _has_words(store: Store, workspace: str, talk: ListedTalk, words: str) -> bool:
    """Whether these words, in lower case, are in the title or in a text of a conversation that is stored."""
    if words in talk.title.casefold():
        return True
    if talk.problem:  # it cannot be read
        return False
    segments: list[Segment] = []
    if talk.records:
        recorded = await read_recorded_log(store, recorded_workspace(workspace), talk.name)
        if recorded is not None:
            segments += recorded.log
    if talk.log_records:
        async with Session.open(store, talk.name, workspace=workspace) as session:
            segments += session.log
    return any(words in text_of(segment.parts).casefold() for segment in segments)


def _summarise(talk: ListedTalk) -> str:
    """A conversation in a few words: its door, how much happened, with which model, for whom."""
    if talk.problem:
        return talk.problem
    size = count_noun(talk.log_records, "record")
    if talk.requests is not None:
        size = count_noun(talk.requests, "request")
    facts = [talk.door, size, count_noun(talk.cuts, "cut"), talk.model]
    if talk.client not in talk.name:
        facts.append(talk.client)
    return ", ".join(filter(None, facts))
