"""Reads the conversation files of ElaraAi, and only reads them: to look at, or to bring into a store.

    messages = await read_folder("~/.cache/Elara/Conversation", key="the key of that system")
    report = await import_folder(folder, store, where, key=...)

Each of its files holds one message: in an envelope, in the clear or encrypted (AES-256-GCM under the SHA-256
of the key's text), or bare. The envelope's names come in two spellings. One folder can hold all of these.
A file that cannot be read is skipped and reported by name and reason, never by content. Imported messages are
stored like new records: the weak key of that system protects nothing there.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import stat
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from anyio import to_thread

from lamina import BadInput, Role, Segment
from lamina.core import Text
from lamina.errors import WrongKey
from lamina.formats.codec import encode
from lamina.stores import Once, Store, StoredHead, Where

__all__ = ["ElaraMessages", "Imported", "import_folder", "read_folder", "role_of"]

LARGEST = 64 * 1024 * 1024
"""Bytes of a file that can still be one message."""

_ROLES = (Role.USER, Role.ASSISTANT, Role.SYSTEM)
"""In the order of that system's numbers."""

_NAME = re.compile(r"([0-9]{8}T[0-9]{9}Z)_([0-9]+)_(.*)")  # "20250131T120000123Z_0042_user.json"
_WRONG_KEY = "it was encrypted with another key, or changed since"
_NO_KEY = "it is encrypted, and no key was given"
_NOT_A_MESSAGE = "it holds no message"
_BAD_ENVELOPE = "its envelope is damaged"

_OPEN_FLAGS = os.O_RDONLY
for _flag in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):  # as far as the system has them
    _OPEN_FLAGS |= getattr(os, _flag, 0)

Decrypt = Callable[[bytes, bytes], bytes]
"""Nonce, and ciphertext with its tag, to the text in the clear."""


class Unreadable(NamedTuple):
    """A file that was skipped, and why."""

    name: str
    why: str


class ElaraMessages(NamedTuple):
    """Messages in their order, and the files that were skipped on the way."""

    segments: tuple[Segment, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


class Imported(NamedTuple):
    """What came into the store, and the files that did not."""

    head: StoredHead
    added: int
    unreadable: tuple[Unreadable, ...]


async def read_folder(
    folder: str | os.PathLike[str], *, key: str = "", last: int | None = None
) -> ElaraMessages:
    """Read the messages of a folder, or the `last` so many that can be read.

    Unreadable files do not count: older ones are read in their place. If nothing at all can be read because
    of the key, this raises `WrongKey` instead of returning an empty conversation.
    """
    return await to_thread.run_sync(partial(_read_files, Path(folder), key, last))


async def import_folder(
    folder: str | os.PathLike[str], store: Store, where: Where, *, key: str = ""
) -> Imported:
    """Append the messages of a folder to a new conversation, as one group. Doing it again does no harm.

    The group has a digest of its content. A second import of the same messages is the same group, and one
    of other messages is refused.
    """
    messages = await read_folder(folder, key=key)
    if not messages.segments:
        page = await store.read(where, last=0)
        return Imported(page.head, 0, messages.unreadable)
    records = [encode(segment) for segment in messages.segments]
    once = Once(key="import of elara", digest=hashlib.sha256(b"\n".join(records)).digest())
    head = await store.append(where, records, expect=0, once=once)
    return Imported(head, len(records), messages.unreadable)


def _read_files(folder: Path, key: str, last: int | None) -> ElaraMessages:
    """Read the files of a folder from the newest to the oldest, until there are `last` messages."""
    if last is not None and last <= 0:
        return ElaraMessages()
    decrypt = _make_decrypt(key)
    segments: list[Segment] = []
    unreadable: list[Unreadable] = []
    # from the newest on: with `last=20` a folder of ten thousand files is not read as a whole
    for name in sorted(_list_names(folder), key=_name_order, reverse=True):
        try:
            segments.append(_parse_message(_read_file(folder / name), decrypt, name))
        except _UnreadableFile as error:
            unreadable.append(Unreadable(name, str(error)))
        if len(segments) == last:
            break
    locked = [file for file in unreadable if file.why in {_WRONG_KEY, _NO_KEY}]
    # a folder of which some files open has the right key, so this is asked only if none does
    if locked and not segments:
        raise WrongKey(
            f"{len(locked)} encrypted files, and none opens: {locked[-1].why}",
            hint="give the key that the files were written with",
        )
    return ElaraMessages(tuple(reversed(segments)), tuple(reversed(unreadable)))


def _list_names(folder: Path) -> list[str]:
    """The names of the files that may be messages. Raises BadInput if there is no such folder."""
    try:
        return [path.name for path in folder.iterdir() if path.name.endswith(".json")]
    except OSError as error:
        raise BadInput(
            f"{error.strerror}", place=repr(str(folder)), hint="give the folder with the files"
        ) from None


def _name_order(name: str) -> tuple[str, int, str]:
    """By name, as that system does, but with its counter as a number: it grows past four digits."""
    match = _NAME.fullmatch(name)
    if match is None:
        return name, 0, ""
    return match[1], int(match[2]), match[3]


class _UnreadableFile(Exception):
    """Why a file cannot be read."""


def _read_file(path: Path) -> bytes:
    """The bytes of a plain file of a message's size; links, pipes and folders are not read."""
    try:
        descriptor = os.open(path, _OPEN_FLAGS)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _UnreadableFile("it is not a plain file")
            if status.st_size > LARGEST:
                raise _UnreadableFile("it is too large for a message")
            return file.read(LARGEST)
    except OSError as error:
        raise _UnreadableFile(f"it cannot be read: {error.strerror}") from None


def _parse_message(content: bytes, decrypt: Decrypt | None, name: str) -> Segment:
    """The message in a file: in an envelope of either sort, or bare.

    `{"alg": "PLAINTEXT", "content": {…}}` is an envelope without encryption.
    """
    fields = _parse_json(content.removeprefix(b"\xef\xbb\xbf"))
    match str(fields.get("alg", "")).upper():
        case "":
            return _make_segment(fields, name)
        case "PLAINTEXT":
            return _make_segment(_lower_names(fields.get("content")), name)
        case "AES-256-GCM":
            return _make_segment(_parse_json(_open_envelope(fields, decrypt)), name)
    raise _UnreadableFile("its envelope names an unknown algorithm")


def _open_envelope(envelope: dict[str, Any], decrypt: Decrypt | None) -> bytes:
    """The content of an encrypted file."""
    nonce = _decode_base64(envelope.get("iv"))
    tag = _decode_base64(envelope.get("tag"))
    ciphertext = _decode_base64(envelope.get("ciphertext", envelope.get("content")))
    if len(nonce) != 12 or len(tag) != 16:
        raise _UnreadableFile(_BAD_ENVELOPE)
    if decrypt is None:
        raise _UnreadableFile(_NO_KEY)
    # the tag stands apart in the file, and AES-GCM wants it behind the text
    return decrypt(nonce, ciphertext + tag)


def _make_decrypt(key: str) -> Decrypt | None:
    """The function that decrypts with this key; None without a key."""
    if not key.strip():  # that system, too, treats a blank key as none
        return None
    try:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - only for encrypted files
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415
    except ImportError:
        raise BadInput("a key was given", place="key", hint="install lamina-context[encryption]") from None
    cipher = AESGCM(hashlib.sha256(key.encode()).digest())

    def decrypt(nonce: bytes, ciphertext: bytes) -> bytes:
        try:
            return cipher.decrypt(nonce, ciphertext, None)
        except InvalidTag:
            raise _UnreadableFile(_WRONG_KEY) from None

    return decrypt


def _make_segment(message: dict[str, Any], name: str) -> Segment:
    """A message as a segment: it has a role, a text and a time. Its metadata stays in the segment's meta."""
    role = role_of(message.get("role"))
    text = message.get("content")
    at = message.get("timestamputc")
    try:
        datetime.fromisoformat(at or "")
    except (TypeError, ValueError):
        role = None
    if role is None or not isinstance(text, str) or not isinstance(at, str):
        raise _UnreadableFile(_NOT_A_MESSAGE)
    meta: dict[str, Any] = {}
    if isinstance(message.get("metadata"), dict):
        meta["metadata"] = message["metadata"]
    return Segment(role=role, kind=str(role), parts=(Text(text),), origin=f"elara:{name}", at=at, meta=meta)


def role_of(value: object) -> Role | None:
    """A role as that system writes it: a name in any case, or its number; None for anything else.

    `"User"`, `"user"` and `0` are the same role.
    """
    for number, role in enumerate(_ROLES):
        if type(value) is int and value == number:  # True is no number here
            return role
        if isinstance(value, str) and value.lower() == role.value:
            return role
    return None


def _parse_json(content: bytes) -> dict[str, Any]:
    try:
        return _lower_names(msgspec.json.decode(content))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _UnreadableFile("it is not JSON") from None


def _lower_names(value: Any) -> dict[str, Any]:
    """An object with its names in lower case: they come in two spellings, `Role` and `role`."""
    if not isinstance(value, dict):
        raise _UnreadableFile(_NOT_A_MESSAGE)
    return {name.lower(): inner for name, inner in value.items()}


def _decode_base64(value: object) -> bytes:
    """The bytes of a base64 text; none for a value that is no text."""
    if not isinstance(value, str):
        return b""
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise _UnreadableFile(_BAD_ENVELOPE) from None
