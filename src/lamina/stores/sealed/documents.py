"""The two small documents besides the sealed records, each stored as the state of a reserved conversation.

A store has one **header**: its id, whether names are hashed, and which keys open it. Each key wraps the same
root secret, from which the keys for names and idempotency keys are derived. Each conversation has a **card**:
its sealed name and its data keys, each wrapped by one key of the ring, with a commitment. Both have a MAC and
the number of their changes. They are JSON, and unknown fields are refused. This module knows no store and no
cache.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import msgspec

from lamina.errors import Tampered, advise_on_version
from lamina.stores.sealed.cipher import KEY, Cipher, NotSealedHere, derive_key, frame_fields, mac, same
from lamina.stores.sealed.keys import Derivation, Key
from lamina.stores.sealed.records import Generation, SealedPlace

FORMAT = 1
DELETING = "deleting"
SHREDDED = "shredded"


class KeyLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One key of the ring as the header has it: the root secret wrapped by it, and a commitment to it."""

    id: str
    root: bytes
    commitment: bytes
    derivation: Derivation | None = None


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`store` is the id of the store, `primary` the id of the key that wraps new data keys."""

    format: int = FORMAT
    change: int
    store: bytes
    names: str
    primary: str
    keys: tuple[KeyLine, ...]
    mac: bytes = b""

    def has_key(self, key: str) -> bool:
        """Whether the key with this id is in the ring."""
        return any(line.id == key for line in self.keys)


class DataKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One generation of a conversation's data key: the key that wraps it, and its first record (`since`)."""

    generation: int
    key: str
    wrapped: bytes
    commitment: bytes
    since: int = 0


class Card(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`key` is the id of the key of the MAC. `begun`: it had records once. `gone`: deleted or shredded."""

    format: int = FORMAT
    change: int
    id: bytes
    key: str
    name: bytes
    data: tuple[DataKey, ...]
    begun: bool = False
    gone: str = ""
    mac: bytes = b""

    @property
    def key_ids(self) -> set[str]:
        """The ids of the keys that open it: that of its MAC, and those that wrap its data keys."""
        return {self.key, *(data.key for data in self.data)}


def new_header(key: Key, *, names: str, how: Derivation | None) -> tuple[Header, bytes]:
    """The header of a new store, and its root secret."""
    root = os.urandom(KEY)
    store = os.urandom(16)
    line = key_line(key, store, root, how)
    return Header(change=1, store=store, names=names, primary=line.id, keys=(line,)), root


def key_line(key: Key, store: bytes, root: bytes, how: Derivation | None) -> KeyLine:
    """The line of a key in a header; `how` says how it is derived from a passphrase."""
    cipher = _root_cipher(key, store)
    wrapped_root = cipher.seal(root, frame_fields(store, key.id))
    return KeyLine(id=key.id, root=wrapped_root, commitment=commitment(key, store), derivation=how)


def _root_cipher(key: Key, store: bytes) -> Cipher:
    return Cipher(derive_key(key.secret, "lamina/wrap root/1", salt=store))


def commitment(key: Key, store: bytes) -> bytes:
    """A value that only this key gives. It does not make guessing the key easier than sealed bytes do."""
    return derive_key(key.secret, "lamina/commitment/1", salt=store)


def root_of(line: KeyLine, key: Key, store: bytes) -> bytes | None:
    """The root secret, or None if this line is of another key."""
    if not same(line.commitment, commitment(key, store)):
        return None
    try:
        return _root_cipher(key, store).open(line.root, frame_fields(store, key.id))
    except NotSealedHere:
        raise Tampered(f"the header's line of key {line.id!r} is not what was written") from None


def new_card(place: SealedPlace, key: Key, name: bytes) -> Card:
    """The card of a new conversation: an id that nobody can guess, and the first data key."""
    data = new_data_key(place, key, generation=1, since=0)
    return Card(change=1, id=os.urandom(16), key=key.id, name=name, data=(data,))


def new_data_key(place: SealedPlace, key: Key, *, generation: int, since: int) -> DataKey:
    return wrap(place, key, generation=generation, secret=os.urandom(KEY), since=since)


def wrap(place: SealedPlace, key: Key, *, generation: int, secret: bytes, since: int) -> DataKey:
    wrapped = _data_cipher(key, place).seal(secret, _wrap_context(place, key.id, generation))
    return DataKey(
        generation=generation,
        key=key.id,
        wrapped=wrapped,
        commitment=Generation(place, generation, secret).commitment,
        since=since,
    )


def unwrap(place: SealedPlace, key: Key, data: DataKey) -> bytes:
    """The secret of a data key; raises NotSealedHere if this key did not wrap it for this place."""
    context = _wrap_context(place, key.id, data.generation)
    secret = _data_cipher(key, place).open(data.wrapped, context)
    if not same(Generation(place, data.generation, secret).commitment, data.commitment):
        raise NotSealedHere
    return secret


def _data_cipher(key: Key, place: SealedPlace) -> Cipher:
    return Cipher(derive_key(key.secret, "lamina/wrap data/1", salt=place.store))


def mark_deleting(card: Card) -> Card | None:
    """The card of a conversation that is being deleted; None if it is one already.

    Its data keys go first, so that a deletion which is interrupted leaves nothing that can be read.
    """
    if card.gone == DELETING:
        return None
    return msgspec.structs.replace(card, gone=DELETING, data=())


def rewrap_card(card: Card, place: SealedPlace, primary: Key, key_of: Callable[[str], Key]) -> Card | None:
    """The card with its data keys wrapped by the primary key; None if they are already.

    The data keys themselves stay, so no record has to be written again.
    """
    if card.key_ids == {primary.id}:
        return None
    data_keys: list[DataKey] = []
    for data in card.data:
        secret = unwrap(place, key_of(data.key), data)
        data_keys.append(wrap(place, primary, generation=data.generation, secret=secret, since=data.since))
    return msgspec.structs.replace(card, key=primary.id, data=tuple(data_keys))


def sign_header(header: Header, root: bytes) -> bytes:
    """The bytes of a header with its MAC."""
    return msgspec.json.encode(msgspec.structs.replace(header, mac=_header_mac(header, root)))


def is_header_authentic(header: Header, root: bytes) -> bool:
    return same(header.mac, _header_mac(header, root))


def sign_card(card: Card, place: SealedPlace, key: Key) -> bytes:
    """The bytes of a card with its MAC."""
    return msgspec.json.encode(msgspec.structs.replace(card, mac=_card_mac(card, place, key)))


def is_card_authentic(card: Card, place: SealedPlace, key: Key) -> bool:
    return same(card.mac, _card_mac(card, place, key))


Document = TypeVar("Document", Header, Card)


def parse_document(state: bytes, kind: type[Document], count: int) -> Document:
    """A document from its stored bytes. Whether it is authentic, only its MAC says.

    It must be written byte for byte as we would write it: two spellings of one document could have two
    meanings.
    """
    name = kind.__name__.lower()
    try:
        document = msgspec.json.decode(state, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Tampered(f"the {name} is not what was written") from None
    if document.format != FORMAT:
        hint = advise_on_version(document.format, FORMAT)
        raise Tampered(f"the {name} has format {document.format!r}", hint=hint)
    if msgspec.json.encode(document) != state:
        raise Tampered(f"the {name} is not written as this release writes it")
    if document.change != count:
        raise Tampered(f"the {name} says {document.change} changes, the store {count}")
    return document


def encode_document(document: Header | Card) -> bytes:
    """The stored bytes of a document: `parse_document` accepts no others."""
    return msgspec.json.encode(document)


def _header_mac(header: Header, root: bytes) -> bytes:
    """The code that proves who wrote a header. It covers everything in it but itself."""
    unsigned = msgspec.json.encode(msgspec.structs.replace(header, mac=b""))
    secret = derive_key(root, "lamina/header/1", salt=header.store)
    return mac(secret, unsigned)


def _card_mac(card: Card, place: SealedPlace, key: Key) -> bytes:
    """The code that proves who wrote a card, and that it was written for this place."""
    unsigned = msgspec.json.encode(msgspec.structs.replace(card, mac=b""))
    secret = derive_key(key.secret, "lamina/card/1", salt=place.store)
    return mac(secret, *place.fields, unsigned)


def _wrap_context(place: SealedPlace, key: str, generation: int) -> bytes:
    """What a wrapped data key is bound to, so that it opens in no other conversation or generation."""
    return frame_fields("lamina/wrap/1", *place.fields, generation, key)
