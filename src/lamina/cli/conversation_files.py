"""Writes conversations to files and other stores, and reads them back: `export`, `import` and `copy`."""

from __future__ import annotations

import anyio

from lamina.cli.output import tell, write_result
from lamina.cli.stored import no_such_conversation, open_existing, read_or_make_key
from lamina.conversations.addresses import ADDRESSES
from lamina.conversations.exporting import export_conversation, import_conversation, is_export
from lamina.conversations.recorded_log import describe_kept, read_recorded_log
from lamina.conversations.store import ANSWERS, CONVERSATIONS, read_record, recorded_workspace
from lamina.core.values import Segment
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput
from lamina.formats.codec import decode, encode
from lamina.sessions import Session
from lamina.sessions.turns import write_page
from lamina.stores.address import open_store
from lamina.stores.paging import copy_conversations
from lamina.stores.port import OwnName, Store, Where


async def export_one(store: Store, workspace: str, name: str, *, form: str) -> int:
    """Write a conversation to the output: as a page to read, as JSON lines, or as its last request."""
    if form == "request":
        write_result(await _read_last_request(store, workspace, name) + "\n")
        return 0
    if form == "json":
        lines = await export_conversation(store, workspace, name)
        if not lines:
            async with open_existing(store, workspace, name) as session:
                lines = [encode(segment) for segment in session.log]
        for line in lines:
            write_result(f"{line.decode()}\n")
        return 0
    write_result(write_page(await _read_talk(store, workspace, name)))
    return 0


async def _read_last_request(store: Store, workspace: str, name: str) -> str:
    """The last request as its caller wrote it, with everything that lamina shortened or left out in full.

    What lamina sent by itself, after a recall or a refusal, is none of the caller's.
    """
    record = await read_record(store, recorded_workspace(workspace), name)
    for call in reversed(record.calls):
        body = record.came_body(call)
        if body is not None and not call.request.follows:
            return body.decode()
    if not record.calls and not (await store.read(Where(workspace, name), last=0)).head.count:
        raise no_such_conversation(name)
    raise BadInput(
        "no request of it is stored",
        place=name,
        hint='what goes through lamina from now on is, with keep = "all"',
    )


async def _read_talk(store: Store, workspace: str, name: str) -> tuple[Segment, ...]:
    """What was said: from the log of a session, else from the record."""
    if (await store.read(Where(workspace, name), last=0)).head.count:
        async with open_existing(store, workspace, name) as session:
            return session.log
    recorded = await read_recorded_log(store, recorded_workspace(workspace), name)
    hint = "--format json writes what there is"
    if recorded is None:
        raise BadInput("nothing of what was said is stored", place=name, hint=hint)
    if recorded.talk:
        return recorded.talk
    what_is_kept = describe_kept(recorded.state, recorded.record)
    if not recorded.log:
        raise BadInput(what_is_kept, place=name, hint=hint)
    tell(what_is_kept)
    return recorded.log


async def import_file(store: Store, workspace: str, path: str, name: str) -> int:
    """Make a conversation of an exported file. A name that is in use is refused."""
    try:
        text = await anyio.Path(path).read_bytes()
        text.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"it cannot be read: {error}", place=path, hint="give an exported chat") from None
    if is_export(text):
        lines = [line for line in text.split(b"\n") if line.strip()]
        requests = await import_conversation(store, workspace, name, lines)
        tell(f"{count_noun(requests, 'request')} imported as {name!r}")
        return 0
    log = _parse_segments(text.decode())
    if (await store.read(Where(workspace, name), last=0)).head.count:
        raise BadInput(f"there is a conversation {name!r}", place="import", hint="choose another name")
    async with Session.open(store, name, workspace=workspace) as session:
        await session.add(*log)
    tell(f"{count_noun(len(log), 'message')} imported as {name!r}")
    return 0


def _parse_segments(text: str) -> list[Segment]:
    """The segments of an exported file, one to a line."""
    if not text.lstrip().startswith('{"'):
        hint = "a page of Markdown is for reading: export the conversation again with --format json"
        raise BadInput("it is no export", place="import", hint=hint)
    return decode(line.encode() for line in text.splitlines() if line.strip())


async def copy_everything(store: Store, workspace: str, address: str, key_file: str | None) -> dict[str, int]:
    """Copy all conversations of a workspace, and how many records each has. The other store may be sealed."""
    key = None
    if key_file:
        key = await anyio.to_thread.run_sync(read_or_make_key, key_file)
    recorded_in = recorded_workspace(workspace)
    copied: dict[str, int] = {}
    async with open_store(address, key=key) as target:
        for place in (workspace, OwnName(f"{CONVERSATIONS}{recorded_in}")):
            for name, count in (await copy_conversations(store, target, place)).items():
                copied[name] = copied.get(name, 0) + count
        for place in (f"{ADDRESSES}{recorded_in}", f"{ANSWERS}{recorded_in}"):
            await copy_conversations(store, target, OwnName(place))
    return copied
