"""The two small documents beside the sealed records, each kept as the state of a reserved conversation.

The **header**, one per store: its id, how names are kept, which keys open it. Each key wraps the same root
secret, from which the keys for names and idempotency come. A **card** per conversation: its sealed name and
its data keys, each wrapped by one key of the ring, with a commitment. Both carry a MAC and the number of
their changes. JSON only, unknown fields refused. No store and no cache here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import msgspec

from lamina.errors import Tampered
from lamina.stores.sealed.cipher import KEY, Cipher, NotSealedHere, derived, frame_fields, mac, same
from lamina.stores.sealed.keys import Key
from lamina.stores.sealed.passphrase import Derivation
from lamina.stores.sealed.records import Generation, SealedPlace

FORMAT = 1
DELETING = "deleting"
SHREDDED = "shredded"


class KeyLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One key of the ring, as the header knows it: the root wrapped by it, and what commits to it."""

    id: str
    root: bytes
    commitment: bytes
    derivation: Derivation | None = None


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: int = FORMAT
    change: int
    store: bytes
    names: str
    primary: str
    keys: tuple[KeyLine, ...]
    mac: bytes = b""

    def line(self, key: str) -> KeyLine | None:
        return next((line for line in self.keys if line.id == key), None)


class DataKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One generation of a conversation's data key: who wraps it, and from how many records on it is used."""

    generation: int
    key: str
    wrapped: bytes
    commitment: bytes
    since: int = 0


class Card(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`key` makes the MAC. `begun`: records were kept once. `gone`: being deleted, or its keys destroyed."""

    format: int = FORMAT
    change: int
    id: bytes
    key: str
    name: bytes
    data: tuple[DataKey, ...]
    begun: bool = False
    gone: str = ""
    mac: bytes = b""


def new_header(key: Key, *, names: str, how: Derivation | None) -> tuple[Header, bytes]:
    """The header of a new store, and its root secret."""
    root, store = os.urandom(KEY), os.urandom(16)
    line = key_line(key, store, root, how)
    return Header(change=1, store=store, names=names, primary=line.id, keys=(line,)), root


def key_line(key: Key, store: bytes, root: bytes, how: Derivation | None) -> KeyLine:
    sealed = Cipher(derived(key.secret, "lamina/wrap root/1", salt=store)).seal(
        root, frame_fields(store, key.id)
    )
    return KeyLine(id=key.id, root=sealed, commitment=commitment(key, store), derivation=how)


def commitment(key: Key, store: bytes) -> bytes:
    """Says that it is this key, and helps nobody to guess it faster than sealed bytes do."""
    return derived(key.secret, "lamina/commitment/1", salt=store)


def root_of(line: KeyLine, key: Key, store: bytes) -> bytes | None:
    """The root secret, or None if this line is of another key."""
    if not same(line.commitment, commitment(key, store)):
        return None
    try:
        return Cipher(derived(key.secret, "lamina/wrap root/1", salt=store)).open(
            line.root, frame_fields(store, key.id)
        )
    except NotSealedHere:
        raise Tampered(f"the header's line of key {line.id!r} is not what was written") from None


def new_card(place: SealedPlace, key: Key, name: bytes) -> Card:
    data = new_data_key(place, key, generation=1, since=0)
    return Card(change=1, id=os.urandom(16), key=key.id, name=name, data=(data,))


def new_data_key(place: SealedPlace, key: Key, *, generation: int, since: int) -> DataKey:
    return wrap(place, key, generation=generation, secret=os.urandom(KEY), since=since)


def wrap(place: SealedPlace, key: Key, *, generation: int, secret: bytes, since: int) -> DataKey:
    bound = _wrapping(place, key.id, generation)
    wrapped = Cipher(derived(key.secret, "lamina/wrap data/1", salt=place.store)).seal(secret, bound)
    commits = Generation(place, generation, secret).commitment
    return DataKey(generation=generation, key=key.id, wrapped=wrapped, commitment=commits, since=since)


def unwrap(place: SealedPlace, key: Key, data: DataKey) -> bytes:
    """The data key itself; Refused if it was not wrapped by this key for this place."""
    cipher = Cipher(derived(key.secret, "lamina/wrap data/1", salt=place.store))
    secret = cipher.open(data.wrapped, _wrapping(place, key.id, data.generation))
    if not same(Generation(place, data.generation, secret).commitment, data.commitment):
        raise NotSealedHere
    return secret


def rewrapped(card: Card, place: SealedPlace, primary: Key, key_of: Callable[[str], Key]) -> Card | None:
    """The card with its data keys wrapped by another key; None if they are already."""
    if card.key == primary.id and all(each.key == primary.id for each in card.data):
        return None
    data = tuple(
        wrap(
            place,
            primary,
            generation=each.generation,
            secret=unwrap(place, key_of(each.key), each),
            since=each.since,
        )
        for each in card.data
    )
    return msgspec.structs.replace(card, key=primary.id, data=data)


def signed_header(header: Header, root: bytes) -> bytes:
    plain = msgspec.structs.replace(header, mac=b"")
    key = derived(root, "lamina/header/1", salt=header.store)
    return msgspec.json.encode(msgspec.structs.replace(plain, mac=mac(key, msgspec.json.encode(plain))))


def header_holds(header: Header, root: bytes) -> bool:
    plain = msgspec.structs.replace(header, mac=b"")
    key = derived(root, "lamina/header/1", salt=header.store)
    return same(header.mac, mac(key, msgspec.json.encode(plain)))


def signed_card(card: Card, place: SealedPlace, key: Key) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(card, mac=_card_mac(card, place, key)))


def card_holds(card: Card, place: SealedPlace, key: Key) -> bool:
    return same(card.mac, _card_mac(card, place, key))


Document = TypeVar("Document", Header, Card)


def parsed(state: bytes, kind: type[Document], count: int) -> Document:
    """A document as its kept bytes say; whether that is true, its MAC says."""
    try:
        document = msgspec.json.decode(state, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Tampered(f"the {kind.__name__.lower()} is not what was written") from None
    if document.format != FORMAT:
        raise Tampered(
            f"the {kind.__name__.lower()} has format {document.format!r}, which this release cannot read"
        )
    if msgspec.json.encode(document) != state:
        raise Tampered(f"the {kind.__name__.lower()} is not written as this release writes it")
    if document.change != count:
        raise Tampered(f"the {kind.__name__.lower()} says {document.change} changes, the store {count}")
    return document


def as_kept(document: Header | Card) -> bytes:
    """The bytes that it was parsed of: `parsed` takes no others."""
    return msgspec.json.encode(document)


def _card_mac(card: Card, place: SealedPlace, key: Key) -> bytes:
    plain = msgspec.json.encode(msgspec.structs.replace(card, mac=b""))
    secret = derived(key.secret, "lamina/card/1", salt=place.store)
    return mac(secret, place.store, place.workspace, place.conversation, plain)


def _wrapping(place: SealedPlace, key: str, generation: int) -> bytes:
    names = (place.store, place.workspace, place.conversation)
    return frame_fields("lamina/wrap/1", *names, generation, key)
