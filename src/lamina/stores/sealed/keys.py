"""Where keys come from: raw bytes, the environment, a file, the keyring of the system, or a passphrase.

    key = init_file("~/.config/app/key")        once: 32 random bytes, readable by their owner alone
    key = from_file("~/.config/app/key")        from then on

A key that can be guessed is refused here, before anything is sealed with it: there is no default key. These
functions use the disk and the keyring directly: call them while a program starts. They know no stores.

A passphrase becomes a key by scrypt, with a salt that the store keeps. The cost is fixed, so that a changed
store cannot make a guess cheap, or opening the store endless.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import stat
from itertools import pairwise
from pathlib import Path
from typing import Protocol, cast

import msgspec

from lamina.errors import BadInput
from lamina.stores.syncing import sync_folder

VARIABLE = "LAMINA_KEY"
SERVICE = "lamina"
SHORTEST = 12
"""Characters of a passphrase. The slow derivation does not help a shorter one."""

DEFAULT_KEYS = (
    "replacemebeforedeployment",
    "replaceme",
    "changeme",
    "password",
    "secret",
    "correcthorsebatterystaple",
)
"""Words from documentation and leaked lists, as letters alone. A key that is one of them was never chosen."""

KEY = 32
SALT = 16
SCRYPT_MEMORY = 2**16
"""In KiB: what each guess has to fill, about 0.2 seconds of a CPU. OWASP's second row for scrypt (2026)."""


class Key(msgspec.Struct, frozen=True):
    """32 secret bytes. `id` names them without saying what they are."""

    secret: bytes

    def __post_init__(self) -> None:
        _check_secret(self.secret)

    @property
    def id(self) -> str:
        return hmac.digest(self.secret, b"lamina/key id/1", "sha256")[:8].hex()

    def __repr__(self) -> str:
        return f"Key({self.id})"


class Passphrase(msgspec.Struct, frozen=True):
    """Words that a person remembers. The store has the salt of the key that is derived from them."""

    text: str

    def __post_init__(self) -> None:
        _check_passphrase(self.text)

    def __repr__(self) -> str:
        return "Passphrase()"


def generate() -> Key:
    """A new random key. Whoever loses it has lost what is sealed with it."""
    return Key(os.urandom(KEY))


def raw(value: bytes | str, *, place: str = "key") -> Key:
    """A key from its 32 bytes, or from text in base64 or hex."""
    secret = value if isinstance(value, bytes) else _decode_secret(value, place)
    try:
        return Key(secret)
    except BadInput as error:
        raise BadInput(error.problem, place=place, hint=error.hint) from None


def from_env(name: str = VARIABLE) -> Key:
    """The key in an environment variable, as base64 or hex."""
    value = os.environ.get(name)
    if value is None:
        raise BadInput("it is not set", place=f"environment variable {name}", hint=_HOW)
    return raw(value, place=f"environment variable {name}")


def init_file(path: str | Path) -> Key:
    """Make a new key in a new file that only its owner can read. An existing file is never written to."""
    key = generate()
    path = Path(path).expanduser()
    place = f"key file {path}"
    if os.path.lexists(path):
        hint = "use from_file(); if a key is overwritten, its conversations are lost"
        raise BadInput("it exists already", place=place, hint=hint)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise BadInput(f"it cannot be made: {error.strerror}", place=place, hint="check the folder") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(_encode_key(key))
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)
    return key


def from_file(path: str | Path) -> Key:
    """The key in a file that nobody but its owner can read."""
    path = Path(path).expanduser()
    place = f"key file {path}"
    try:
        # Nobody may ever write to a pipe of this name, and an open would wait for that.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        hint = "make one with init_file(), or with openssl rand -base64 32 and chmod 600"
        raise BadInput("it is not there", place=place, hint=hint) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"it cannot be read: {reason}", place=place, hint="check the path") from None
    try:
        _check_mode(os.fstat(descriptor), place)
        content = os.read(descriptor, 1024)
    finally:
        os.close(descriptor)
    return raw(content.decode("ascii", "replace"), place=place)


def init_keyring(user: str, *, service: str = SERVICE) -> Key:
    """Make a new key in the keyring of the operating system. An existing one is never replaced."""
    ring = _import_keyring()
    if ring.get_password(service, user) is not None:
        raise BadInput("it exists already", place=f"keyring entry {user!r}", hint="use from_keyring()")
    key = generate()
    ring.set_password(service, user, _encode_key(key).decode().strip())
    return from_keyring(user, service=service)


def from_keyring(user: str, *, service: str = SERVICE) -> Key:
    """The key that `init_keyring` put into the keyring of the operating system."""
    value = _import_keyring().get_password(service, user)
    if value is None:
        raise BadInput(
            "it is not there", place=f"keyring entry {user!r}", hint="make one with init_keyring()"
        )
    return raw(value, place=f"keyring entry {user!r}")


_HOW = "give 32 random bytes in base64 or hex, as `openssl rand -base64 32` prints them"


def _decode_secret(text: str, place: str) -> bytes:
    """The bytes of a key that is written as base64, in either alphabet, or as hex."""
    text = text.strip()
    if not text:
        raise BadInput("it is empty", place=place, hint=_HOW)
    if _letters_of(text) in DEFAULT_KEYS:
        raise BadInput("it is a known default", place=place, hint=_HOW)
    if re.fullmatch(r"[0-9a-fA-F]{64}", text):
        return bytes.fromhex(text)
    padded = text.translate(str.maketrans("-_", "+/")) + "=" * (-len(text) % 4)
    try:
        return base64.b64decode(padded, validate=True)
    except (binascii.Error, ValueError):
        raise BadInput("it is neither base64 nor hex", place=place, hint=_HOW) from None


def _encode_key(key: Key) -> bytes:
    return base64.b64encode(key.secret) + b"\n"


def _check_secret(secret: bytes) -> None:
    """Raise BadInput for bytes that are not random. A random key fails less than once in 10**12 times."""
    if len(secret) != KEY:
        raise BadInput(f"{len(secret)} bytes", place="key", hint=f"a key has {KEY}: {_HOW}")
    steps = {(after - before) % 256 for before, after in pairwise(secret)}
    halves_are_equal = secret[: KEY // 2] == secret[KEY // 2 :]
    if len(set(secret)) < 16 or len(steps) < 12 or halves_are_equal:
        raise BadInput("its bytes follow a pattern", place="key", hint=_HOW)
    if all(0x20 <= byte < 0x7F for byte in secret):
        hint = f"give words as a Passphrase, or {_HOW.removeprefix('give ')}"
        raise BadInput("it is text, which can be guessed", place="key", hint=hint)


def _check_passphrase(text: str) -> None:
    """Raise BadInput for a passphrase that a program guesses: too short, well known, or a pattern.

    The derivation slows guessing down, but not enough to protect one of a million passphrases.
    """
    hint = f"give at least {SHORTEST} characters that nobody else would choose: five random words, for one"
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput("it holds a lone surrogate", place="passphrase", hint=hint) from None
    letters = _letters_of(text)
    if letters in DEFAULT_KEYS or letters.startswith(("replaceme", "changeme")):
        raise BadInput("it is a known default", place="passphrase", hint=hint)
    length = len(text.strip())
    if length < SHORTEST:
        raise BadInput(f"{length} characters", place="passphrase", hint=hint)
    steps = sum(abs(ord(after) - ord(before)) <= 1 for before, after in pairwise(text))
    repeats_itself = letters != "" and letters in (letters + letters)[1:-1]
    if len(set(text)) < 6 or text.isdigit() or repeats_itself or steps > len(text) // 2:
        raise BadInput("it follows a pattern", place="passphrase", hint=hint)


def _letters_of(text: str) -> str:
    return "".join(letter for letter in text.casefold() if letter.isalpha())


def derive_from_passphrase(passphrase: Passphrase, salt: bytes) -> bytes:
    """The 32 bytes of a passphrase. Slow on purpose: run it in a worker thread."""
    r = 8  # scrypt needs 128 * n * r bytes
    text = passphrase.text.encode()
    return hashlib.scrypt(
        text, salt=salt, n=SCRYPT_MEMORY, r=r, p=2, maxmem=256 * SCRYPT_MEMORY * r, dklen=KEY
    )


def _check_mode(status: os.stat_result, place: str) -> None:
    """Raise BadInput for a key file that others may read or change, or that is not a file."""
    if not stat.S_ISREG(status.st_mode):
        raise BadInput("it is not a regular file", place=place, hint="put the key in a file of its own")
    if os.name == "posix" and status.st_mode & 0o077:
        hint = "take these rights away: chmod 600; and change the key if others used the machine"
        raise BadInput(f"others may use it (mode {status.st_mode & 0o777:o})", place=place, hint=hint)
    if os.name == "posix" and status.st_uid not in {os.geteuid(), 0}:
        hint = "let it belong to the user that runs this"
        raise BadInput(f"it belongs to another user ({status.st_uid})", place=place, hint=hint)


def _import_keyring() -> _Keyring:
    """The package `keyring`, or BadInput that says how to do without it."""
    try:
        import keyring  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - few machines have it
    except ImportError:
        hint = "install the package keyring, or put the key in a file"
        raise BadInput("the package keyring is not installed", place="keyring", hint=hint) from None
    return cast("_Keyring", keyring)


class _Keyring(Protocol):
    """The functions of the package `keyring` that are used here."""

    def get_password(self, service: str, user: str, /) -> str | None: ...

    def set_password(self, service: str, user: str, value: str, /) -> None: ...
