"""Reads and writes the files of commands: requests, figures, and the ledger of a conversation.

Whatever is wrong with a file is a `BadInput` that names it. A ledger is replaced in one step, so that a
reader never sees half of one.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lamina.cli.output import emit, show, tell
from lamina.cli.strict import parse_strictly
from lamina.core.values import Ledger
from lamina.dialects import recognise
from lamina.dialects.port import Dialect
from lamina.errors import BadInput
from lamina.fitting.request import find_dialect


def read_request(path: str) -> dict[str, Any]:
    """The request in a file, or on standard input where the path is `-`."""
    if path == "-":
        name = "stdin"
        content = _read_stdin()
    else:
        name = path
        content = _read_bytes(path)
    value = parse_strictly(_decode(content, name), name=name)
    if not isinstance(value, dict):
        hint = "give one request: an object with messages"
        raise BadInput(f"it holds {_describe_type(value)}", place=name, hint=hint)
    return value


def find_request_dialect(request: dict[str, Any], name: str | None) -> Dialect:
    """The dialect of this name, or without a name the one that the request looks like."""
    if name is None:
        return recognise(request)
    return find_dialect(name)


def check_folder(path: str | None) -> None:
    """Refuse a file that could not be written, before the work and not after it."""
    if not path or path == "-":
        return
    if not Path(path).absolute().parent.is_dir():
        raise BadInput("its folder is not there", place=path, hint="make the folder, or name another file")


def refuse_databases(paths: Iterable[str], *, hint: str) -> None:
    """Refuse a SQLite file where records are read: most likely it is a store."""
    for path in paths:
        try:
            with Path(path).open("rb") as file:
                start = file.read(len(_SQLITE))
        except OSError:
            continue  # it is a folder, a pattern, or not there
        if start == _SQLITE:
            raise BadInput("it is a SQLite file, not a recorded session", place=path, hint=hint)


_SQLITE = b"SQLite format 3\0"


def read_ledger(path: str | None) -> Ledger:
    """The ledger in a file; a new one where there is no such file yet."""
    if path is None or not Path(path).exists():
        return Ledger()
    value = parse_strictly(_decode(_read_bytes(path), path), name=path)
    try:
        return Ledger.load(value)
    except BadInput as error:
        hint = "give a ledger that lamina wrote, or another name to begin a new one"
        raise BadInput(f"it is not a ledger: {error.problem}", place=path, hint=hint) from None


def write_ledger(path: str, ledger: Ledger) -> None:
    """Replace the file in one step: written beside it first, then renamed."""
    target = Path(os.path.realpath(path))  # a link stays, and what it points to is replaced
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if target.exists() and not target.is_file():
            raise BadInput("it is not a file", place=path, hint="name a file for the ledger")
        with temporary.open("x", encoding="utf-8") as file:
            json.dump(ledger.dump(), file, ensure_ascii=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        temporary.replace(target)
    except OSError as error:
        raise BadInput(
            f"it cannot be written: {error.strerror}", place=path, hint="check folder and rights"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _read_bytes(path: str) -> bytes:
    """The content of a file. An error of the system becomes BadInput, with what to do."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise BadInput("there is no such file", place=path, hint="check the path") from None
    except IsADirectoryError:
        raise BadInput("it is a folder", place=path, hint="name a file in it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(
            f"it cannot be read: {reason}", place=path, hint="check the path and its rights"
        ) from None


def _read_stdin() -> bytes:
    """The standard input. Somebody who typed the command without a file is told what it waits for."""
    if sys.stdin is None:
        raise BadInput("it is closed", place="stdin", hint="pipe a request into the command")
    if sys.stdin.isatty():
        tell("reading a request from the terminal; end it with Ctrl-D")
    return sys.stdin.buffer.read()


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        problem = f"byte {error.start:,} (0x{content[error.start]:02x}) is not UTF-8"
        raise BadInput(problem, place=name, hint="give JSON, as UTF-8") from None


def _describe_type(value: Any) -> str:
    names = {list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def print_with_json(text: str, value: Any, json_file: str | None) -> None:
    """Print a text, and write its figures as JSON to a file. For `-`, print the JSON alone."""
    if json_file == "-":
        emit(value)
        return
    show(*text.split("\n"))
    if json_file:
        write_file(json_file, json.dumps(value, allow_nan=False) + "\n")
        tell(f"wrote {json_file}")


def write_file(path: str, content: str) -> None:
    """Write a file; if that fails, the path is bad input."""
    try:
        Path(path).write_text(content, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        hint = "check folder and rights"
        raise BadInput(f"it cannot be written: {error.strerror}", place=path, hint=hint) from None
