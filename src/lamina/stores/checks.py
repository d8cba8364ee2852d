"""The rules of the port that need no storage, for all stores.

They say which names a store accepts, what a group may hold, which places a read selects, and when a write
comes too late. Each check raises an error and returns nothing. This module knows no files and no database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from lamina.errors import BadInput, Conflict, KeyNeeded, Reused, StoreError, WrongKey
from lamina.stores.port import (
    NAME_BYTES,
    OWN_PREFIXES,
    RESERVED,
    Once,
    OwnName,
    StoredHead,
    Where,
    Within,
)


def select_places(
    count: int,
    *,
    after: int = 0,
    last: int | None = None,
    at: Sequence[int] | None = None,
    limit: int | None = None,
) -> Sequence[int]:
    """The places that a read selects, in order, in a conversation of `count` records.

    `after` is the number of records to pass over. Places in `at` that do not exist are passed over too.
    """
    if at is not None:
        return sorted({seq for seq in at if seq < count})[:limit]
    start = min(after, count)
    if last is not None:
        start = max(count - last, 0)
    return range(start, count)[:limit]


def check_read_arguments(
    *, after: int = 0, last: int | None = None, at: Sequence[int] | None = None, limit: int | None = None
) -> None:
    """Raise BadInput if the arguments of a read contradict each other or are negative.

    `after=0` selects nothing by itself: it is what a read does without arguments.
    """
    selections = [after != 0, last is not None, at is not None]
    if selections.count(True) > 1:
        raise BadInput("after, last and at exclude each other", place="read", hint="give one of them")
    for name, number in (("after", after), ("last", last), ("limit", limit)):
        if number is not None and number < 0:
            raise BadInput(f"{number!r}", place=name, hint="give 0 or more")
    if at is not None and any(seq < 0 for seq in at):
        raise BadInput(f"{min(at)!r}", place="at", hint="places count from 0")


def check_where(where: Where) -> None:
    """Raise BadInput for a name that some store could not store as it is."""
    check_workspace(where.workspace)
    if not where.conversation:
        raise BadInput("it is empty", place="conversation", hint="give it a name")
    _check_name(where.conversation, "conversation")


def check_workspace(workspace: str) -> None:
    """Raise BadInput for a name that some store could not store, or that only lamina itself may use.

    Whoever could choose `lamina.search/alice` would read the search index of the workspace `alice`.
    """
    _check_name(workspace, "workspace")
    is_marked = isinstance(workspace, OwnName | Within)
    if not is_marked and workspace.startswith(OWN_PREFIXES):
        prefixes = ", ".join(map(repr, OWN_PREFIXES))
        hint = f"choose another one: names that begin with {prefixes} are lamina's own"
        raise BadInput(f"{workspace!r}", place="workspace", hint=hint)


def _check_name(name: str, place: str) -> None:
    """Raise BadInput for a name that not every store could keep as it is.

    PostgreSQL refuses NUL characters, UTF-8 has no lone surrogates, and indexes bound the size of a key.
    """
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise BadInput(f"{name!r}", place=place, hint="a name cannot hold a lone surrogate") from None
    if "\0" in name:
        raise BadInput(f"{name!r}", place=place, hint="a name cannot hold a NUL character")
    if size > NAME_BYTES:
        raise BadInput(f"{size:,} bytes", place=place, hint=f"a name has at most {NAME_BYTES:,} bytes")


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
                "copy it into a new store: lamina conversations copy"
            ),
        )


def check_append_arguments(
    where: Where,
    records: Sequence[bytes],
    *,
    expect: int | None,
    was: bytes | None,
    once: Once | None,
    state: bytes | None,
) -> None:
    """Raise BadInput for a group that no store could store whole."""
    check_where(where)
    _check_bytes(records, was=was, state=state)
    if expect is not None and expect < 0:
        raise BadInput(f"{expect!r}", place="expect", hint="give the number of records that you read")
    if once is not None:
        _check_name(once.key, "once.key")
        _check_bytes((once.digest,))


def check_replace_arguments(
    where: Where, bodies: Mapping[int, bytes], *, expect: int, was: bytes | None, state: bytes | None
) -> None:
    """Raise BadInput for a replacement that cannot be made whole."""
    check_where(where)
    _check_bytes(list(bodies.values()), was=was, state=state)
    for seq in bodies:
        if not 0 <= seq < expect:
            raise BadInput(f"no place {seq!r}", place="bodies", hint=f"there are {expect:,} records, from 0")


def _check_bytes(records: Sequence[bytes], **arguments: bytes | None) -> None:
    """Raise BadInput for anything but bytes, before something of a group is written.

    Without this a store could fail in the middle of a group, each with an error of its own.
    """
    for index, body in enumerate(records):
        if not isinstance(body, bytes):
            raise BadInput(f"a {type(body).__name__}", place=f"record {index}", hint="a record is bytes")
    for name, value in arguments.items():
        if not isinstance(value, bytes | None):
            raise BadInput(f"a {type(value).__name__}", place=name, hint="give bytes")


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


def raise_missing(where: Where, *, expect: int, was: bytes | None) -> NoReturn:
    """Raise for a conversation that has to exist and does not: Conflict if the writer has read one."""
    check_head(where, StoredHead(), expect=expect, was=was)
    raise StoreError("there is no conversation of this name", conversation=where.conversation)


def check_digest(where: Where, once: Once, digest: bytes) -> None:
    """Raise Reused if an idempotency key comes again with another body than that of `digest`."""
    if digest != once.digest:
        raise Reused(
            f"the idempotency key {once.key!r} was used for something else",
            conversation=where.conversation,
            hint="give each group a key of its own",
        )
