"""Reads the conversation files of ElaraAi, and only reads them: to look at, or to bring into a store.

    found = await read_folder("~/.cache/Elara/Conversation", key="the key of that system")
    report = await import_folder(folder, store, where, key=...)

Its files hold one message each: in an envelope, in the clear or encrypted (AES-256-GCM under the SHA-256 of
the key's text), or bare; the envelope's names in either spelling; all of these in one folder. A file that
cannot be read is passed over and reported, by name and reason and never by content. What is brought over
is kept as new records are: this weak key does nothing there.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from anyio import to_thread

from lamina.core.text.characters import is_blank, lower_ascii, upper_ascii
from lamina.core.values import Role, Segment, Text
from lamina.errors import BadInput, WrongKey
from lamina.formats.codec import encode
from lamina.stores.port import Once, Store, StoredHead, Where

LARGEST = 64 * 1024 * 1024
"""Bytes of a file that can still be one message."""

_ROLES = (Role.USER, Role.ASSISTANT, Role.SYSTEM)
"""In the order of that system's numbers."""

_NAME = re.compile(r"([0-9]{8}T[0-9]{9}Z)_([0-9]+)_(.*)")
_SEALED = "it was encrypted with another key, or changed since"
_NO_KEY = "it is encrypted, and no key was given"

_OPEN = os.O_RDONLY
for _flag in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):  # as far as the system has them
    _OPEN |= getattr(os, _flag, 0)

Decrypt = Callable[[bytes, bytes], bytes]
"""Nonce, and ciphertext with its tag, to the text in the clear."""


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was passed over, and why."""

    name: str
    why: str


class ElaraMessages(msgspec.Struct, frozen=True, kw_only=True):
    """Messages in their order, the names of their files, and the files passed over on the way."""

    segments: tuple[Segment, ...] = ()
    names: tuple[str, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What came into the store, and the files that did not."""

    head: StoredHead
    count: int
    unreadable: tuple[Unreadable, ...] = ()


async def read_folder(
    folder: str | os.PathLike[str], *, key: str = "", last: int | None = None
) -> ElaraMessages:
    """The messages of a folder, or the `last` so many that can be read.

    Unreadable files do not count: older ones are read in their place. If nothing at all can be read because
    of the key, that is WrongKey and never an empty conversation.
    """
    return await to_thread.run_sync(partial(_read, Path(folder), key, last))


async def import_folder(
    folder: str | os.PathLike[str], store: Store, where: Where, *, key: str = ""
) -> Imported:
    """Brings the messages of a folder into a new conversation, as one group. Doing it again does no harm."""
    found = await read_folder(folder, key=key)
    if not found.segments:
        page = await store.read(where, last=0)
        return Imported(head=page.head, count=0, unreadable=found.unreadable)
    records = [encode(segment) for segment in found.segments]
    lengths = b"".join(len(record).to_bytes(8, "big") for record in records)
    once = Once(key="import of elara", digest=hashlib.sha256(lengths + b"".join(records)).digest())
    head = await store.append(where, records, expect=0, once=once)
    return Imported(head=head, count=len(records), unreadable=found.unreadable)


def _read(folder: Path, key: str, last: int | None) -> ElaraMessages:
    if last is not None and last <= 0:
        return ElaraMessages()
    decrypt = _decrypting(key)
    read: list[tuple[str, Segment]] = []
    unreadable: list[Unreadable] = []
    for name in sorted(_names(folder), key=_order, reverse=True):
        try:
            read.append((name, _message(_content(folder / name), decrypt, name)))
        except _Unread as error:
            unreadable.append(Unreadable(name=name, why=str(error)))
        if len(read) == last:
            break
    _check_key(read, unreadable)
    read.reverse()
    unreadable.reverse()
    return ElaraMessages(
        segments=tuple(segment for _, segment in read),
        names=tuple(name for name, _ in read),
        unreadable=tuple(unreadable),
    )


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir() if path.name.endswith(".json")]
    except OSError as error:
        raise BadInput(
            f"{error.strerror}", place=repr(str(folder)), hint="give the folder with the files"
        ) from None


def _order(name: str) -> tuple[str, int, str]:
    """By name, as that system does, but with its counter as a number: it grows past four digits."""
    found = _NAME.fullmatch(name)
    return (found[1], int(found[2]), found[3]) if found else (name, 0, "")


def _check_key(read: Iterable[object], unreadable: Iterable[Unreadable]) -> None:
    locked = [each for each in unreadable if each.why in {_SEALED, _NO_KEY}]
    if locked and not any(True for _ in read):
        hint = "give the key that the files were written with"
        raise WrongKey(f"{len(locked)} encrypted files, and none opens: {locked[-1].why}", hint=hint)


class _Unread(Exception):
    """Why a file cannot be read."""


def _content(path: Path) -> bytes:
    """The bytes of a plain file; a link, a pipe and a folder are none."""
    try:
        file = os.open(path, _OPEN)
        try:
            return _read_all(file)
        finally:
            os.close(file)
    except OSError as error:
        raise _Unread(f"it cannot be read: {error.strerror}") from None


def _read_all(file: int) -> bytes:
    about = os.fstat(file)
    if not stat.S_ISREG(about.st_mode):
        raise _Unread("it is not a plain file")
    if about.st_size > LARGEST:
        raise _Unread("it is too large for a message")
    with os.fdopen(file, "rb", closefd=False) as opened:
        return opened.read(LARGEST)


def _message(content: bytes, decrypt: Decrypt | None, name: str) -> Segment:
    """The message in a file: in an envelope of either sort, or bare."""
    plain = _json(content.removeprefix(b"\xef\xbb\xbf"))
    kind = plain.get("alg")
    if kind is None:
        return _segment(plain, name)
    if not isinstance(kind, str):
        raise _Unread("its envelope says no algorithm")
    if upper_ascii(kind) == "PLAINTEXT":
        return _segment(_lowered(plain.get("content")), name)
    if upper_ascii(kind) == "AES-256-GCM":
        return _segment(_json(_opened(plain, decrypt)), name)
    raise _Unread("its envelope says an algorithm that is not known")


def _opened(envelope: Mapping[str, Any], decrypt: Decrypt | None) -> bytes:
    nonce, tag = _bytes(envelope.get("iv")), _bytes(envelope.get("tag"))
    sealed = _bytes(envelope.get("ciphertext", envelope.get("content")))
    if len(nonce) != 12 or len(tag) != 16:
        raise _Unread("its envelope is damaged")
    if decrypt is None:
        raise _Unread(_NO_KEY)
    return decrypt(nonce, sealed + tag)


def _decrypting(key: str) -> Decrypt | None:
    if is_blank(key):  # that system, too, takes a blank key for none
        return None
    try:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - only for encrypted files
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415
    except ImportError:
        raise BadInput("a key was given", place="key", hint="install lamina[encryption]") from None
    cipher = AESGCM(hashlib.sha256(key.encode()).digest())

    def decrypt(nonce: bytes, sealed: bytes) -> bytes:
        try:
            return cipher.decrypt(nonce, sealed, None)
        except InvalidTag:
            raise _Unread(_SEALED) from None

    return decrypt


def _segment(message: Mapping[str, Any], name: str) -> Segment:
    text, at, metadata = message.get("content"), message.get("timestamputc"), message.get("metadata")
    role = role_of(message.get("role"))
    if role is None or not isinstance(text, str) or not _is_time(at):
        raise _Unread("it holds no message")
    meta = {"metadata": metadata} if isinstance(metadata, dict) and metadata else {}
    kind = str(role)
    return Segment(role=role, kind=kind, parts=(Text(text),), origin=f"elara:{name}", at=str(at), meta=meta)


def role_of(value: object) -> Role | None:
    """A role as that system writes it: a name in any case, or its number; None for anything else."""
    if isinstance(value, str):
        return next((role for role in _ROLES if role == lower_ascii(value)), None)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(_ROLES):
        return _ROLES[value]
    return None


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value) is not None
    except ValueError:
        return False


def _json(content: bytes) -> dict[str, Any]:
    try:
        return _lowered(msgspec.json.decode(content))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _Unread("it is not JSON") from None


def _lowered(value: Any) -> dict[str, Any]:
    """An object with its names in small letters: they come in two spellings."""
    if not isinstance(value, dict):
        raise _Unread("it holds no message")
    return {lower_ascii(name): inner for name, inner in value.items()}


def _bytes(value: object) -> bytes:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except (binascii.Error, ValueError):
        raise _Unread("its envelope is damaged") from None
