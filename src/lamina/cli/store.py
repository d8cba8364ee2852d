"""`lamina store`: copies, exports, deletes and verifies what a store has, and makes its key.

`lamina.conversations` does the work. Each action has a parser of its own, so that it refuses an option which
it does not read: `delete --all --since 7d` must delete nothing.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import msgspec

from lamina.cli.conversation_files import copy_everything, export_one, import_file
from lamina.cli.damaged_conversations import rescue_conversation, verify_conversations
from lamina.cli.output import emit, progress, show, tell
from lamina.cli.parser import Parser, add_json, float_or_nan, whole_number
from lamina.cli.stored import add_store, hide_password, open_named_store, take_name
from lamina.conversations.deleting import delete_conversations, delete_workspace
from lamina.conversations.erasing import delete_message, find_messages
from lamina.conversations.listing import list_client_names, list_names, require_name
from lamina.conversations.retention import Pruned, prune
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput, StoreError
from lamina.settings import config_folder, load_settings
from lamina.stores.address import import_sealed
from lamina.stores.port import Store

DEFAULT_DAYS = 30
KEY_FILE = "store.key"

_EXAMPLES = """\
Each action has its own --help. What deletes or proves takes the whole NAME of a conversation; export takes
its beginning, too, if no other begins alike.

examples:
  lamina store where
  lamina store export claude-code-5f --format json > talk.jsonl
  lamina store import talk.jsonl again --store files:archive
  lamina store erase support-42 --text "the password is"
  lamina store delete --client user-7 --yes
  lamina store prune --days 30 --size 2GB --yes
  lamina store copy sealed.db --new-key-file app.key --store chats.db

exit status: 0 done, 2 input that cannot be used, 4 the store refuses it or does not have it
"""


def describe(parser: Parser) -> None:
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, parser_class=Parser, prog=parser.prog
    )
    for name, action in ACTIONS.items():
        own = parser.actions[name] = actions.add_parser(name, help=action.does, description=action.about)
        for names, settings in action.options:
            own.add_argument(*names, **settings)
        if name != "key":
            add_store(own)
        if name not in ("export", "import", "where"):
            add_json(own, "what was done")


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "key":
        return _make_key(arguments)
    if arguments.action == "where":
        return _show_places(arguments)
    return anyio.run(_run_action, ACTIONS[arguments.action].run, arguments)


async def _run_action(action: _RunAction, arguments: argparse.Namespace) -> int:
    async with open_named_store(arguments, create=arguments.action == "import") as (store, workspace):
        return await action(store, workspace, arguments)


def _show_places(arguments: argparse.Namespace) -> int:
    """Print where everything of this user is, and how to be rid of it."""
    address = hide_password(arguments.store or load_settings().store_address())
    show(f"store     {address}")
    show(f"settings  {config_folder()}, with the keys that lamina made")
    tell("delete the file or folder of the store, with its -wal and -shm, to be rid of everything in it")
    return 0


def _make_key(arguments: argparse.Namespace) -> int:
    """Make a key for a sealed store. An existing file is never written to."""
    path = config_folder() / KEY_FILE
    if arguments.file:
        path = Path(arguments.file).expanduser()
    import_sealed().init_file(path)
    if arguments.json:
        emit({"file": str(path)})
        return 0
    tell(f"the key is in {path}; keep a copy of it in another place")
    tell(f'use it with --key-file {path}, or with key_file = "{path}" in the settings')
    return 0


async def _export(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    if arguments.damaged:
        return await rescue_conversation(store, workspace, arguments)
    name = await take_name(store, workspace, arguments.names[0])
    return await export_one(store, workspace, name, form=arguments.format or "markdown")


async def _import(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    return await import_file(store, workspace, arguments.file, arguments.name)


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
                hint = "lamina log lists them"
                raise StoreError("it has no conversation here", conversation=client, hint=hint)
            return names
    raise BadInput(
        "what is deleted is not clear", place="delete", hint="give one: NAME, --client ID or --all"
    )


async def _erase(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Erase messages by their keys, or those that say a text. Without --yes these are only listed."""
    name, keys = arguments.name, arguments.keys
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
_Option = tuple[tuple[str, ...], dict[str, Any]]


class _Action(NamedTuple):
    """What an action is for, what it does with an open store, and the options that it reads."""

    does: str
    about: str
    options: tuple[_Option, ...] = ()
    run: _RunAction = verify_conversations


def _option(*names: str, **settings: Any) -> _Option:
    return names, settings


_YES = _option("--yes", action="store_true", help="do it: without this nothing is deleted")

ACTIONS = {
    "copy": _Action(
        "put everything into another store",
        "Put everything into another store. With --new-key-file that one is sealed.",
        (
            _option("names", metavar="STORE", nargs=1, help="the other store: a path or an address"),
            _option("--new-key-file", metavar="FILE", help="its key; made if it is not there"),
        ),
        _copy,
    ),
    "export": _Action(
        "write a conversation to standard output",
        "Write a conversation: a page to read, its whole record, or its last request.",
        (
            _option("names", metavar="NAME", nargs=1, help="a conversation"),
            _option(
                "--format",
                choices=("markdown", "json", "request"),
                help="a page to read (markdown, the default), the whole record as JSON lines (json), or the "
                "last request as its caller wrote it (request)",
            ),
            _option("--damaged", action="store_true", help="what is whole of a damaged one, for import"),
        ),
        _export,
    ),
    "import": _Action(
        "read what export --format json wrote",
        "Read what `lamina store export --format json` wrote, under a new name.",
        (
            _option("file", metavar="FILE", help="what was exported; - is standard input"),
            _option("name", metavar="NAME", help="the new name"),
        ),
        _import,
    ),
    "erase": _Action(
        "remove messages of a conversation, and what lamina made of them",
        "Remove messages of a conversation, and what lamina made of them. With --text they are listed, and "
        "removed if you add --yes.",
        (
            _option("name", metavar="NAME", help="a conversation, by its whole name"),
            _option("keys", metavar="KEY", nargs="*", help="messages of it"),
            _option("--text", metavar="WORDS", help="the messages that say these words"),
            _YES,
        ),
        _erase,
    ),
    "delete": _Action(
        "remove conversations everywhere: state, record, log",
        "Remove a conversation, all of a client with their forks, or the whole workspace.",
        (
            _option("names", metavar="NAME", nargs="*", help="a conversation, by its whole name"),
            _option("--client", metavar="ID", help="all conversations of exactly this id or name"),
            _option("--all", action="store_true", help="everything of the workspace"),
            _YES,
        ),
        _delete,
    ),
    "prune": _Action(
        "remove what nobody used for days",
        "Remove what the doors have recorded and nobody used for --days, and then the oldest until --size is "
        "kept. The logs of sessions and chats stay.",
        (
            _option("--days", metavar="N", type=whole_number, help="days without a request (default: 30)"),
            _option("--size", metavar="BYTES", type=_size, help="how much may stay, such as 2GB"),
            _YES,
        ),
        _prune,
    ),
    "verify": _Action(
        "read every record",
        "Read every record. In a sealed store it proves that none was changed, moved or taken away.",
        (_option("names", metavar="NAME", nargs="*", help="a conversation; by default, all"),),
        verify_conversations,
    ),
    "key": _Action(
        "make a key for a sealed store",
        "Make a key of 256 random bits, in a file that only its owner can read. Keep a copy of it in another "
        "place than the store: without it, a sealed store cannot be read by anybody.",
        (
            _option(
                "file",
                metavar="FILE",
                nargs="?",
                help="where the key is kept; by default, beside the settings",
            ),
        ),
    ),
    "where": _Action(
        "print where the store and the settings are",
        "Print where the store and the settings are, and how to be rid of them.",
    ),
}
