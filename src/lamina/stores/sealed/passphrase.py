"""From a passphrase to a key: Argon2id, or scrypt where Argon2id is missing, with a salt of its own.

What is needed to derive the same key again is in the store: method, salt, cost. The cost has bounds, so that
a changed store cannot make a guess cheap, or opening the store endless. This module knows no store.
"""

from __future__ import annotations

import hashlib
import os

import msgspec

from lamina.errors import BadInput, Tampered
from lamina.stores.sealed.cipher import KEY
from lamina.stores.sealed.keys import Key, Passphrase

ARGON2ID = "argon2id"
SCRYPT = "scrypt"
SALT = 16


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What one guess costs: memory in KiB, passes over it, parallel lanes."""

    memory: int = 65_536
    passes: int = 3
    lanes: int = 4

    def __post_init__(self) -> None:
        """Raise BadInput for a cost that is too cheap to protect anything, or that no machine could pay."""
        memory_is_fine = 19_456 <= self.memory <= 1_048_576
        passes_are_fine = 2 <= self.passes <= 64
        lanes_are_fine = 1 <= self.lanes <= 16
        if not memory_is_fine or not passes_are_fine or not lanes_are_fine:
            hint = "memory 19456 to 1048576 KiB, 2 to 64 passes, 1 to 16 lanes"
            raise BadInput(f"{self!r}", place="cost", hint=hint)


class Derivation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a key is derived from a passphrase; not secret. scrypt takes its memory from `cost` too."""

    method: str
    salt: bytes
    cost: Cost


def derivation(cost: Cost) -> Derivation:
    """How a new key is to be derived, with a random salt."""
    method = ARGON2ID if _has_argon2id() else SCRYPT
    return Derivation(method=method, salt=os.urandom(SALT), cost=cost)


def derive(passphrase: Passphrase, how: Derivation) -> Key:
    """Derive the key. Slow on purpose: run it in a worker thread."""
    if len(how.salt) < SALT or how.method not in {ARGON2ID, SCRYPT}:
        raise Tampered(f"a key derivation {how.method!r} that no release has written")
    text = passphrase.text.encode()
    if how.method == ARGON2ID:
        return Key(_argon2id(text, how))
    return Key(_scrypt(text, how))


def _argon2id(text: bytes, how: Derivation) -> bytes:
    """Derive a key with Argon2id, which needs memory, so that special hardware gains little."""
    from cryptography.hazmat.primitives.kdf.argon2 import Argon2id  # noqa: PLC0415 - not in every build

    cost = how.cost
    kdf = Argon2id(
        salt=how.salt, length=KEY, iterations=cost.passes, lanes=cost.lanes, memory_cost=cost.memory
    )
    return kdf.derive(text)


def _scrypt(text: bytes, how: Derivation) -> bytes:
    """Memory: scrypt needs 128 * n * r bytes. With r = 8, n is the KiB, rounded down to a power of two."""
    n = 1 << (how.cost.memory.bit_length() - 1)
    r = 8
    return hashlib.scrypt(text, salt=how.salt, n=n, r=r, p=1, maxmem=256 * n * r, dklen=KEY)


def _has_argon2id() -> bool:
    """Whether this build of `cryptography` has Argon2id: older ones, and some of OpenSSL, do not."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
        from cryptography.hazmat.primitives.kdf.argon2 import Argon2id  # noqa: PLC0415
    except ImportError:
        return False
    try:
        Argon2id(salt=bytes(SALT), length=KEY, iterations=1, lanes=1, memory_cost=8)
    except UnsupportedAlgorithm:
        return False
    return True
