"""How one record and one state are sealed: their bytes, what they are bound to, and the chain of links.

    record   version | alg | generation | id | link before | nonce | ciphertext
    state    version | alg | generation | (unused) | count | link of the last record | nonce | ciphertext

The associated data binds a record to store, workspace, conversation, place, generation and the link before
it. It binds the state to the number of records and the link of the last one. A link is a hash of the link
before, the place and the record's random id. The id is authenticated with the body, and stays when a record
is sealed again, so links survive a change of keys. Apart from randomness everything here is pure: it knows no
store, no cache and no key of a user.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Sequence

import msgspec

from lamina.stores.port import StoredHead
from lamina.stores.sealed.cipher import (
    KEY,
    LINK,
    NONCE,
    TAG,
    Cipher,
    NotSealedHere,
    derive_key,
    digest,
    frame_fields,
    same,
)

VERSION = 1
AES_256_GCM = 1
SHREDDED = b"\x02shredded"
"""Replaces a state whose key was destroyed. It is a hint only; the card is the proof."""

ID = 16
MOST_RECORDS = 2**28
"""How many records one generation of a key may seal: far below what random nonces allow."""

_RECORD = struct.Struct(f">BBI{ID}s{LINK}s")
_STATE = struct.Struct(f">BBIxQ{LINK}s")
_END = b"\x80"


class SealedPlace(msgspec.Struct, frozen=True):
    """What everything of one conversation is bound to: the store, and the names that its users know."""

    store: bytes
    workspace: str
    conversation: str

    @property
    def fields(self) -> tuple[bytes, str, str]:
        """Its fields in the order in which they are hashed."""
        return self.store, self.workspace, self.conversation

    @property
    def genesis(self) -> bytes:
        """The link before the first record."""
        return digest("lamina/genesis/1", *self.fields)


class Generation:
    """The ciphers of one data key of one conversation, and the commitment to that key."""

    __slots__ = ("commitment", "number", "of_records", "of_state", "place", "records", "states")

    def __init__(self, place: SealedPlace, number: int, key: bytes) -> None:
        info = ("lamina/data/1", place.workspace, place.conversation, number)
        material = derive_key(key, *info, salt=place.store, size=3 * KEY)
        self.place = place
        self.number = number
        self.records = Cipher(material[:KEY])
        self.states = Cipher(material[KEY : 2 * KEY])
        self.commitment = material[2 * KEY :]
        self.of_records = frame_fields(f"lamina/record/{VERSION}", *place.fields)
        self.of_state = frame_fields(f"lamina/state/{VERSION}", *place.fields)


class OpenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A verified record: its place, its plain body, its id, the links before and after it."""

    seq: int
    generation: int
    body: bytes
    id: bytes
    before: bytes
    link: bytes


class SealedState(msgspec.Struct, frozen=True, kw_only=True):
    """A verified state: where the conversation ends, and the caller's own state (`body`)."""

    count: int
    link: bytes
    body: bytes = b""
    generation: int = 0

    @property
    def head(self) -> StoredHead:
        """The head that a caller of the sealed store sees."""
        return StoredHead(count=self.count, state=self.body)


def seal_record(
    generation: Generation, seq: int, before: bytes, body: bytes, *, bucket: int = 1, own: bytes = b""
) -> tuple[bytes, bytes]:
    """The sealed record, and the link after it. `own` is its id, if it is sealed again."""
    record_id = own or os.urandom(ID)
    head = _RECORD.pack(VERSION, AES_256_GCM, generation.number, record_id, before)
    context = _context(generation.of_records, seq, head)
    sealed_body = generation.records.seal(_pad(body, bucket), context)
    return head + sealed_body, _link_after(before, seq, record_id)


def open_record(generation: Generation, seq: int, sealed_record: bytes) -> OpenRecord:
    """Open a record, and compute the link that the next one must name."""
    head = sealed_record[: _RECORD.size]
    _, _, _, record_id, before = _RECORD.unpack(head)
    context = _context(generation.of_records, seq, head)
    padded = generation.records.open(sealed_record[_RECORD.size :], context)
    return OpenRecord(
        seq=seq,
        generation=generation.number,
        body=_unpad(padded),
        id=record_id,
        before=before,
        link=_link_after(before, seq, record_id),
    )


def seal_state(generation: Generation, state: SealedState, *, bucket: int = 1) -> bytes:
    """Seal a state together with the number of records and the last link, so that none can be cut off."""
    head = _STATE.pack(VERSION, AES_256_GCM, generation.number, state.count, state.link)
    context = _context(generation.of_state, state.count, head)
    return head + generation.states.seal(_pad(state.body, bucket), context)


def open_state(generation: Generation, sealed_state: bytes) -> SealedState:
    """Open a sealed state. Raise NotSealedHere if the store changed any of its bytes."""
    head = sealed_state[: _STATE.size]
    _, _, number, count, link = _STATE.unpack(head)
    context = _context(generation.of_state, count, head)
    padded = generation.states.open(sealed_state[_STATE.size :], context)
    return SealedState(count=count, link=link, body=_unpad(padded), generation=number)


def generation_of(sealed: bytes, *, state: bool = False) -> int:
    """The generation that these bytes name; raises NotSealedHere for what no release has written."""
    head_size = _STATE.size if state else _RECORD.size
    if len(sealed) < head_size + NONCE + TAG + len(_END):
        raise NotSealedHere
    if sealed[0] != VERSION or sealed[1] != AES_256_GCM:
        raise NotSealedHere
    return int.from_bytes(sealed[2:6])


def find_break(records: Sequence[OpenRecord], *, first: bytes, last: bytes) -> int | None:
    """The index of the first neighbour that does not continue the one before it; None if all do.

    `first` and `last` are the links that must come before and after all of them.
    """
    link = first
    for index, record in enumerate(records):
        if not same(record.before, link):
            return index
        link = record.link
    if not same(link, last):
        return len(records) - 1
    return None


def _context(names: bytes, seq: int, head: bytes) -> bytes:
    """The associated data: the framed names, then two fields of fixed length."""
    return names + seq.to_bytes(8) + head


def _link_after(before: bytes, seq: int, record_id: bytes) -> bytes:
    """The link after a record. Its fields have fixed lengths, so they need no frame."""
    return hashlib.sha256(b"lamina/link/1" + before + seq.to_bytes(8) + record_id).digest()


def _pad(body: bytes, bucket: int) -> bytes:
    """The body with an end mark, filled up to a multiple of `bucket`, so that its size says less."""
    return body + _END + bytes(-(len(body) + 1) % bucket)


def _unpad(padded: bytes) -> bytes:
    """The text without its padding. The last end mark counts, since the text may hold some too."""
    end = padded.rfind(_END)
    if end < 0:
        raise NotSealedHere
    return padded[:end]
