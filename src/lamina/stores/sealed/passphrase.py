"""From a passphrase to a key: Argon2id, or scrypt where Argon2id is missing, with a salt of its own.

What is needed to derive the same key again stands in the store: method, salt, cost. Bounds on the cost keep
a changed store from making a guess cheap, or an honest one endless. It knows no store.
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
    """What one guess costs: memory in KiB, passes over it, lanes side by side."""

    memory: int = 65_536
    passes: int = 3
    lanes: int = 4

    def __post_init__(self) -> None:
        if not (19_456 <= self.memory <= 1_048_576 and 2 <= self.passes <= 64 and 1 <= self.lanes <= 16):
            hint = "memory 19456 to 1048576 KiB, 2 to 64 passes, 1 to 16 lanes"
            raise BadInput(f"{self!r}", place="cost", hint=hint)


class Derivation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a key comes from a passphrase; not secret. scrypt takes its memory from `cost` too."""

    method: str
    salt: bytes
    cost: Cost


def derivation(cost: Cost) -> Derivation:
    """A new one, with a random salt."""
    return Derivation(method=ARGON2ID if _argon2id_is_there() else SCRYPT, salt=os.urandom(SALT), cost=cost)


def derive(passphrase: Passphrase, how: Derivation) -> Key:
    """The key. Slow on purpose: run it in a worker thread."""
    if len(how.salt) < SALT or how.method not in {ARGON2ID, SCRYPT}:
        raise Tampered(f"a key derivation {how.method!r} that no release has written")
    text = passphrase.text.encode()
    return Key(_argon2id(text, how) if how.method == ARGON2ID else _scrypt(text, how))


def _argon2id(text: bytes, how: Derivation) -> bytes:
    from cryptography.hazmat.primitives.kdf.argon2 import Argon2id  # noqa: PLC0415 - not in every build

    cost = how.cost
    kdf = Argon2id(
        salt=how.salt, length=KEY, iterations=cost.passes, lanes=cost.lanes, memory_cost=cost.memory
    )
    return kdf.derive(text)


def _scrypt(text: bytes, how: Derivation) -> bytes:
    """128 * n * r bytes of memory: with r = 8, n is the number of KiB, down to a power of two."""
    n, r = 1 << (how.cost.memory.bit_length() - 1), 8
    return hashlib.scrypt(text, salt=how.salt, n=n, r=r, p=1, maxmem=256 * n * r, dklen=KEY)


def _argon2id_is_there() -> bool:
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
