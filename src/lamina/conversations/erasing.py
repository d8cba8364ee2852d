"""Deletes messages of a conversation everywhere: log, record, digests, ledgers, forks and search index.

A message is named by its key; `find_messages` finds the keys of those that say a text. Records are replaced
in place and never removed, so nothing else moves. `erasure_targets` says what goes, `erased_records` what
stands there instead. At the end the text is looked for in all that is stored: what could not be erased is an
error that names the place.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec

from lamina.conversations.erased_records import erase_log, erase_record, erase_state, strip_ledger
from lamina.conversations.erasure_targets import (
    ErasureTarget,
    StoredTalk,
    choose_target,
    find_by_text,
    list_texts,
)
from lamina.conversations.listing import list_related_names
from lamina.conversations.record import ERASED, PIECE
from lamina.conversations.store import conversation_place, recorded_workspace
from lamina.core.hashing import handle
from lamina.core.text.excerpts import to_one_line
from lamina.core.text.json_text import DEEPEST_ARGUMENTS, decode_json
from lamina.core.values import Ledger
from lamina.core.wording import text_of
from lamina.errors import BadInput, Conflict, NotErased, StoreError
from lamina.stores.paging import attempts, sweep_replaced
from lamina.stores.port import RecordPage, Rekeyable, Store, Where, search_place

LEAST = 8
"""Characters from which on a text is looked for at the end. A shorter one stands anywhere by chance."""

ENUMERATIONS = frozenset(
    "type role model object status kind dialect finish_reason stop_reason finishReason stopReason".split()
)
"""Fields whose values are words of an API or names of models: they quote nobody."""

_EXCERPT = 80
"""Characters of a message that are shown to tell it from others."""

_IDENTIFIER = re.compile("[A-Za-z_][A-Za-z0-9_]*")

_ERASURES = "erasures"
"""The field of a session's state that counts erasures since its last request. Sessions do not read it."""


class FoundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that says a text: the key to erase it by, whose it is, and the text that says it.

    `is_own`: no client has it. Lamina made it of other messages, or the model called a tool of lamina's.
    """

    key: str
    role: str
    kind: str
    text: str
    is_own: bool = False


class ErasedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages of the client were erased, and how many records were changed for it."""

    messages: int
    records: int


async def find_messages(store: Store, workspace: str, name: str, text: str) -> list[FoundMessage]:
    """The messages of a conversation that say this text, in a word, a number, or the name of a field."""
    talk = await _read_talk(store, workspace, name)
    messages: list[FoundMessage] = []
    for spoken in find_by_text(talk, text):
        segment = spoken.segment
        excerpt = next(own_text for own_text in list_texts(segment) if text in own_text)
        message = FoundMessage(
            key=handle(spoken.content),
            role=segment.role.value,
            kind=segment.kind,
            text=to_one_line(excerpt, _EXCERPT),
            is_own=spoken.saying in talk.own,
        )
        messages.append(message)
    return messages


async def delete_message(
    store: Store, workspace: str, name: str, *, key: str = "", text: str = ""
) -> ErasedMessage:
    """Erase the message with this handle, ref or key, or all that say this text; in forks of it, too.

    Raises StoreError if nothing that is stored answers to it, and NotErased if what it said is still stored
    afterwards, where no message stands. A client that still has the message sends it again with its next
    request, and then it is stored again: delete it there first.
    """
    if bool(key) == bool(text):
        raise BadInput("give a key or a text", place="delete_message", hint="one of them, not both")
    if not isinstance(store, Rekeyable):
        hint = "delete the whole conversation, or copy it into a store that can"
        raise StoreError("this kind of store cannot replace records", conversation=name, hint=hint)
    names = frozenset((key,))
    if text:
        messages = await find_messages(store, workspace, name, text)
        names = frozenset(message.key for message in messages)
    target, records = await _erase(store, store, Where(workspace, name), names)
    for fork in await list_related_names(store, workspace, name):
        _, changed = await _erase(store, store, Where(workspace, fork), target.keys)
        records += changed
    await sweep_replaced(store)
    texts = target.texts
    if text:
        texts = frozenset((text,))
    places = find_left_over(await _read_talk(store, workspace, name), texts)
    if places:
        raise NotErased(places, conversation=name, erased=target.messages)
    if not target.keys:
        problem = f"nothing that is stored answers to {key or text!r}"
        raise StoreError(problem, conversation=name, hint="see lamina conversations show")
    return ErasedMessage(messages=target.messages, records=records)


async def _erase(
    store: Store, writer: Rekeyable, where: Where, names: frozenset[str]
) -> tuple[ErasureTarget, int]:
    """Erase these messages from one conversation. Returns what went, and how many records changed."""
    log_place = where
    record_place = conversation_place(recorded_workspace(where.workspace), where.conversation)
    for _ in attempts(where.conversation):
        talk = await _read_talk(store, where.workspace, where.conversation)
        target = choose_target(talk, names)
        log_bodies = erase_log(talk.log_page, target)
        log_state = _erase_session_state(talk, target, has_changed=bool(log_bodies))
        record_bodies = erase_record(talk, target)
        record_state = _erase_record_state(talk, target)
        # Nothing is written before all of it is known: a damaged record leaves the log as it is.
        try:
            await _replace(writer, log_place, talk.log_page, log_bodies, log_state)
            await _replace(writer, record_place, talk.record_page, record_bodies, record_state)
        except Conflict:
            continue
        await _delete_indexes(store, log_place, record_place)
        return target, len(log_bodies) + len(record_bodies)
    raise AssertionError  # the attempts end in an error


async def _read_talk(store: Store, workspace: str, name: str) -> StoredTalk:
    record_place = conversation_place(recorded_workspace(workspace), name)
    return StoredTalk(await store.read(Where(workspace, name)), await store.read(record_place))


async def _replace(
    writer: Rekeyable, place: Where, page: RecordPage, bodies: dict[int, bytes], state: bytes | None
) -> None:
    """Replace records and the state, unless nothing has to change or somebody wrote meanwhile (Conflict)."""
    if bodies or state is not None:
        await writer.replace(place, bodies, expect=page.head.count, was=page.head.state, state=state)


async def _delete_indexes(store: Store, *places: Where) -> None:
    """Delete the search indexes of a conversation. They are made again from what is left."""
    for index in filter(None, map(search_place, places)):
        if (await store.read(index, last=0)).head.count:
            await store.delete(index)


def _erase_session_state(talk: StoredTalk, target: ErasureTarget, *, has_changed: bool) -> bytes | None:
    """The state of a session without what was made of the message; None if nothing has to change.

    If records of its log have changed, its state does too: an open session writes only over the state that it
    knows. So it reads its log again, and does not go on with the message.
    """
    ledger = talk.session_ledger
    if ledger is None:
        return None
    stripped = strip_ledger(ledger, target)
    if stripped is ledger and not has_changed:
        return None
    plain = msgspec.json.decode(talk.log_page.head.state)
    plain = {name: value for name, value in plain.items() if name not in Ledger.__struct_fields__}
    plain |= stripped.dump()
    plain[_ERASURES] = plain.get(_ERASURES, 0) + 1
    return msgspec.json.encode(plain, order="deterministic")


def _erase_record_state(talk: StoredTalk, target: ErasureTarget) -> bytes | None:
    state = erase_state(talk, target)
    if state is talk.state:
        return None
    return msgspec.json.encode(state)


def find_left_over(talk: StoredTalk, texts: Collection[str]) -> list[str]:
    """Where one of these texts still stands, such as `request r3: metadata.user_id`."""
    long_texts = [text for text in texts if len(text) >= LEAST]
    places: dict[str, None] = {}
    if long_texts:
        for label, value in _list_stored(talk):
            for path in _find_paths(value, long_texts):
                places[f"{label}: {path}"] = None
    return list(places)


def _list_stored(talk: StoredTalk) -> Iterator[tuple[str, Any]]:
    """Everything that is stored of a conversation, as values with the places where they are."""
    for label, page in (("log", talk.log_page), ("record", talk.record_page)):
        yield f"state of the {label}", _decode(page.head.state)
        for item in page.records:
            if not item.body.startswith((PIECE, ERASED)):
                yield f"{label}, line {item.seq}", _decode(item.body)
    for place, ledger in talk.ledgers.items():
        yield f"ledger in line {place}", ledger.dump()
    for body in talk.bodies:
        if body.tree is None:
            yield body.label, [_decode(body.text), *(text_of(segment.parts) for segment in body.log)]
        else:
            yield body.label, body.tree


def _decode(body: bytes) -> Any:
    """What a text says; the text itself if it is not JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body.decode("utf-8", "replace")


def _is_api_word(text: str) -> bool:
    """Whether a text may be the name of a field by chance, such as `function`."""
    return _IDENTIFIER.fullmatch(text) is not None


def _find_paths(value: Any, texts: Sequence[str], path: str = "") -> Iterator[str]:
    """The paths of strings, numbers and names of fields that have one of these texts in them."""
    match value:
        case dict():
            for name, inner in value.items():
                if any(text in name for text in texts if not _is_api_word(text)):
                    yield f"{path}, in the name of a field"
                elif name not in ENUMERATIONS:
                    yield from _find_paths(inner, texts, f"{path}.{name}".lstrip("."))
        case list() | tuple():
            for number, inner in enumerate(value):
                yield from _find_paths(inner, texts, f"{path}[{number}]")
        case str() if value.startswith(("{", "[")) and (
            inner := decode_json(value, deepest=DEEPEST_ARGUMENTS)
        ):
            yield from _find_paths(inner, texts, path)
        case str() | int() | float():
            if any(text in str(value) for text in texts):
                yield path
