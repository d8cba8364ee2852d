"""`lamina recall`: the full text behind a handle."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import anyio

from lamina.cli.output import emit, write_result
from lamina.cli.parser import add_json
from lamina.cli.stored import add_store, no_such_conversation, open_existing, open_named_store
from lamina.conversations.listing import require_name
from lamina.conversations.recorded_log import describe_kept, read_recorded_log
from lamina.conversations.store import read_record, recorded_workspace
from lamina.core.values import Ledger, Segment
from lamina.errors import NotFound, StoreError
from lamina.fitting.recalls import recall_text
from lamina.stores.port import Store, Where

_EXAMPLES = """\
KEY is what a handle in a request says: recall("k7f3..."). It never expires.

examples:
  lamina recall support-42 k7f3c0a1b2d4
  lamina recall support-42 docs/spec.md | grep retry

exit status: 0 found, 2 input that cannot be used, 4 there is no such conversation
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument("conversation", metavar="CONVERSATION", help="its name, in full")
    parser.add_argument("key", metavar="KEY", help="a handle, or the key of a message")
    add_store(parser)
    add_json(parser, "the text, and its length")


def run(arguments: argparse.Namespace) -> int:
    return anyio.run(_recall, arguments)


async def _recall(arguments: argparse.Namespace) -> int:
    """Print what a key stands for."""
    async with open_named_store(arguments) as (store, workspace):
        name = arguments.conversation
        await require_name(store, workspace, name)
        log, ledger = await _read_log(store, workspace, name)
        try:
            recalled = recall_text(log, arguments.key, ledger=ledger)
        except NotFound:
            raise NotFound(arguments.key, hint=await _explain_missing(store, workspace, name)) from None
    if arguments.json:
        emit({"text": recalled.text, "total": recalled.total})
    else:
        write_result(f"{recalled.text}\n")
    return 0


async def _explain_missing(store: Store, workspace: str, name: str) -> str:
    """Why a conversation may have nothing under a key, and what to do."""
    record = await read_record(store, recorded_workspace(workspace), name)
    if any(record.is_erased(call) for call in record.calls):
        return "messages of this conversation were erased, and cannot be recalled any more"
    return f"lamina store export {name} shows everything that is kept of it"


async def _read_log(store: Store, workspace: str, name: str) -> tuple[Sequence[Segment], Ledger]:
    """The log of a session, else what a door has recorded, with the ledger that names it."""
    if (await store.read(Where(workspace, name), last=0)).head.count:
        async with open_existing(store, workspace, name) as session:
            return session.log, session.ledger
    recorded = await read_recorded_log(store, recorded_workspace(workspace), name)
    if recorded is None:
        raise no_such_conversation(name)
    if not recorded.log:
        problem = describe_kept(recorded.state, recorded.record)
        raise StoreError(problem, conversation=name, hint="the client itself may still have it")
    return recorded.log, recorded.ledger
