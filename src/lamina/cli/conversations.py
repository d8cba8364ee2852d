"""`lamina conversations`: every conversation of a store in one list, whichever door it came through.

`lamina.conversations` does the work. This module reads the options, lists conversations and deletes them;
`shown_conversations`, `conversation_files` and `damaged_conversations` have the other
actions.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import anyio
import msgspec

from lamina.cli.conversation_files import copy_everything, export_one, import_file
from lamina.cli.damaged_conversations import rescue_conversation, verify_conversations
from lamina.cli.output import emit, progress, shorten, show, tell
from lamina.cli.parser import add_json, float_or_nan, read_moment, whole_number
from lamina.cli.shown_conversations import WIDTH, describe_talk, format_date, show_conversation
from lamina.cli.stored import add_store, open_named_store, take_name
from lamina.conversations.deleting import delete_conversations, delete_workspace
from lamina.conversations.erasing import delete_message, find_messages
from lamina.conversations.listing import ListedTalk, list_client_names, list_names, list_talks, require_name
from lamina.conversations.recorded_log import read_recorded_log
from lamina.conversations.retention import Pruned, prune
from lamina.conversations.store import recorded_workspace
from lamina.core.values import Segment
from lamina.core.wording import text_of
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput, StoreError
from lamina.sessions import Session
from lamina.stores.port import Store

DEFAULT_DAYS = 30

MOST_KEYS = 1_000
"""Messages that one command may erase."""

_EXAMPLES = """\
actions: list; show NAME; export NAME; import FILE NAME; copy STORE; delete NAME --yes; delete --client ID
--yes; delete --workspace NAME --all --yes; erase NAME KEY ... --yes; erase NAME --text WORDS; prune --yes;
verify [NAME]; rescue NAME; inspect NAME

Show, export and inspect also take the beginning of a NAME, if no other begins alike, and say which they took.
Delete, erase, verify and rescue take the whole NAME. List shows the conversations of the gateway, of wrapped
clients, of sessions and of the chat; `lamina cost --store` says what they cost together, and why caches
were lost. Export writes a page of Markdown to read, or with --format json one line for each request: what was
sent, what came back, and its usage. Import reads these lines.
Copy puts everything into another store; with --new-key-file that one is sealed. Delete removes a
conversation everywhere: state, record, log, costs; with --client, all conversations of a client
with their forks; with --all, the whole workspace. Erase removes messages of a conversation, and what lamina
made of them; with --text it lists those that say the words, and erases them if you add --yes. Prune deletes
what the doors have recorded and nobody used for --days, and then the oldest until --size is kept; the logs of
sessions and chats stay. Verify reads every record; in a sealed store it proves that none was changed, moved
or taken away. Rescue writes what is whole of a damaged conversation, for import.

examples:
  lamina conversations list --since 7d --text "retry"
  lamina conversations show claude-code-5f
  lamina conversations export claude-code-5f --format json > talk.jsonl
  lamina conversations export claude-code-5f --format request > request.json
  lamina conversations erase support-42 --text "the password is"
  lamina conversations erase support-42 kmzxw6ytboi4dcmrt --yes
  lamina conversations delete --client user-7 --yes
  lamina conversations prune --days 30 --size 2GB --yes
  lamina conversations copy sealed.db --new-key-file app.key --store chats.db

exit status: 0 done, 2 input that cannot be used, 4 the store refuses it or does not have it
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        f"{parser.prog} ACTION [NAME ...] [--store STORE] [--workspace NAME] [--key-file FILE]\n"
        "                [--since DATE] [--client ID] [--door DOOR] [--text WORDS]\n"
        "                [--format markdown|json|request] [--new-key-file FILE]\n"
        "                [--all] [--days N] [--size BYTES] [--yes] [--json]"
    )
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("action", metavar="ACTION", choices=list(_ACTIONS), help=", ".join(_ACTIONS))
    add(
        "names",
        metavar="NAME",
        nargs="*",
        default=[],  # else argparse says that it is required
        help="a conversation; for import, FILE and NAME; for copy, STORE; for erase, NAME and KEY ...",
    )
    add_store(parser)
    add(
        "--since",
        metavar="DATE",
        type=read_moment,
        help="for list: since a date (2026-11-01), or 7d, 12h",
    )
    add(
        "--client",
        metavar="ID",
        help="for list: a part of the client's own id, or of the name; for delete: exactly this id or name, "
        "with all forks",
    )
    add("--all", action="store_true", help="for delete: everything of the workspace")
    add("--door", metavar="DOOR", help="for list: gateway, wrap or session")
    add(
        "--text",
        metavar="WORDS",
        help="for list: these words are in it, as far as texts are kept; for erase: the messages with them",
    )
    add(
        "--format",
        choices=("markdown", "json", "request"),
        help="of an export: a page to read (markdown, the default), the whole record as JSON lines (json), "
        "or the last request as its caller wrote it (request)",
    )
    add(
        "--new-key-file", metavar="FILE", help="for copy: the key of the other store; made if it is not there"
    )
    add("--days", metavar="N", type=whole_number, help="for prune: days without a request (default: 30)")
    add("--size", metavar="BYTES", type=_size, help="for prune: how much may stay, such as 2GB")
    add("--yes", action="store_true", help="for delete, erase and prune: delete without asking")
    add_json(parser, "what the action found")


def run(arguments: argparse.Namespace) -> int:
    action = _ACTIONS[arguments.action]
    _require_names(arguments, *action.names)
    _require_options(arguments, action.options)
    if action.run is None:
        return _inspect(arguments)
    return anyio.run(_run_action, action.run, arguments)


async def _run_action(action: _RunAction, arguments: argparse.Namespace) -> int:
    async with open_named_store(arguments, create=arguments.action == "import") as (store, workspace):
        return await action(store, workspace, arguments)


def _require_names(arguments: argparse.Namespace, least: int, most: int) -> None:
    if least <= len(arguments.names) <= most:
        return
    names = "no name"
    if most:
        names = count_noun(most, "name")
    hint = "see lamina conversations --help"
    raise BadInput(f"{arguments.action} takes {names}", place="conversations", hint=hint)


def _require_options(arguments: argparse.Namespace, options: frozenset[str]) -> None:
    """Refuse an option that the action does not read: `delete --all --since 7d` would delete everything."""
    for option, value in vars(arguments).items():
        is_given = value is not None and value is not False
        if not is_given or option in options or option in _ALWAYS_READ:
            continue
        readers = [name for name, action in _ACTIONS.items() if option in action.options]
        raise BadInput(
            f"{arguments.action} does not read --{option.replace('_', '-')}",
            place="conversations",
            hint=f"leave it out; it is for {' and '.join(readers)}",
        )


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
        show(f"{format_date(talk.updated):<16}  {talk.door:<7}  {talk.name}")
        show(shorten(f"    {_summarise(talk)}", WIDTH))
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
    """A conversation in a line: how much happened, with which model, for whom, and its first words."""
    if talk.problem:
        return talk.problem
    size = count_noun(talk.log_records, "record")
    if talk.requests is not None:
        size = count_noun(talk.requests, "request")
    facts = [size, count_noun(talk.cuts, "cut"), talk.model, talk.client]
    line = ", ".join(filter(None, facts))
    if talk.title:
        line += f": {talk.title}"
    return line


async def _export(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    name = await take_name(store, workspace, arguments.names[0])
    return await export_one(store, workspace, name, form=arguments.format or "markdown")


async def _import(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    path, name = arguments.names
    return await import_file(store, workspace, path, name)


async def _copy(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    [address] = arguments.names
    copied = await copy_everything(store, workspace, address, arguments.new_key_file)
    if arguments.json:
        emit({"copied": copied})
        return 0
    records = count_noun(sum(copied.values()), "record")
    tell(f"copied to {address!r}: {records} in {count_noun(len(copied), 'conversation')}")
    return 0


async def _delete(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Delete a conversation, or those of a user. Without --yes nothing is deleted."""
    names = await _choose_deleted(store, workspace, arguments)
    what = count_noun(len(names), "conversation")
    if len(names) == 1:
        what = repr(names[0])
    if not arguments.yes:
        raise BadInput(f"{what} would be gone for good", place="delete", hint="say --yes if you mean it")
    if arguments.all:
        await delete_workspace(store, workspace)
    else:
        await delete_conversations(store, workspace, names)
    if arguments.json:
        emit({"deleted": names})
    tell(f"deleted: {what}")
    return 0


async def _choose_deleted(store: Store, workspace: str, arguments: argparse.Namespace) -> list[str]:
    """The conversations that are meant: the one of this very name, those of a client, or all."""
    match arguments.names, arguments.client, arguments.all:
        case [name], None, False:
            await require_name(store, workspace, name)
            return [name]
        case [], None, True:
            return await list_names(store, workspace)
        case [], client, False if client:
            names = await list_client_names(store, workspace, client)
            if not names:
                hint = "see lamina conversations list"
                raise StoreError("it has no conversation here", conversation=client, hint=hint)
            return names
    raise BadInput(
        "what is deleted is not clear", place="delete", hint="give one: NAME, --client ID or --all"
    )


async def _erase(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Erase messages by their keys, or those that say a text. Without --yes these are only listed."""
    name, *keys = arguments.names
    await require_name(store, workspace, name)
    if bool(keys) == bool(arguments.text):
        raise BadInput("which message is not clear", place="erase", hint="give KEY ..., or --text WORDS")
    if arguments.text and not arguments.yes:
        return await _print_found(store, workspace, name, arguments)
    if not arguments.yes:
        what = count_noun(len(keys), "message")
        raise BadInput(f"{what} would be gone for good", place="erase", hint="say --yes if you mean it")
    messages = records = 0
    for key in keys or [""]:
        erased = await delete_message(store, workspace, name, key=key, text=arguments.text or "")
        messages += erased.messages
        records += erased.records
    if arguments.json:
        emit({"messages": messages, "records": records})
    changed = count_noun(records, "record")
    tell(f"erased: {count_noun(messages, 'message')} of {name!r}, and what was made of it, in {changed}")
    return 0


async def _print_found(store: Store, workspace: str, name: str, arguments: argparse.Namespace) -> int:
    """Print the messages that say a text, each with the key to erase it by."""
    messages = await find_messages(store, workspace, name, arguments.text)
    if arguments.json:
        emit({"found": [msgspec.to_builtins(message) for message in messages]})
        return 0
    for message in messages:
        whose = message.role
        if message.is_own:
            whose = "made by lamina"
        show(f"{message.key}  {whose:<14}  {message.text!r}")
    summary = count_noun(len(messages), "message")
    if messages:
        summary += "; erase them with --yes, or some of them by KEY"
    tell(summary)
    return 0


async def _prune(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Delete recorded conversations that are too old, or too many. Without --yes nothing is deleted."""
    days = arguments.days
    if days is None and arguments.size is None:
        days = DEFAULT_DAYS
    with progress("looking for old conversations"):
        pruned: Pruned = await prune(
            store, workspace, days=days, size=arguments.size, in_use=0, dry_run=not arguments.yes
        )
    if not arguments.yes and pruned.names:
        problem = f"{count_noun(len(pruned.names), 'conversation')} would be gone for good"
        raise BadInput(problem, place="prune", hint="say --yes if you mean it")
    if arguments.json:
        emit({"deleted": list(pruned.names), "size": pruned.size})
    tell(f"deleted: {count_noun(len(pruned.names), 'conversation')}")
    return 0


def _inspect(arguments: argparse.Namespace) -> int:
    from lamina.cli import parser_for  # noqa: PLC0415 - it imports this module when it is run
    from lamina.cli.inspect import run as run_inspect  # noqa: PLC0415

    async def resolve() -> str:
        async with open_named_store(arguments) as (store, workspace):
            return await take_name(store, workspace, arguments.names[0])

    options = parser_for("inspect").parse_args(["--store", arguments.store or "", "--open"])
    options.workspace = arguments.workspace
    options.key_file = arguments.key_file
    options.conversation = anyio.run(resolve)
    return run_inspect(options)


_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def _size(text: str) -> int:
    """`2GB`, `500 MB` or `1000` as bytes."""
    digits = text.upper().rstrip("KMGTB ")
    unit = text.upper()[len(digits) :].strip() or "B"
    number = float_or_nan(digits)
    # A size below 0 would delete everything.
    if unit not in _BYTES or not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 2GB")
    return int(number * _BYTES[unit])


_RunAction = Callable[[Store, str, argparse.Namespace], Awaitable[int]]


class _Action(NamedTuple):
    """What one action does with an open store, and what it reads of the command line."""

    run: _RunAction | None
    """None opens the store by itself."""

    options: frozenset[str] = frozenset()
    names: tuple[int, int] = (1, 1)
    """How many names it takes, at least and at most."""


_ALWAYS_READ = frozenset({"action", "names", "store", "workspace", "key_file"})

_ACTIONS = {
    "list": _Action(_list, frozenset({"since", "client", "door", "text", "json"}), names=(0, 0)),
    "show": _Action(show_conversation, frozenset({"json"})),
    "export": _Action(_export, frozenset({"format"})),
    "import": _Action(_import, names=(2, 2)),
    "copy": _Action(_copy, frozenset({"new_key_file", "json"})),
    "delete": _Action(_delete, frozenset({"client", "all", "yes", "json"}), names=(0, 1)),
    "erase": _Action(_erase, frozenset({"text", "yes", "json"}), names=(1, MOST_KEYS)),
    "prune": _Action(_prune, frozenset({"days", "size", "yes", "json"}), names=(0, 0)),
    "verify": _Action(verify_conversations, frozenset({"json"}), names=(0, 1)),
    "rescue": _Action(rescue_conversation),
    "inspect": _Action(None),
}
