"""How a header, a name, a record and a state are sealed: their bytes, and what they are bound to.

    record   version | id of the record before | its own id | nonce | ciphertext
    state    version | number of records | id of the last record | nonce | ciphertext

Every key follows from one root key and the id of the store by HKDF: one for the names of each workspace, and
one for each conversation. So there is nothing to wrap, and nothing besides the header to store.

A record is bound to its store, workspace, conversation and place, to its own random id and to that of the
record before it. The state is bound to the number of records and to the id of the last one. So a record
opens in one place only, neighbours name each other, and the state says where they end. The id stays if a body
is replaced, so the neighbours hold. Apart from randomness everything here is pure: it knows no store. Only
this module needs `cryptography` when it is imported.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import struct

import msgspec

from lamina.errors import StoreError, Tampered, WrongKey
from lamina.stores.checksums import frame_fields
from lamina.stores.port import Record, StoredHead, Where, Within
from lamina.stores.sealed.keys import KEY, SALT, Key, Passphrase, derive_from_passphrase

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as error:  # pragma: no cover - the extra is installed where this is tested
    raise ImportError(
        "encryption needs the package cryptography; install lamina with its extra: lamina-context[encryption]"
    ) from error

FORMAT = 2
ID = 16
NONCE = 12
GENESIS = bytes(ID)
"""The id before the first record."""

_RECORD = struct.Struct(f">B{ID}s{ID}s")
_STATE = struct.Struct(f">BQ{ID}s")


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What opens a store. `check` follows from the right key; `salt` is empty unless that is a passphrase."""

    format: int = FORMAT
    store: bytes
    salt: bytes = b""
    check: bytes


class _Version(msgspec.Struct):
    """What every release has written into a header."""

    format: int


def new_header(credential: Key | Passphrase) -> bytes:
    """The header of a new store. Slow for a passphrase."""
    salt = b""
    if isinstance(credential, Passphrase):
        salt = os.urandom(SALT)
    store = os.urandom(ID)
    root = _root_key(credential, salt)
    return msgspec.json.encode(Header(store=store, salt=salt, check=_check_of(root, store, salt)))


def open_header(state: bytes, credential: Key | Passphrase) -> RootCipher:
    """The cipher of a store by its header and the key. Slow for a passphrase."""
    try:
        version = msgspec.json.decode(state, type=_Version).format
        if version != FORMAT:
            raise StoreError(
                f"another release sealed this store, in format {version}",
                hint="copy it into a plain store with that release, and from there into a new sealed one: "
                "lamina store copy",
            )
        header = msgspec.json.decode(state, type=Header)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Tampered("the header is not what was written") from None
    if bool(header.salt) != isinstance(credential, Passphrase):
        what = "a passphrase" if header.salt else "a key"
        raise WrongKey("the given key does not open this store", hint=f"it was sealed with {what}")
    root = _root_key(credential, header.salt)
    if not hmac.compare_digest(_check_of(root, header.store, header.salt), header.check):
        raise WrongKey("the given key does not open this store", hint="give the key that it was sealed with")
    return RootCipher(root, header.store)


def _root_key(credential: Key | Passphrase, salt: bytes) -> bytes:
    if isinstance(credential, Passphrase):
        return derive_from_passphrase(credential, salt)
    return credential.secret


def _check_of(root: bytes, store: bytes, salt: bytes) -> bytes:
    """A value that only this key gives. It does not make guessing the key easier than sealed bytes do."""
    return _derive(root, store, b"check", salt)


def _derive(root: bytes, store: bytes, purpose: bytes, *names: bytes, size: int = KEY) -> bytes:
    info = frame_fields(b"lamina/sealed/%d" % FORMAT, purpose, *names)
    return HKDF(algorithm=hashes.SHA256(), length=size, salt=store, info=info).derive(root)


class RootCipher:
    """The names of one store, and the ciphers of its conversations."""

    def __init__(self, root: bytes, store: bytes) -> None:
        self._root = root
        self._store = store

    def inner_workspace(self, workspace: str) -> Within:
        """The name of a workspace in the store within, which says nothing without the key."""
        return Within(_as_name(self._derive(b"workspace", workspace, size=25)))

    def inner_conversation(self, where: Where) -> str:
        """The name of a conversation in the store within: the same each time, and nobody else can make it."""
        return _as_name(self._names_of(where.workspace).encrypt(where.conversation.encode(), None))

    def open_name(self, workspace: str, inner_name: str) -> str:
        """The name of a conversation, from the one that it has in the store within."""
        try:
            sealed_name = base64.urlsafe_b64decode(f"{inner_name}{'=' * (-len(inner_name) % 4)}")
            return self._names_of(workspace).decrypt(sealed_name, None).decode()
        except (InvalidTag, binascii.Error, ValueError):
            raise Tampered("its name is not what was written", conversation=inner_name) from None

    def conversation(self, where: Where) -> ConversationCipher:
        key = self._derive(b"conversation", where.workspace, where.conversation)
        once_key = self._derive(b"once", where.workspace, where.conversation)
        inner = Where(self.inner_workspace(where.workspace), self.inner_conversation(where))
        return ConversationCipher(inner, key, once_key)

    def _names_of(self, workspace: str) -> AESSIV:
        """The cipher of names. It needs no nonce, so that a name can be found by its sealed form."""
        return AESSIV(self._derive(b"names", workspace, size=2 * KEY))

    def _derive(self, purpose: bytes, *names: str, size: int = KEY) -> bytes:
        return _derive(self._root, self._store, purpose, *(name.encode() for name in names), size=size)


class SealedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A verified record with its own id and that of the record before it."""

    record: Record
    id: bytes
    before: bytes


class ConversationCipher:
    """AES-256-GCM under the key of one conversation. `inner` is where it stands in the store within.

    The key is bound to store, workspace and conversation, so the associated data need not be. Nonces are
    random: a counter would repeat itself after a backup is restored or a machine cloned.
    """

    def __init__(self, inner: Where, key: bytes, once_key: bytes) -> None:
        self.inner = inner
        self._aead = AESGCM(key)
        self._once_key = once_key

    def seal_record(self, seq: int, before: bytes, record_id: bytes, body: bytes) -> bytes:
        return self._seal(_bound_record(seq), _RECORD.pack(FORMAT, before, record_id), body)

    def open_record(self, record: Record) -> SealedRecord:
        what = f"record {record.seq}"
        head, body = self._open(_bound_record(record.seq), record.body, _RECORD.size, what)
        _, before, record_id = _RECORD.unpack(head)
        return SealedRecord(record=Record(seq=record.seq, body=body), id=record_id, before=before)

    def seal_state(self, head: StoredHead, last_id: bytes) -> bytes:
        return self._seal(_STATE_BOUND, _STATE.pack(FORMAT, head.count, last_id), head.state)

    def open_state(self, stored: StoredHead) -> tuple[StoredHead, bytes]:
        """The head that a caller sees, and the id of the last record."""
        if stored.is_empty:
            return stored, GENESIS
        head, state = self._open(_STATE_BOUND, stored.state, _STATE.size, "its state")
        _, count, last_id = _STATE.unpack(head)
        if count != stored.count:
            raise Tampered(f"{stored.count} records, {count} were sealed: some were cut off or put in")
        return StoredHead(count=count, state=state), last_id

    def hide(self, *fields: bytes) -> bytes:
        """A hash of an idempotency key, or of its digest, that says nothing without the key."""
        return hmac.digest(self._once_key, frame_fields(*fields), "sha256")

    def _seal(self, bound: bytes, head: bytes, plain: bytes) -> bytes:
        nonce = os.urandom(NONCE)
        return head + nonce + self._aead.encrypt(nonce, plain, bound + head)

    def _open(self, bound: bytes, sealed: bytes, size: int, what: str) -> tuple[bytes, bytes]:
        """The head and the plain text of what was sealed for this place."""
        head = sealed[:size]
        nonce = sealed[size : size + NONCE]
        try:
            plain = self._aead.decrypt(nonce, sealed[size + NONCE :], bound + head)
        except (InvalidTag, ValueError):  # ValueError: it is too short for a nonce
            raise Tampered(f"{what} is not what was written, or was not written there") from None
        return head, plain


_STATE_BOUND = b"state "


def _bound_record(seq: int) -> bytes:
    return b"record %d " % seq


def _as_name(data: bytes) -> str:
    """Bytes as a name that every store accepts."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
