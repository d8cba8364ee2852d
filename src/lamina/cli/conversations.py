"""`lamina conversations`: every conversation of a store in one list, whichever door it came through.

What it does is done by `lamina.conversations`; this module reads options and prints.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import anyio
import msgspec

from lamina.cli.conversation_files import copy_everything, export_one, import_file
from lamina.cli.conversation_summary import print_summary
from lamina.cli.output import emit, progress, tell
from lamina.cli.parser import add_json, read_moment, whole_number
from lamina.cli.stored import add_store, no_such_conversation, open_existing, open_named_store
from lamina.conversations.costs import price_call
from lamina.conversations.deleting import delete_conversation
from lamina.conversations.erasing import delete_message
from lamina.conversations.exporting import write_lines
from lamina.conversations.listing import ListedTalk, find_talk, list_names, list_talks, resolve_name
from lamina.conversations.record import ERASED, ConversationRecord, RecordedCall, digest_body, is_compaction
from lamina.conversations.recorded_log import describe_kept, read_recorded_log
from lamina.conversations.retention import Pruned, prune
from lamina.conversations.store import (
    ConversationState,
    conversation_place,
    find_conversation,
    read_record,
    recorded_workspace,
)
from lamina.core.values import Cut
from lamina.core.wording import text_of
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput, Damaged, StoreError
from lamina.formats.codec import decode, encode
from lamina.sessions import Session
from lamina.stores.port import Record, Rescuable, Store, Where

WIDTH = 80
"""Columns of what is printed."""

DATE = "%Y-%m-%d %H:%M"

MOST_PATHS = 1_000
"""Logs that one summary may name."""

_EXAMPLES = """\
actions: list; summary [PATH ...]; show NAME; export NAME; import FILE NAME; copy STORE; delete NAME --yes;
prune --yes; verify [NAME]; rescue NAME; inspect NAME

A NAME may be given by its beginning, if no other conversation begins alike. List shows the conversations of
the gateway, of wrapped clients, of sessions and of the chat. Summary says what all of them cost together, by
day, client, project and model, what was read again and again, where caches were lost, and what would have
saved something; with a PATH, it reads logs, or a folder that `lamina replay --parquet` wrote. Export writes
a page of Markdown, or with --format json one line for each request: what was sent, what came back, and its
usage. Import reads both.
Copy puts everything into another store; with --new-key-file that one is sealed. Delete removes a
conversation everywhere: state, record, log, search index, costs; with --message, one message of it. Prune
deletes what the doors have recorded and nobody used for --days, and then the oldest until --size is kept;
the logs of sessions and chats stay. Verify reads every record; in a sealed store it proves that none was
changed, moved or taken away. Rescue writes what is whole of a damaged conversation, for import.

examples:
  lamina conversations list --since 7d --text "retry"
  lamina conversations summary --since 7d
  lamina conversations show claude-code-5f
  lamina conversations export claude-code-5f --format json > talk.jsonl
  lamina conversations export claude-code-5f --format request > request.json
  lamina conversations delete claude-code-5f --message "the password is" --yes
  lamina conversations prune --days 30 --size 2GB --yes
  lamina conversations copy sealed.db --new-key-file app.key --store chats.db

exit status: 0 done, 2 input that cannot be used, 4 the store refuses it or does not have it
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        f"{parser.prog} ACTION [NAME ...] [--store STORE] [--workspace NAME] [--key-file FILE]\n"
        "                [--since DATE] [--client ID] [--door DOOR] [--text WORDS]\n"
        "                [--format markdown|json|request] [--new-key-file FILE] [--message KEY|TEXT]\n"
        "                [--days N] [--size BYTES] [--yes] [--json]"
    )
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("action", metavar="ACTION", choices=[*_ACTIONS], help=", ".join(_ACTIONS))
    add("names", metavar="NAME", nargs="*", help="a conversation; for import, FILE and NAME; for copy, STORE")
    add_store(parser)
    add(
        "--since",
        metavar="DATE",
        type=read_moment,
        help="for list and summary: since a date (2026-11-01), or 7d, 12h",
    )
    add("--client", metavar="ID", default="", help="for list: a part of the client's own id, or of the name")
    add("--door", metavar="DOOR", default="", help="for list: gateway, wrap, session or chat")
    add(
        "--text",
        metavar="WORDS",
        default="",
        help="for list: these words are in it, as far as texts are kept",
    )
    add(
        "--format",
        choices=("markdown", "json", "request"),
        default="markdown",
        help="of an export: a page (markdown, the default), the whole record as JSON lines (json), or the "
        "last request as its caller wrote it (request)",
    )
    add(
        "--new-key-file", metavar="FILE", help="for copy: the key of the other store; made if it is not there"
    )
    add(
        "--message",
        metavar="KEY|TEXT",
        default="",
        help="for delete: only this message, by handle or by text",
    )
    add("--days", metavar="N", type=whole_number, help="for prune: days without a request (default: 30)")
    add("--size", metavar="BYTES", type=_size, help="for prune: how much may stay, such as 2GB")
    add("--yes", action="store_true", help="delete without asking")
    add_json(parser, "what the action found")


def run(arguments: argparse.Namespace) -> int:
    least, most = _NAME_COUNTS.get(arguments.action, (1, 1))
    if not least <= len(arguments.names) <= most:
        hint = "see lamina conversations --help"
        wanted = "no name"
        if most:
            wanted = count_noun(most, "name")
        raise BadInput(f"{arguments.action} takes {wanted}", place="conversations", hint=hint)
    if arguments.action == "inspect":
        return _inspect(arguments)
    if arguments.action == "summary":
        return print_summary(arguments)
    return anyio.run(_run_action, arguments)


async def _run_action(arguments: argparse.Namespace) -> int:
    async with open_named_store(arguments, create=arguments.action == "import") as (store, workspace):
        return await _ACTIONS[arguments.action](store, workspace, arguments)


async def _list(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Print the conversations, those that were used last first."""
    with progress("reading the conversations"):
        talks = [
            talk
            async for talk in list_talks(store, workspace)
            if await _is_wanted(store, workspace, talk, arguments)
        ]
    talks.sort(key=lambda talk: talk.updated, reverse=True)
    if arguments.json:
        emit({"conversations": [_describe_talk(talk) for talk in talks]})
        return 0
    for talk in talks:
        print(f"{_date(talk.updated):<16}  {talk.door:<7}  {talk.name}")
        print(_shorten(f"    {_summarise(talk)}"))
    tell(count_noun(len(talks), "conversation"))
    return 0


async def _is_wanted(store: Store, workspace: str, talk: ListedTalk, arguments: argparse.Namespace) -> bool:
    """Whether a conversation passes the filters of a list."""
    if arguments.since is not None and talk.updated < arguments.since:
        return False
    if arguments.door and talk.door != arguments.door:
        return False
    if arguments.client and arguments.client not in talk.client and arguments.client not in talk.name:
        return False
    words = arguments.text.casefold()
    if not words or words in talk.title.casefold():
        return True
    if talk.problem:
        return False
    return await _has_words(store, workspace, talk, words)


async def _has_words(store: Store, workspace: str, talk: ListedTalk, words: str) -> bool:
    """Whether these words are in a text of a conversation that is stored."""
    segments: list[Any] = []
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
    facts = []
    if talk.requests is not None:
        facts.append(count_noun(talk.requests, "request"))
    else:
        facts.append(count_noun(talk.log_records, "record"))
    facts.append(count_noun(talk.cuts, "cut"))
    facts += [each for each in (talk.model, talk.client) if each]
    line = ", ".join(facts)
    if talk.title:
        line += f": {talk.title}"
    return line


def _describe_talk(talk: ListedTalk) -> dict[str, Any]:
    """A conversation for --json, with dates as ISO 8601."""
    plain: dict[str, Any] = msgspec.to_builtins(talk)
    for field in ("began", "updated"):
        plain[field] = _iso(plain[field])
    return plain


class _ShownTalk(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `show` prints of a conversation."""

    talk: ListedTalk
    state: ConversationState
    record: ConversationRecord
    cuts: tuple[Cut, ...]
    dialogue: list[dict[str, str]]
    what_is_kept: str


async def _show(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Print a conversation: its state, its cuts, each request, and what was said if it is a session."""
    name = await resolve_name(store, workspace, arguments.names[0])
    shown = await _read_shown(store, workspace, name)
    if arguments.json:
        emit(_describe_shown(shown))
        return 0
    _print_fields(shown.talk, shown.state)
    for cut in shown.cuts:
        print(_cut_line(cut))
    if shown.record.calls:
        print(f"\n{'time (UTC)':<19}  {'tokens':>9}  {'cached':>9}  {'cost':>9}  {'status':<9}  cut")
    for call in shown.record.calls:
        print(_call_line(call, shown.record))
    for line in shown.dialogue:
        print(f"\n{line['role']}: {line['text']}")
    tell(shown.what_is_kept)
    return 0


async def _read_shown(store: Store, workspace: str, name: str) -> _ShownTalk:
    talk = await find_talk(store, workspace, name)
    if talk is None:
        raise no_such_conversation(name)
    if talk.problem:
        raise Damaged(talk.problem, conversation=name)
    recorded_in = recorded_workspace(workspace)
    state = ConversationState()
    stored = await find_conversation(store, recorded_in, name)
    if stored is not None:
        state = stored.state
    record = await read_record(store, recorded_in, name)
    cuts = state.ledger.cuts
    dialogue: list[dict[str, str]] = []
    what_is_kept = "this store keeps the whole log"
    if talk.log_records:
        async with open_existing(store, workspace, name) as session:
            dialogue = [{"role": line.role.value, "text": line.text} for line in session.dialogue()]
            cuts = cuts or session.ledger.cuts
    if talk.records:
        what_is_kept = describe_kept(state, record)
    return _ShownTalk(
        talk=talk, state=state, record=record, cuts=cuts, dialogue=dialogue, what_is_kept=what_is_kept
    )


def _describe_shown(shown: _ShownTalk) -> dict[str, Any]:
    """A conversation for --json, without the bodies: `export --format json` has them."""
    return {
        **_describe_talk(shown.talk),
        "kept": shown.what_is_kept,
        "parent": shown.state.parent,
        "upstream": shown.state.upstream,
        "cut_list": [msgspec.to_builtins(cut) for cut in shown.cuts],
        "request_list": [_describe_call(call, shown.record) for call in shown.record.calls],
        "dialogue": shown.dialogue,
    }


def _print_fields(talk: ListedTalk, state: ConversationState) -> None:
    fields = {
        "name": talk.name,
        "title": talk.title,
        "door": talk.door,
        "client": talk.client,
        "parent": state.parent,
        "model": talk.model,
        "upstream": state.upstream,
        "began": _date(talk.began),
        "last used": _date(talk.updated),
        "requests": _number(talk.requests),
        "cuts": f"{talk.cuts:,}",
        "tokens": _number(talk.tokens),
        "records": f"{talk.records + talk.log_records:,}",
    }
    for field, value in fields.items():
        if value:
            print(f"{field:<10} {value}"[:WIDTH])


def _cut_line(cut: Cut) -> str:
    """A cut of lamina, or what the caller changed: then the cache is lost, and nothing was shortened."""
    if not is_compaction(cut):
        return f"the caller changed what was sent: {cut.reason}"
    return f"cut {cut.number}: {cut.reason}, {cut.before:,} to {cut.after:,} tokens"


def _call_line(call: RecordedCall, record: ConversationRecord) -> str:
    """One request: when, its tokens as reported, else as counted, its cost, what became of it, its cut."""
    request = call.request
    answer = call.answer
    tokens = request.tokens
    cached = ""
    status = "in flight"
    if answer is not None:
        status = answer.error or "no answer"
        if answer.status:
            status = str(answer.status)
        if answer.usage is not None:
            tokens = answer.usage.input or tokens
            cached = f"{answer.usage.cached:,}"
    dollars = price_call(call)
    cost = ""
    if dollars is not None:
        cost = f"${dollars:.4f}"
    remarks = []
    if request.cut is not None and request.is_cut:
        remarks.append(f"cut {request.cut.number}")
    elif request.cut is not None:
        remarks.append(request.cut.reason)
    if request.why:
        remarks.append(f"again: {request.why}")
    if record.is_erased(call):
        remarks.append("erased")
    moment = datetime.fromtimestamp(request.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    line = f"{moment}  {tokens:>9,}  {cached:>9}  {cost:>9}  {status:<9.9}  {', '.join(remarks)}"
    return line.rstrip()[:WIDTH]


def _describe_call(call: RecordedCall, record: ConversationRecord) -> dict[str, Any]:
    """A request for --json, without its bodies: `export --format json` has them."""
    request = call.request
    row: dict[str, Any] = {
        "id": request.id,
        "at": _iso(request.at),
        "model": request.model,
        "tokens": request.tokens,
        "epoch": request.epoch,
        "cut": msgspec.to_builtins(request.cut),
        "follows": request.follows,
        "why": request.why,
        "size": request.size,
        "erased": record.is_erased(call),
        "cost": price_call(call),
        "status": None,
        "usage": None,
    }
    if call.answer is not None:
        row["status"] = call.answer.status
        row["usage"] = msgspec.to_builtins(call.answer.usage)
        row["error"] = call.answer.error
        row["seconds"] = call.answer.last
    return row


async def _export(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    name = await resolve_name(store, workspace, arguments.names[0])
    return await export_one(store, workspace, name, form=arguments.format)


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
    """Delete a conversation or one message, everywhere. Without --yes nothing is deleted."""
    name = await _resolve_damaged(store, workspace, arguments.names[0])
    what = f"{name!r}"
    if arguments.message:
        what = f"{arguments.message!r} in {name!r}"
    if not arguments.yes:
        raise BadInput(f"{what} would be gone for good", place="delete", hint="say --yes if you mean it")
    if arguments.message:
        erased = await _delete_message(store, workspace, name, arguments.message)
        if arguments.json:
            emit(erased)
        messages = count_noun(erased["messages"], "message")
        records = count_noun(erased["records"], "record")
        tell(f"{messages} of {name!r}, and what quotes it: erased in {records}")
        return 0
    await delete_conversation(store, workspace, name)
    if arguments.json:
        emit({"deleted": [name]})
    tell(f"{name!r} is deleted")
    return 0


async def _resolve_damaged(store: Store, workspace: str, name: str) -> str:
    """A name as `resolve_name` finds it; one that no list has may be a deletion that was interrupted."""
    try:
        return await resolve_name(store, workspace, name)
    except StoreError:
        if name in await _list_unfinished_deletions(store, workspace):
            return name
        raise


async def _delete_message(store: Store, workspace: str, name: str, message: str) -> dict[str, int]:
    """Delete a message by its handle or key; if nothing has this name, by its text."""
    try:
        erased = await delete_message(store, workspace, name, key=message)
    except StoreError:
        erased = await delete_message(store, workspace, name, text=message)
    return {"messages": erased.messages, "records": erased.records}


async def _prune(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Delete recorded conversations that are too old, or too many. Without --yes nothing is deleted."""
    days = arguments.days
    if days is None and arguments.size is None:
        days = 30
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


async def _verify(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Read every record of these conversations, or of all. A damaged record raises an error."""
    if arguments.names:
        names = [await _resolve_damaged(store, workspace, arguments.names[0])]
    else:
        names = await list_names(store, workspace)
        names += await _list_unfinished_deletions(store, workspace)
    with progress("reading every record"):
        counts = {name: await _verify_conversation(store, workspace, name) for name in names}
    risk = _risk_of(store)
    if arguments.json:
        emit({"verified": counts, "risk": risk})
        return 0
    records = count_noun(sum(counts.values()), "record")
    tell(f"as it was written: {records} in {count_noun(len(counts), 'conversation')}")
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
    places = (workspace, conversation_place(recorded_workspace(workspace), "any").workspace)
    return [name for place in places for name in await store.unfinished_deletions(place)]


async def _verify_conversation(store: Store, workspace: str, name: str) -> int:
    """Read every record; raise what is wrong with the first that is not as it was written."""
    recorded_in = recorded_workspace(workspace)
    count = 0
    for where in (Where(workspace, name), conversation_place(recorded_in, name)):
        if hasattr(store, "vault"):  # sealed; without the extra nothing can be
            from lamina.stores.sealed import Sealed, verify  # noqa: PLC0415 - an extra

            if isinstance(store, Sealed):
                await verify(store, where)
        count += (await store.read(where)).head.count
    if (await store.read(Where(workspace, name), last=0)).head.count:
        async with Session.open(store, name, workspace=workspace):
            pass
    _check_bodies(await read_record(store, recorded_in, name), name)
    return count


def _check_bodies(record: ConversationRecord, name: str) -> None:
    """Raise Damaged if a body that is built from its pieces is not the one that left."""
    for call in record.calls:
        body = record.sent_body(call)
        if body is None or not call.request.digest or record.is_erased(call):
            continue
        if digest_body(body) != call.request.digest:
            problem = f"the body of request {call.request.id} is not the one that left"
            raise Damaged(problem, conversation=name, hint="export what is there, or restore a backup")


def _risk_of(store: Store) -> str:
    """What the SQLite behind a store could do to it; empty if nothing, or if it has none."""
    from lamina.stores.sqlite import SqliteStore  # noqa: PLC0415
    from lamina.stores.sqlite.drivers import risk  # noqa: PLC0415

    inner = getattr(store, "store", store)
    if not isinstance(inner, SqliteStore):
        return ""
    return risk(inner.driver)


async def _rescue(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Write what can still be read of a damaged conversation: segments of a log, requests of a record."""
    if not isinstance(store, Rescuable):
        hint = "restore it from a backup, or read single records with read(at=...)"
        raise BadInput("this kind of store cannot", place="rescue", hint=hint)
    name = await resolve_name(store, workspace, arguments.names[0])
    log_records = await store.rescue(Where(workspace, name))
    recorded = await store.rescue(conversation_place(recorded_workspace(workspace), name))
    if not log_records and not recorded:
        raise StoreError(
            "there is none of this name", conversation=name, hint="see lamina conversations list"
        )
    lines = list(filter(None, (_segment_line(record.body) for record in log_records)))
    what = "messages"
    if not lines:
        lines = [f"{line.decode()}\n" for line in _rescue_record(recorded)]
        what = "lines"
    sys.stdout.writelines(lines)
    whole = [*log_records, *recorded]
    tell(f"{len(whole)} records are whole, {len(lines)} {what} written")
    for records in (log_records, recorded):
        places = {record.seq for record in records}
        lost = sorted(set(range(max(places, default=-1))) - places)
        if lost:
            tell(f"not whole, or gone: {', '.join(map(str, lost))}")
    return 0


def _rescue_record(records: Sequence[Record]) -> list[bytes]:
    """The lines of a record, without requests that cannot be built again. What is lost counts as erased."""
    by_place = {record.seq: record.body for record in records}
    record = ConversationRecord()
    for place in range(max(by_place) + 1):
        body = by_place.get(place, ERASED)
        try:
            record.read([body])
        except (BadInput, KeyError):  # a request that is based on one that is lost
            record.read([ERASED])
    return list(write_lines(ConversationState(requests=len(record.calls)), record))


def _segment_line(body: bytes) -> str:
    """A record as a line that `import` reads; empty for records between segments, which mark a place."""
    try:
        [segment] = decode([body])
    except BadInput:
        return ""
    return f"{encode(segment).decode()}\n"


def _inspect(arguments: argparse.Namespace) -> int:
    """Open the inspector on one conversation."""
    from lamina.cli import parser_for  # noqa: PLC0415 - it imports this module when it is run
    from lamina.cli.inspect import run as run_inspect  # noqa: PLC0415

    async def resolve() -> str:
        async with open_named_store(arguments) as (store, workspace):
            return await resolve_name(store, workspace, arguments.names[0])

    options = parser_for("inspect").parse_args(["--store", arguments.store or "", "--open"])
    options.workspace = arguments.workspace
    options.key_file = arguments.key_file
    options.conversation = anyio.run(resolve)
    return run_inspect(options)


def _number(count: int | None) -> str:
    """A count, or nothing if it is not known."""
    if not count:
        return ""
    return f"{count:,}"


def _date(seconds: float) -> str:
    if not seconds:
        return "no date"
    return datetime.fromtimestamp(seconds, UTC).strftime(DATE)


def _iso(seconds: float) -> str | None:
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _shorten(line: str) -> str:
    if len(line) <= WIDTH:
        return line
    return f"{line[: WIDTH - 1]}…"


_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def _size(text: str) -> int:
    """`2GB`, `500 MB` or `1000` as bytes."""
    number = text.upper().rstrip("KMGTB ")
    unit = text.upper()[len(number) :].strip() or "B"
    try:
        return int(float(number) * _BYTES[unit])
    except (ValueError, KeyError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 2GB") from None


_NAME_COUNTS = {
    "list": (0, 0),
    "summary": (0, MOST_PATHS),
    "prune": (0, 0),
    "verify": (0, 1),
    "import": (2, 2),
}
"""How many names an action takes, at least and at most; every other takes one."""

_ACTIONS: dict[str, Callable[[Store, str, argparse.Namespace], Awaitable[int]]] = {
    "list": _list,
    "show": _show,
    "export": _export,
    "import": _import,
    "copy": _copy,
    "delete": _delete,
    "prune": _prune,
    "verify": _verify,
    "rescue": _rescue,
    "inspect": _show,  # `run` has opened the inspector before
    "summary": _show,  # `run` has printed it before
}
