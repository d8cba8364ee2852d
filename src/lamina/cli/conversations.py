"""`lamina conversations`: what the gateway keeps: list it, show one, delete one, remove old ones.

With --wrapped it lists and deletes what `lamina.wrap(..., store=...)` keeps.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from time import time
from typing import Any

import anyio

from lamina.cli.output import emit, tell
from lamina.cli.parser import add_json, whole_number
from lamina.cli.stored import add_store, open_named_store
from lamina.conversations.conversation_store import WORKSPACE as WRAPPED
from lamina.conversations.conversation_store import decode_records
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput, StoreError
from lamina.stores.paging import every_conversation
from lamina.stores.port import Store, Where

_EXAMPLES = """\
actions: list; show NAME; delete NAME --yes; prune --days N --yes

Show prints a conversation's state: the client's id, the model, its requests, its cuts, and what of it is
stored in full. Prune deletes conversations whose last request is older than N days. With --wrapped, list and
delete are about the conversations of wrapped clients: lamina.wrap(client, store=...).

examples:
  lamina conversations list
  lamina conversations show claude-code-5f0c1b7a9d3e2f4a6b8c
  lamina conversations prune --days 30 --yes

exit status: 0 done, 2 input that cannot be used, 4 the store refuses it or does not have it
"""

DAY = 86_400


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "lamina conversations ACTION [NAME] [--store STORE] [--workspace NAME] [--key-file FILE]\n"
        "                [--wrapped] [--days N] [--yes] [--json]"
    )
    parser.epilog = _EXAMPLES
    parser.add_argument("action", metavar="ACTION", choices=[*_ACTIONS], help=", ".join(_ACTIONS))
    parser.add_argument("name", metavar="NAME", nargs="?", default="", help="a conversation")
    add_store(parser)
    parser.add_argument(
        "--wrapped", action="store_true", help="those of wrapped clients, for list and delete"
    )
    parser.add_argument("--days", metavar="N", type=whole_number, default=30, help="for prune (default: 30)")
    parser.add_argument("--yes", action="store_true", help="delete without asking")
    add_json(parser, "what the action found")


def run(arguments: argparse.Namespace) -> int:
    if bool(arguments.name) != (arguments.action in _NAMED):
        hint = "see lamina conversations --help"
        raise BadInput(f"{arguments.action} takes a name, or none", place="conversations", hint=hint)
    if arguments.wrapped and arguments.action not in _WRAPPED_ACTIONS:
        hint = f"use it with {' or '.join(_WRAPPED_ACTIONS)}"
        raise BadInput(f"{arguments.action} cannot do that", place="--wrapped", hint=hint)
    return anyio.run(_run_action, arguments)


async def _run_action(arguments: argparse.Namespace) -> int:
    async with open_named_store(arguments) as (store, workspace):
        if arguments.wrapped:
            return await _WRAPPED_ACTIONS[arguments.action](store, arguments)
        return await _ACTIONS[arguments.action](store, workspace or "default", arguments)


async def _list(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Print the conversations of the gateway, those that were used last first."""
    rows = [row async for row in _read_all(store, workspace)]
    rows.sort(key=lambda row: row["updated"], reverse=True)
    if arguments.json:
        emit({"conversations": rows})
        return 0
    for row in rows:
        moment = datetime.fromtimestamp(row["updated"], UTC).strftime("%Y-%m-%d %H:%M")
        print(
            f"{moment}  {row['requests']:>6,} requests  {row['cuts']:>3} cuts  {row['model']}  {row['name']}"
        )
    tell(count_noun(len(rows), "conversation"))
    return 0


async def _show(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Print one conversation: its fields, then its cuts."""
    row = await _read_one(store, workspace, arguments.name)
    if row is None:
        raise _no_such(arguments.name)
    if arguments.json:
        emit(row)
        return 0
    for field, value in row.items():
        if field != "cut_list":
            print(f"{field:<10} {value}")
    for cut in row["cut_list"]:
        print(f"cut {cut['number']}: {cut['reason']}, {cut['before']:,} to {cut['after']:,} tokens")
    return 0


async def _delete(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Delete one conversation of the gateway. Without --yes nothing is deleted."""
    return await _delete_at(store, _place(workspace, arguments.name), arguments)


async def _delete_at(store: Store, where: Where, arguments: argparse.Namespace) -> int:
    if not arguments.yes:
        problem = f"{arguments.name!r} would be gone for good"
        raise BadInput(problem, place="delete", hint="say --yes if you mean it")
    if not await store.delete(where):
        raise _no_such(arguments.name)
    tell(f"{arguments.name!r} is deleted")
    return 0


async def _list_wrapped(store: Store, arguments: argparse.Namespace) -> int:
    """Print what is stored of the conversations of wrapped clients. Those that begin alike share a name."""
    rows = [row async for row in _read_wrapped(store)]
    if arguments.json:
        emit({"conversations": rows})
        return 0
    for row in rows:
        counts = f"{row['requests']:>6,} requests  {row['branches']:>2} branches  {row['cuts']:>3} cuts"
        print(f"{counts}  {row['name']}")
    tell(count_noun(len(rows), "conversation"))
    return 0


async def _delete_wrapped(store: Store, arguments: argparse.Namespace) -> int:
    """Delete what is stored under one name of a wrapped client. Without --yes nothing is deleted."""
    return await _delete_at(store, Where(WRAPPED, arguments.name), arguments)


async def _read_wrapped(store: Store) -> AsyncIterator[dict[str, Any]]:
    async for head in every_conversation(store, WRAPPED):
        page = await store.read(Where(WRAPPED, head.conversation), last=0)
        records = decode_records(page.head.state)
        if records:
            yield {
                "name": head.conversation,
                "dialect": records[0].dialect,
                "branches": len(records),
                "requests": sum(record.revision for record in records),
                "cuts": sum(len(record.ledger.get("cuts", ())) for record in records),
            }


async def _prune(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Delete the conversations that were not used for so many days. Without --yes nothing is deleted."""
    oldest = time() - arguments.days * DAY
    rows = [row async for row in _read_all(store, workspace)]
    names = [row["name"] for row in rows if row["updated"] < oldest]
    if not arguments.yes:
        problem = f"{len(names)} conversations would be gone for good"
        raise BadInput(problem, place="prune", hint="say --yes if you mean it")
    for name in names:
        await store.delete(_place(workspace, name))
    if arguments.json:
        emit({"deleted": names})
    tell(f"{len(names)} conversations are deleted")
    return 0


async def _read_all(store: Store, workspace: str) -> AsyncIterator[dict[str, Any]]:
    """All conversations of a workspace. One that is deleted meanwhile is left out."""
    place = _place(workspace, "any")
    async for head in every_conversation(store, place.workspace):
        row = await _read_one(store, workspace, head.conversation)
        if row is not None:
            yield row


async def _read_one(store: Store, workspace: str, name: str) -> dict[str, Any] | None:
    """One conversation as a row; None if there is none of this name."""
    from lamina.conversations.store import decode_state  # noqa: PLC0415

    page = await store.read(_place(workspace, name), last=0)
    if not page.head.state:
        return None
    state = decode_state(page.head.state)
    ledger = state.ledger
    return {
        "name": name,
        "client": state.group,
        "parent": state.parent,
        "upstream": state.upstream,
        "model": state.model,
        "dialect": state.dialect,
        "requests": state.requests,
        "tokens": state.tokens,
        "cuts": len(ledger.cuts),
        "lowered": len(ledger.lines) + sum(len(fold.covers) for fold in ledger.folds),
        "stored": page.head.count,
        "updated": state.updated,
        "cut_list": [
            {"number": cut.number, "reason": cut.reason, "before": cut.before, "after": cut.after}
            for cut in ledger.cuts
        ],
    }


def _place(workspace: str, name: str) -> Where:
    from lamina.conversations.store import conversation_place  # noqa: PLC0415

    return conversation_place(workspace, name)


def _no_such(name: str) -> StoreError:
    return StoreError("there is none of this name", conversation=name, hint="see lamina conversations list")


_NAMED = frozenset(("show", "delete"))

_ACTIONS: dict[str, Callable[[Store, str, argparse.Namespace], Awaitable[int]]] = {
    "list": _list,
    "show": _show,
    "delete": _delete,
    "prune": _prune,
}

_WRAPPED_ACTIONS: dict[str, Callable[[Store, argparse.Namespace], Awaitable[int]]] = {
    "list": _list_wrapped,
    "delete": _delete_wrapped,
}
