"""The few primitives that sealing uses: AES-256-GCM, HKDF and HMAC with SHA-256, framed fields.

They know no records and no keys of users. Fields are framed by their length, never joined by a delimiter, so
that no two lists of fields give the same bytes. Only this module needs `cryptography` when it is imported.
"""

from __future__ import annotations

import hashlib
import hmac
import os

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as error:  # pragma: no cover - the extra is installed where this is tested
    raise ImportError(
        "encryption needs the package cryptography; install lamina with its extra: lamina-context[encryption]"
    ) from error

from lamina.stores import checksums

KEY = 32
NONCE = 12
TAG = 16
LINK = 32
Field = bytes | str | int


class NotSealedHere(Exception):
    """Bytes that this key did not seal, or not for this place."""


class Cipher:
    """AES-256-GCM under one key, with a random nonce per message, which comes before the ciphertext.

    A counter would repeat itself after a backup is restored or a machine cloned. With random nonces the
    caller has to limit the number of messages per key.
    """

    __slots__ = ("_aead",)

    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(key)

    def seal(self, plain: bytes, bound: bytes) -> bytes:
        """Encrypt under a random nonce, which stands first. Only the same `bound` opens it again."""
        nonce = os.urandom(NONCE)
        return nonce + self._aead.encrypt(nonce, plain, bound)

    def open(self, sealed: bytes, bound: bytes) -> bytes:
        """Decrypt. Raise NotSealedHere for anything that this key did not seal in this very place."""
        if len(sealed) < NONCE + TAG:
            raise NotSealedHere
        try:
            return self._aead.decrypt(sealed[:NONCE], sealed[NONCE:], bound)
        except InvalidTag:
            raise NotSealedHere from None


def frame_fields(*fields: Field) -> bytes:
    """Join fields, each after its length, so that no other fields give the same bytes."""
    return checksums.frame_fields(*map(_field_bytes, fields))


def _field_bytes(field: Field) -> bytes:
    """One field as bytes; a number has eight."""
    if isinstance(field, int):
        return field.to_bytes(8)
    if isinstance(field, str):
        return field.encode()
    return field


def derive_key(secret: bytes, *info: Field, salt: bytes = b"", size: int = KEY) -> bytes:
    """Derive a key for one purpose from a secret that is uniformly random."""
    kdf = HKDF(algorithm=hashes.SHA256(), length=size, salt=salt or None, info=frame_fields(*info))
    return kdf.derive(secret)


def mac(key: bytes, *fields: Field) -> bytes:
    return hmac.digest(key, frame_fields(*fields), "sha256")


def digest(*fields: Field) -> bytes:
    return hashlib.sha256(frame_fields(*fields)).digest()


def same(one: bytes, other: bytes) -> bool:
    """Compare in a time that does not depend on where they differ."""
    return hmac.compare_digest(one, other)
