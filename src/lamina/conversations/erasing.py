"""Deletes one message of a conversation everywhere: log, record, digests that quote it, ledgers, index.

Records are replaced in place and never removed, so nothing else moves (`erased_records` says what stands
there instead). Digests, stubs and recalls quote a message in part. So every digest that covers it leaves the
ledger, and in each request since then every string that lamina wrote itself is erased.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lamina.conversations.erased_records import RecordEraser, erase_log, read_segments, strip_ledger
from lamina.conversations.erasure_targets import (
    MARK,
    ErasureTarget,
    find_target,
    list_strings,
    locate_strings,
)
from lamina.conversations.record import ConversationRecord
from lamina.conversations.recorded_log import make_recorded_log
from lamina.conversations.store import ConversationState, conversation_place, decode_state, recorded_workspace
from lamina.core.text.characters import split_words
from lamina.core.values import Ledger
from lamina.errors import BadInput, Conflict, StoreError
from lamina.stores.paging import attempts
from lamina.stores.port import RecordPage, Rekeyable, Store, Where, search_place
from lamina.stores.sweeping import sweep_replaced

_ERASURES = "erasures"
"""The field of a session's state that counts erasures since its last request. Sessions do not read it."""


class ErasedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages were erased, and how many records of the store were changed for it."""

    messages: int
    records: int


async def delete_message(
    store: Store, workspace: str, name: str, *, key: str = "", text: str = ""
) -> ErasedMessage:
    """Delete a message of a conversation: the one with this handle, ref or key, or all that hold this text.

    Raises StoreError if nothing like it is stored. A client that still has the message sends it again with
    its next request, and then it is stored again: delete it there first.
    """
    if bool(key) == bool(text):
        raise BadInput("give a key or a text", place="delete_message", hint="one of them, not both")
    if not isinstance(store, Rekeyable):
        hint = "delete the whole conversation, or copy it into a store that can"
        raise StoreError("this kind of store cannot replace records", conversation=name, hint=hint)
    for _ in attempts(name):
        try:
            erased = await _erase_once(store, store, workspace, name, key=key, text=text)
        except Conflict:
            continue
        await _sweep(store, workspace, name)
        return erased
    raise AssertionError  # the attempts end in an error


async def _erase_once(
    store: Store, writer: Rekeyable, workspace: str, name: str, *, key: str, text: str
) -> ErasedMessage:
    log_place = Where(workspace, name)
    record_place = conversation_place(recorded_workspace(workspace), name)
    log_page = await store.read(log_place)
    record_page = await store.read(record_place)
    record = ConversationRecord()
    record.read(item.body for item in record_page.records)
    state = ConversationState()
    if record_page.head.state:
        state = decode_state(record_page.head.state)
    logged = [segment for _, segment in read_segments(log_page)]
    recorded = make_recorded_log(state, record).log
    target = find_target([logged, list(recorded)], key=key, text=text)
    # A text may be stored where it is no message: in a digest, or in an error of the provider.
    if not target.segments and not _has_text(text, log_page, record_page):
        problem = f"nothing that is stored answers to {key or text!r}"
        hint = "see lamina conversations show; a digest may quote a part of it: delete the conversation then"
        raise StoreError(problem, conversation=name, hint=hint)
    log_bodies = erase_log(log_page, target)
    log_state = _erase_session_state(log_page.head.state, target, has_changed=bool(log_bodies))
    record_bodies = RecordEraser(record_page, record, target).erase()
    record_state = _erase_state(state, target, record_page.head.state)
    # Nothing is written before all of it is known: a damaged record leaves the log as it is.
    await _replace(writer, log_place, log_page, log_bodies, log_state)
    await _replace(writer, record_place, record_page, record_bodies, record_state)
    return ErasedMessage(messages=len(target.segments), records=len(log_bodies) + len(record_bodies))


async def _replace(
    writer: Rekeyable, place: Where, page: RecordPage, bodies: dict[int, bytes], state: bytes | None
) -> None:
    """Replace records and the state, unless nothing has to change or somebody wrote meanwhile (Conflict)."""
    if bodies or state is not None:
        await writer.replace(place, bodies, expect=page.head.count, was=page.head.state, state=state)


def _has_text(text: str, *pages: RecordPage) -> bool:
    """Whether a text stands anywhere in these records. "" stands nowhere."""
    if not text:
        return False
    bodies: list[bytes] = []
    for page in pages:
        bodies.append(page.head.state)
        bodies += (record.body for record in page.records)
    strings = (string for body in bodies for _, _, string in locate_strings(body))
    return any(text in string for string in strings)


async def _sweep(store: Store, workspace: str, name: str) -> None:
    """Delete the search indexes of a conversation, and let the store overwrite what was replaced."""
    for where in (Where(workspace, name), conversation_place(recorded_workspace(workspace), name)):
        index = search_place(where)
        if index is not None and (await store.read(index, last=0)).head.count:
            await store.delete(index)
    await sweep_replaced(store)


def _erase_session_state(source: bytes, target: ErasureTarget, *, has_changed: bool) -> bytes | None:
    """The state of a session without the digests that quote the message; None if nothing has to change.

    If records of its log have changed, its state does too: an open session writes only over the state that it
    knows. So it reads its log again, and does not go on with the message.
    """
    try:
        plain = msgspec.json.decode(source)
        ledger = Ledger.load(plain)
    except (BadInput, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # a state that cannot be read is made anew, and this release did not write it
    stripped = strip_ledger(ledger, target)
    if stripped is not ledger:
        plain["folds"] = msgspec.to_builtins(stripped.folds)
    elif not has_changed:
        return None
    plain[_ERASURES] = plain.get(_ERASURES, 0) + 1
    return msgspec.json.encode(plain, order="deterministic")


def _erase_state(state: ConversationState, target: ErasureTarget, source: bytes) -> bytes | None:
    """The state of a recorded conversation without what quotes the message; None if nothing does."""
    if not source:
        return None
    title = state.title
    if title and _is_titled_after(title, target):
        title = MARK
    exchanges = tuple(each for each in state.exchanges if not _recalls(each, target))
    ledger = strip_ledger(state.ledger, target)
    new_state = msgspec.structs.replace(state, title=title, exchanges=exchanges, ledger=ledger)
    if new_state == state:
        return None
    return msgspec.json.encode(new_state)


def _is_titled_after(title: str, target: ErasureTarget) -> bool:
    """Whether a title holds the message, or is its beginning."""
    if target.is_in(title):
        return True
    return any(" ".join(split_words(text)).startswith(title) for text in target.whole_texts)


def _recalls(exchange: Any, target: ErasureTarget) -> bool:
    """Whether a recall brought back the message, or a part of it: it names it, holds it, or quotes a line."""
    for string in list_strings(msgspec.to_builtins(exchange)):
        if string in target.names or target.is_in(string):
            return True
        if target.is_quoted_in(string):
            return True
    return False
