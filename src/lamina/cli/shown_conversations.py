"""`lamina log NAME`: one conversation, with its state, its cuts and each of its requests."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from lamina.cli.output import emit, show, tell
from lamina.cli.stored import no_such_conversation, open_existing, take_name
from lamina.conversations.costs import price_call
from lamina.conversations.listing import ListedTalk, find_talk
from lamina.conversations.record import ConversationRecord, CutNote, RecordedCall, is_compaction
from lamina.conversations.recorded_log import describe_kept
from lamina.conversations.store import ConversationState, find_conversation, read_record, recorded_workspace
from lamina.core.values import Cut
from lamina.errors import Damaged
from lamina.inspector.sent_conversations import count_request_tokens
from lamina.stores.port import Store

WIDTH = 80
"""Columns of what is printed."""

DATE = "%Y-%m-%d %H:%M"


class _ShownTalk(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `show` prints of a conversation."""

    talk: ListedTalk
    state: ConversationState
    record: ConversationRecord
    cuts: tuple[Cut, ...]
    dialogue: list[dict[str, str]]
    what_is_kept: str


async def show_conversation(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Print a conversation: its state, its cuts, each request, and what was said if it is a session."""
    name = await take_name(store, workspace, arguments.name)
    conversation = await _read_shown(store, workspace, name)
    if arguments.json:
        emit(_describe_shown(conversation))
        return 0
    _print_fields(conversation.talk, conversation.state)
    if not conversation.record.calls:  # else each stands with its request
        show(*map(_describe_cut, conversation.cuts))
    if conversation.record.calls:
        columns = f"{'time (UTC)':<19}  {'tokens':>9}  {'cached':>9}  {'cost':>9}  {'status':<9}"
        show("", f"{'#':>4}  {columns}")
    for number, call in enumerate(conversation.record.calls, 1):
        show(f"{number:>4}  {_call_line(call)}")
        remarks = ", ".join(_list_remarks(call, conversation.record))
        show(*textwrap.wrap(remarks, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6))
    for line in conversation.dialogue:
        show("", *f"{line['role']}: {line['text']}".split("\n"))
    tell(conversation.what_is_kept)
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


def _describe_shown(conversation: _ShownTalk) -> dict[str, Any]:
    """A conversation for --json, without the bodies: `export --format json` has them."""
    return {
        **describe_talk(conversation.talk),
        "kept": conversation.what_is_kept,
        "parent": conversation.state.parent,
        "upstream": conversation.state.upstream,
        "cut_list": [msgspec.to_builtins(cut) for cut in conversation.cuts],
        "request_list": [_describe_call(call, conversation.record) for call in conversation.record.calls],
        "dialogue": conversation.dialogue,
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
        "began": format_date(talk.began),
        "last used": format_date(talk.updated),
        "requests": _format_count(talk.requests),
        "cuts": f"{talk.cuts:,}",
        "tokens": _format_count(talk.tokens),
        "records": f"{talk.records + talk.log_records:,}",
    }
    for field, value in fields.items():
        if value:
            show(f"{field:<10} {value}"[:WIDTH])


def _describe_cut(cut: Cut | CutNote) -> str:
    """A cut of lamina, or what the caller changed: then the cache is lost, and nothing was shortened."""
    if not is_compaction(cut):
        return f"the caller changed what was sent: {cut.reason}"
    return f"cut {cut.number}: {cut.reason}, {cut.before:,} to {cut.after:,} tokens"


def _call_line(call: RecordedCall) -> str:
    """One request: when, its tokens as reported, else as counted, its cost, and what became of it."""
    tokens = count_request_tokens(call)
    cached = ""
    if call.answer is not None and call.answer.usage is not None:
        cached = f"{call.answer.usage.cached:,}"
    dollars = price_call(call)
    cost = ""
    if dollars is not None:
        cost = f"${dollars:.4f}"
    moment = datetime.fromtimestamp(call.request.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{moment}  {tokens:>9,}  {cached:>9}  {cost:>9}  {_describe_status(call)}"


def _describe_status(call: RecordedCall) -> str:
    if call.answer is None:
        return "in flight"
    if call.answer.status:
        return str(call.answer.status)
    return call.answer.error or "no answer"


def _list_remarks(call: RecordedCall, record: ConversationRecord) -> Iterator[str]:
    """The cut of a request, why it was sent again, and whether something of it was erased."""
    request = call.request
    if request.cut is not None:
        yield _describe_cut(request.cut)
    if request.why:
        yield f"again: {request.why}"
    if record.is_erased(call):
        yield "erased"


def _describe_call(call: RecordedCall, record: ConversationRecord) -> dict[str, Any]:
    """A request for --json, without its bodies: `export --format json` has them."""
    request = call.request
    row: dict[str, Any] = {
        "id": request.id,
        "at": _format_iso(request.at),
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


def describe_talk(talk: ListedTalk) -> dict[str, Any]:
    """A conversation for --json, with dates as ISO 8601."""
    plain: dict[str, Any] = msgspec.to_builtins(talk)
    for field in ("began", "updated"):
        plain[field] = _format_iso(plain[field])
    return plain


def _format_count(count: int | None) -> str:
    """A count, or nothing if it is not known."""
    if not count:
        return ""
    return f"{count:,}"


def format_date(seconds: float) -> str:
    if not seconds:
        return "no date"
    return datetime.fromtimestamp(seconds, UTC).strftime(DATE)


def _format_iso(seconds: float) -> str | None:
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
