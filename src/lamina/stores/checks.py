"""The rules of the port that need no storage, for all stores.

They say which names a store accepts, what a group may hold, and when a write comes too late. Each check
raises an error and returns nothing. This module knows no files and no database. `checked` calls those about
the arguments of a call.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence

from lamina.errors import BadInput, Conflict, KeyNeeded, Reused, StoreError, WrongKey
from lamina.stores.port import (
    NAME_BYTES,
    OWN_PREFIXES,
    RESERVED,
    SEALED_NAME_BYTES,
    Once,
    OwnName,
    StoredHead,
    Where,
    Within,
)


def check_open(*, closed: bool, process: int) -> None:
    """Raise StoreError if a store was closed, or belongs to another process than this one.

    Two processes that use one connection would read each other's answers.
    """
    if closed:
        raise StoreError("the store is closed", hint="open it again")
    if os.getpid() != process:
        raise StoreError("the store was opened before this process was forked", hint="open it here")


def check_selected_once(*, after: int, last: int | None, at: Sequence[int] | None) -> None:
    """Raise BadInput if a read selects its records in two ways.

    `after=0` selects nothing by itself: it is what a read does without arguments.
    """
    selections = [after != 0, last is not None, at is not None]
    if selections.count(True) > 1:
        raise BadInput("after, last and at exclude each other", place="read", hint="give one of them")


def check_optional_number(name: str, number: int | None) -> None:
    if number is not None:
        check_number(name, number)


def check_number(name: str, number: int) -> None:
    """Raise BadInput for an argument that is not a number of records or conversations."""
    _check_type(number, int, place=name, hint="give a whole number")
    if number < 0:
        raise BadInput(f"{number!r}", place=name, hint="give 0 or more")


def check_places(name: str, places: Iterable[int]) -> None:
    """Raise BadInput for places that no record can have."""
    for seq in places:
        _check_type(seq, int, place=name, hint="a place is a whole number")
        if seq < 0:
            raise BadInput(f"{seq!r}", place=name, hint="places count from 0")


def check_listed_name(after: str) -> None:
    """Raise BadInput for a name that a database cannot compare with others."""
    _check_type(after, str, place="after", hint="give the last name that you have")
    try:
        after.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{after!r}", place="after", hint="no name holds a lone surrogate") from None


def check_where(where: Where) -> None:
    """Raise BadInput for a name that some store could not store as it is."""
    _check_type(where, Where, place="where", hint="give Where(workspace, conversation)")
    check_workspace(where.workspace)
    if not where.conversation:
        raise BadInput("it is empty", place="conversation", hint="give it a name")
    limit = NAME_BYTES
    if isinstance(where.workspace, Within):
        limit = SEALED_NAME_BYTES
    _check_name(where.conversation, "conversation", limit=limit)


def check_workspace(workspace: str) -> None:
    """Raise BadInput for a name that some store could not store, or that only lamina itself may use.

    Whoever could choose `lamina.conversations/alice` would read what is recorded of the workspace `alice`.
    """
    _check_name(workspace, "workspace")
    is_marked = isinstance(workspace, OwnName | Within)
    if not is_marked and workspace.startswith(OWN_PREFIXES):
        prefixes = ", ".join(map(repr, OWN_PREFIXES))
        hint = f"choose another one: names that begin with {prefixes} are lamina's own"
        raise BadInput(f"{workspace!r}", place="workspace", hint=hint)


def _check_name(name: str, place: str, *, limit: int = NAME_BYTES) -> None:
    """Raise BadInput for a name that not every store could keep as it is.

    PostgreSQL refuses NUL characters, UTF-8 has no lone surrogates, and indexes bound the size of a key.
    """
    _check_type(name, str, place=place, hint="a name is a str")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise BadInput(f"{name!r}", place=place, hint="a name cannot hold a lone surrogate") from None
    if "\0" in name:
        raise BadInput(f"{name!r}", place=place, hint="a name cannot hold a NUL character")
    if size > limit:
        raise BadInput(f"{size:,} bytes", place=place, hint=f"a name has at most {limit:,} bytes")


def is_sealed_name(workspace: str) -> bool:
    """Whether this is the name of a workspace that only encryption uses."""
    return isinstance(workspace, Within) or workspace.startswith(RESERVED)


def check_key(workspace: str, *, sealed: bool) -> None:
    """Raise KeyNeeded for a plain name in a sealed store."""
    if sealed and not is_sealed_name(workspace):
        raise KeyNeeded


def check_no_plain(*, plain: bool) -> None:
    """Raise WrongKey if a store is to be sealed that holds plain conversations."""
    if plain:
        raise WrongKey(
            "this store holds conversations that are not sealed",
            hint=(
                "open it without a key to go on as before; to encrypt what is there, "
                "copy it into a new store: lamina store copy"
            ),
        )


def check_bodies(bodies: Sequence[bytes]) -> None:
    """Raise BadInput for anything but bytes, before something of a group is written.

    Without this a store could fail in the middle of a group, each with an error of its own.
    """
    for index, body in enumerate(bodies):
        if not isinstance(body, bytes):
            raise BadInput(f"a {type(body).__name__}", place=f"record {index}", hint="a record is bytes")


def check_bytes(name: str, value: bytes | None) -> None:
    """Raise BadInput for a state or a digest that is not bytes."""
    if value is not None:
        _check_type(value, bytes, place=name, hint="give bytes")


def check_once(once: Once | None) -> None:
    """Raise BadInput for an idempotency key that some store could not store."""
    if once is None:
        return
    _check_type(once, Once, place="once", hint="give Once(key=…, digest=…)")
    _check_name(once.key, "once.key")
    _check_type(once.digest, bytes, place="once.digest", hint="give bytes")


def check_replaced_places(places: Collection[int], expect: int) -> None:
    """Raise BadInput if a replacement names a place that is not there."""
    check_places("bodies", places)
    for seq in places:
        if seq >= expect:
            raise BadInput(f"no place {seq!r}", place="bodies", hint=f"there are {expect:,} records, from 0")


def _check_type(value: object, kind: type, *, place: str, hint: str) -> None:
    if not isinstance(value, kind):
        raise BadInput(f"a {type(value).__name__}", place=place, hint=hint)


def check_head(where: Where, head: StoredHead, *, expect: int | None, was: bytes | None) -> None:
    """Raise Conflict if another writer was first.

    The number of records alone does not tell: a write may change the state and add no record.
    """
    if expect is not None and expect != head.count:
        raise Conflict(conversation=where.conversation, expected=expect, found=head.count)
    if was is not None and was != head.state:
        raise Conflict(
            conversation=where.conversation,
            expected=head.count,
            found=head.count,
            problem="its state has changed, the number of its records has not",
        )


def check_digest(where: Where, once: Once, digest: bytes) -> None:
    """Raise Reused if an idempotency key comes again with another body than that of `digest`."""
    if digest != once.digest:
        raise Reused(
            f"the idempotency key {once.key!r} was used for something else",
            conversation=where.conversation,
            hint="give each group a key of its own",
        )
