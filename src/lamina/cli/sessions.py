"""`lamina sessions`: list, show, export, import, copy, delete, verify and rescue kept conversations."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio

from lamina.cli.output import emit, tell
from lamina.cli.parser import add_json
from lamina.cli.stored import (
    add_store,
    no_such_conversation,
    open_existing,
    open_named_store,
    read_or_make_key,
)
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput
from lamina.formats.codec import decode, encode
from lamina.sessions import Session
from lamina.stores.address import open_store
from lamina.stores.paging import every_conversation
from lamina.stores.port import Rescuable, Store, Where

_EXAMPLES = """\
actions: list; show NAME; export NAME [--format json]; import FILE NAME; copy STORE; delete NAME --yes;
verify [NAME]; rescue NAME

Export writes a chat as Markdown with everything that is kept of it in a comment, or as one JSON record to
a line. Copy puts every conversation of the workspace into another store, record by record; with
--new-key-file that one is sealed. Verify reads every record, and finds what a disk has damaged; in a sealed
store it proves that none was changed, moved or taken away. Rescue writes what is whole of a damaged
conversation as JSON, a segment to a line, for import.

examples:
  lamina sessions list
  lamina sessions show support-42
  lamina sessions export support-42 > support-42.md
  lamina sessions import support-42.md support-43 --store files:chats
  lamina sessions copy sealed.db --new-key-file app.key --store chats.db
  lamina sessions verify --store sqlite:chats.db --key-file app.key

exit status: 0 done, 2 input that cannot be used, 4 the store refuses it or does not hold
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "lamina sessions ACTION [NAME ...] [--store STORE] [--workspace NAME] [--key-file FILE]\n"
        "                [--new-key-file FILE] [--format markdown|json] [--yes] [--json]"
    )
    parser.epilog = _EXAMPLES
    parser.add_argument("action", metavar="ACTION", choices=[*_ACTIONS], help=", ".join(_ACTIONS))
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="a conversation; for import, FILE and NAME; for copy, STORE"
    )
    add_store(parser)
    parser.add_argument(
        "--new-key-file", metavar="FILE", help="for copy: the key of the other store; made if it is not there"
    )
    parser.add_argument(
        "--format", choices=("markdown", "json"), default="markdown", help="of an export (default: markdown)"
    )
    parser.add_argument("--yes", action="store_true", help="delete without asking")
    add_json(parser, "what the action found")


def run(arguments: argparse.Namespace) -> int:
    least, most = _NAME_COUNTS.get(arguments.action, (1, 1))
    if not least <= len(arguments.names) <= most:
        hint = "see lamina sessions --help"
        names = "names"
        if most == 1:
            names = "name"
        raise BadInput(f"{arguments.action} takes {most} {names}", place="sessions", hint=hint)
    return anyio.run(_run_action, arguments)


async def _run_action(arguments: argparse.Namespace) -> int:
    async with open_named_store(arguments, create=arguments.action == "import") as (store, workspace):
        return await _ACTIONS[arguments.action](store, workspace, arguments)


async def _list(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Print the conversations of the store, with the number of records in each."""
    heads = [head async for head in every_conversation(store, workspace)]
    if arguments.json:
        emit(
            {"conversations": [{"conversation": head.conversation, "records": head.count} for head in heads]}
        )
        return 0
    for head in heads:
        print(f"{head.count:>8,}  {head.conversation}")
    tell(count_noun(len(heads), "conversation"))
    return 0


async def _show(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Print what was said in a conversation."""
    async with open_existing(store, workspace, arguments.names[0]) as session:
        dialogue = session.dialogue()
        if arguments.json:
            lines = [{"role": line.role.value, "text": line.text} for line in dialogue]
            emit({"conversation": session.conversation, "turns": session.turns, "dialogue": lines})
            return 0
        for line in dialogue:
            print(f"{line.role.value}: {line.text}\n")
        tell(f"{session.turns} turns, {len(session.log)} segments, {len(session.ledger.cuts)} cuts")
    return 0


async def _export(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Write a conversation to the output: as a page of Markdown, or as one line of JSON for each segment."""
    from lamina.formats.markdown import MarkdownChat, write  # noqa: PLC0415

    async with open_existing(store, workspace, arguments.names[0]) as session:
        if arguments.format == "markdown":
            sys.stdout.write(write(MarkdownChat(log=session.log)))
        else:
            sys.stdout.writelines(f"{encode(segment).decode()}\n" for segment in session.log)
    return 0


async def _import(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Make a conversation of an exported file. A name that is in use is refused."""
    path, name = arguments.names
    try:
        text = await anyio.Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"it cannot be read: {error}", place=path, hint="give an exported chat") from None
    log = _parse_export(text)
    if (await store.read(Where(workspace, name), last=0)).head.count:
        raise BadInput(f"there is a conversation {name!r}", place="import", hint="choose another name")
    async with Session.open(store, name, workspace=workspace) as session:
        await session.add(*log)
    tell(f"{len(log)} segments imported as {name!r}")
    return 0


def _parse_export(text: str) -> list[Any]:
    """The segments of an exported file. Lines of JSON begin with an object, and pages do not."""
    if text.lstrip().startswith('{"'):
        return decode(line.encode() for line in text.splitlines() if line.strip())
    from lamina.formats.markdown import read  # noqa: PLC0415

    return list(read(text).log)


async def _delete(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Delete a conversation and what is kept of its costs. Without --yes nothing is deleted."""
    [name] = arguments.names
    if not arguments.yes:
        raise BadInput(f"{name!r} would be gone for good", place="delete", hint="say --yes if you mean it")
    from lamina.cli.chat.costs import cost_place  # noqa: PLC0415 - only here

    await store.delete(cost_place(workspace, name))
    if not await store.delete(Where(workspace, name)):
        raise no_such_conversation(name)
    tell(f"{name!r} is deleted")
    return 0


async def _copy(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Copy all conversations to another store, which may be of another kind and sealed with another key."""
    from lamina.cli.chat.costs import copy_costs  # noqa: PLC0415 - only here
    from lamina.stores.copies import copy_conversations  # noqa: PLC0415

    [address] = arguments.names
    key = None
    if arguments.new_key_file:
        key = await anyio.to_thread.run_sync(read_or_make_key, arguments.new_key_file)
    async with open_store(address, key=key) as target:
        copied = await copy_conversations(store, target, workspace)
        await copy_costs(store, target, workspace, copied)
    if arguments.json:
        emit({"copied": copied})
    else:
        tell(f"{sum(copied.values()):,} records in {len(copied)} conversations are copied to {address!r}")
    return 0


async def _verify(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Read every record of these conversations, or of all. A damaged record raises an error."""
    names = arguments.names
    if not names:
        names = [head.conversation async for head in every_conversation(store, workspace)]
        names += await _list_unfinished_deletions(store, workspace)
    counts = {name: await _verify_conversation(store, Where(workspace, name)) for name in names}
    risk = _risk_of(store)
    if arguments.json:
        emit({"verified": counts, "risk": risk})
    else:
        tell(f"{sum(counts.values()):,} records in {len(counts)} conversations are as they were written")
        if risk:
            tell(f"but take care: {risk}")
    return 0


async def _list_unfinished_deletions(store: Store, workspace: str) -> Sequence[str]:
    """The conversations of a sealed store whose deletion was interrupted. No list has them any more."""
    if not hasattr(store, "vault"):  # sealed; without the extra nothing can be
        return ()
    from lamina.stores.sealed import Sealed  # noqa: PLC0415 - an extra

    if not isinstance(store, Sealed):
        return ()
    return await store.unfinished_deletions(workspace)


async def _verify_conversation(store: Store, where: Where) -> int:
    """Reads every record; raises what is wrong with the first that is not as it was written."""
    if hasattr(store, "vault"):  # sealed; without the extra nothing can be
        from lamina.stores.sealed import Sealed, verify  # noqa: PLC0415 - an extra

        if isinstance(store, Sealed):
            await verify(store, where)
    page = await store.read(where)
    async with Session.open(store, where.conversation, workspace=where.workspace):
        return page.head.count


def _risk_of(store: Store) -> str:
    """What the SQLite behind a store could do to it; empty if nothing, or if it has none."""
    from lamina.stores.sqlite import SqliteStore  # noqa: PLC0415
    from lamina.stores.sqlite.links import risk  # noqa: PLC0415

    inner = getattr(store, "store", store)
    if not isinstance(inner, SqliteStore):
        return ""
    return risk(inner.driver)


async def _rescue(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Write the segments that can still be read of a damaged conversation."""
    where = Where(workspace, arguments.names[0])
    if not isinstance(store, Rescuable):
        hint = "restore it from a backup, or read single records with read(at=...)"
        raise BadInput("this kind of store cannot", place="rescue", hint=hint)
    records = await store.rescue(where)
    if not records:
        raise no_such_conversation(where.conversation)
    lines = list(filter(None, (_segment_line(record.body) for record in records)))
    sys.stdout.writelines(lines)
    tell(f"{len(records)} records are whole, {len(lines)} of them segments")
    places = {record.seq for record in records}
    lost = sorted(set(range(max(places))) - places)
    if lost:
        tell(f"not whole, or gone: {', '.join(map(str, lost))}")
    return 0


def _segment_line(body: bytes) -> str:
    """A record as a line that `import` reads; empty for records between segments, which mark a place."""
    try:
        [segment] = decode([body])
    except BadInput:
        return ""
    return f"{encode(segment).decode()}\n"


_NAME_COUNTS = {"list": (0, 0), "verify": (0, 1), "import": (2, 2)}
"""How many names an action takes, at least and at most; every other takes one."""

_ACTIONS: dict[str, Callable[[Store, str, argparse.Namespace], Awaitable[int]]] = {
    "list": _list,
    "show": _show,
    "export": _export,
    "import": _import,
    "copy": _copy,
    "delete": _delete,
    "verify": _verify,
    "rescue": _rescue,
}
