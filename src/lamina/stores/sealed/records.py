"""How one record and one state are sealed: their bytes, what they are bound to, and the chain.

    record   version | alg | generation | id | link before | nonce | ciphertext
    state    version | alg | generation | (unused) | count | link of the last record | nonce | ciphertext

The associated data binds a record to store, workspace, conversation, place, generation and the link before
it; the state to the number of records and the link of the last one. A link hashes the link before, the place
and the record's random id. The id is authenticated with the body and kept when a record is sealed anew, so
links outlive a change of keys. Pure but for randomness: no store, no cache, no key of a user.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Sequence

import msgspec

from lamina.stores.sealed.cipher import (
    KEY,
    LINK,
    NONCE,
    TAG,
    Cipher,
    NotSealedHere,
    derived,
    digest,
    frame_fields,
    same,
)

VERSION = 1
AES_256_GCM = 1
SHREDDED = b"\x02shredded"
"""Stands in place of a state whose key was destroyed; a hint, the card is the proof."""

ID = 16
MOST_RECORDS = 2**28
"""How many records one generation of a key may seal: far below what random nonces allow."""

_RECORD = struct.Struct(f">BBI{ID}s{LINK}s")
_STATE = struct.Struct(f">BBIxQ{LINK}s")
_END = b"\x80"


class SealedPlace(msgspec.Struct, frozen=True):
    """What everything of one conversation is bound to: the names as its users know them."""

    store: bytes
    workspace: str
    conversation: str

    @property
    def genesis(self) -> bytes:
        """The link before the first record."""
        return digest("lamina/genesis/1", self.store, self.workspace, self.conversation)


class Generation:
    """The ciphers of one data key of one conversation, and what commits to that key."""

    __slots__ = ("commitment", "number", "of_records", "of_state", "place", "records", "states")

    def __init__(self, place: SealedPlace, number: int, key: bytes) -> None:
        info = ("lamina/data/1", place.workspace, place.conversation, number)
        material = derived(key, *info, salt=place.store, size=3 * KEY)
        self.place, self.number = place, number
        self.records, self.states = Cipher(material[:KEY]), Cipher(material[KEY : 2 * KEY])
        self.commitment = material[2 * KEY :]
        names = (place.store, place.workspace, place.conversation)
        self.of_records = frame_fields(f"lamina/record/{VERSION}", *names)
        self.of_state = frame_fields(f"lamina/state/{VERSION}", *names)


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A record that was verified: its plain body, its id, the links before and after it."""

    generation: int
    body: bytes
    id: bytes
    before: bytes
    link: bytes


class SealedState(msgspec.Struct, frozen=True, kw_only=True):
    """A state that was verified: where the conversation ends, and the caller's own state."""

    count: int
    link: bytes
    body: bytes = b""
    generation: int = 0


def seal_record(
    generation: Generation, seq: int, before: bytes, body: bytes, *, bucket: int = 1, own: bytes = b""
) -> tuple[bytes, bytes]:
    """The record as it is kept, and the link after it. `own` is its id, to seal one anew."""
    own = own or os.urandom(ID)
    head = _RECORD.pack(VERSION, AES_256_GCM, generation.number, own, before)
    sealed = generation.records.seal(_padded(body, bucket), _bound(generation.of_records, seq, head))
    return head + sealed, _link(before, seq, own)


def open_record(generation: Generation, seq: int, kept: bytes) -> Opened:
    head = kept[: _RECORD.size]
    _, _, _, own, before = _RECORD.unpack(head)
    plain = generation.records.open(kept[_RECORD.size :], _bound(generation.of_records, seq, head))
    return Opened(
        generation=generation.number,
        body=_unpadded(plain),
        id=own,
        before=before,
        link=_link(before, seq, own),
    )


def seal_state(generation: Generation, state: SealedState, *, bucket: int = 1) -> bytes:
    head = _STATE.pack(VERSION, AES_256_GCM, generation.number, state.count, state.link)
    bound = _bound(generation.of_state, state.count, head)
    return head + generation.states.seal(_padded(state.body, bucket), bound)


def open_state(generation: Generation, kept: bytes) -> SealedState:
    head = kept[: _STATE.size]
    _, _, number, count, link = _STATE.unpack(head)
    plain = generation.states.open(kept[_STATE.size :], _bound(generation.of_state, count, head))
    return SealedState(count=count, link=link, body=_unpadded(plain), generation=number)


def generation_of(kept: bytes, *, state: bool = False) -> int:
    """Which generation sealed these bytes, by their own word; refuses what no release has written."""
    least = (_STATE.size if state else _RECORD.size) + NONCE + TAG + len(_END)
    if len(kept) < least or kept[0] != VERSION or kept[1] != AES_256_GCM:
        raise NotSealedHere
    return int.from_bytes(kept[2:6])


def follows(records: Sequence[Opened], *, first: bytes | None, last: bytes | None) -> int | None:
    """Which of these neighbours does not continue the one before it; None if all do.

    `first` and `last` are the links that must stand before and after all of them, where that is known.
    """
    link = first
    for at, record in enumerate(records):
        if link is not None and not same(record.before, link):
            return at
        link = record.link
    if last is not None and link is not None and not same(link, last):
        return len(records) - 1
    return None


def _bound(names: bytes, seq: int, head: bytes) -> bytes:
    """The framed names, then two fields of fixed length."""
    return names + seq.to_bytes(8) + head


def _link(before: bytes, seq: int, own: bytes) -> bytes:
    """All of fixed length, so nothing needs a frame."""
    return hashlib.sha256(b"lamina/link/1" + before + seq.to_bytes(8) + own).digest()


def _padded(body: bytes, bucket: int) -> bytes:
    """The body with an end mark, filled up to a multiple of `bucket`: sizes say less."""
    return body + _END + bytes(-(len(body) + 1) % bucket)


def _unpadded(plain: bytes) -> bytes:
    end = plain.rfind(_END)
    if end < 0:
        raise NotSealedHere
    return plain[:end]
