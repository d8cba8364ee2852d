"""Reads and writes the files of commands: requests, figures, and the ledger of a conversation.

Whatever is wrong with a file is a `BadInput` that names it. A ledger is replaced in one step, so that a
reader never sees half of one.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lamina.cli.output import emit, show, tell
from lamina.core.values import Ledger
from lamina.dialects import recognise
from lamina.dialects.port import Dialect
from lamina.errors import BadInput
from lamina.fitting.request import find_dialect

DEPTH = 200
"""Levels of objects and lists. Real requests have a dozen; schemas of tools a few more."""

DIGITS = 1_000
"""Of one number: more is an attack on whoever parses it next."""

_NUMBER_HINT = "give a finite number, or null"


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


def parse_strictly(text: str, *, name: str) -> Any:
    """The value that `text` is; `name` is where it came from, for the errors."""
    if not text.strip(" \t\r\n"):
        raise BadInput("it is empty", place=name, hint="give one JSON object")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object_without_repeated_keys,
            parse_constant=_refuse_constant,
            parse_float=_parse_finite_float,
            parse_int=_parse_bounded_int,
        )
    except json.JSONDecodeError as error:
        raise _syntax_error(error, name) from None
    except _Refused as refused:
        raise BadInput(refused.problem, place=name, hint=refused.hint) from None
    except RecursionError:
        raise _too_deep(name) from None
    if _is_too_deep(value):
        raise _too_deep(name)
    return value


class _Refused(Exception):
    """The parser met something that is not allowed."""

    def __init__(self, problem: str, hint: str) -> None:
        self.problem = problem
        self.hint = hint


def _object_without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, as the parser makes it. Parsers differ in which of two equal keys they keep."""
    value: dict[str, Any] = {}
    for key, item in pairs:
        if key in value:
            raise _Refused(f"the key {key[:40]!r} comes twice in one object", "keep one of them")
        value[key] = item
    return value


def _refuse_constant(word: str) -> Any:
    raise _Refused(f"{word} is not JSON", _NUMBER_HINT)


def _parse_finite_float(text: str) -> float:
    """A number with a point or an exponent. `1e999` would become infinity, which is not JSON."""
    _check_digits(text)
    number = float(text)
    if math.isinf(number):
        raise _Refused(f"the number {text[:40]} is out of range", _NUMBER_HINT)
    return number


def _parse_bounded_int(text: str) -> int:
    """A whole number. Python takes quadratic time for a long one."""
    _check_digits(text)
    return int(text)


def _check_digits(text: str) -> None:
    if len(text) > DIGITS:
        raise _Refused(f"a number of {len(text):,} characters", _NUMBER_HINT)


def _too_deep(name: str) -> BadInput:
    return BadInput(f"more than {DEPTH} levels", place=name, hint="use less nesting")


def _is_too_deep(value: Any) -> bool:
    """Whether a value has more levels than allowed. It is read level by level, without recursion."""
    level = [value]
    for _ in range(DEPTH):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        level = [each for each in inner if isinstance(each, dict | list)]
        if not level:
            return False
    return True


def _syntax_error(error: json.JSONDecodeError, name: str) -> BadInput:
    """What the standard parser refused, in our words, with line and column."""
    problem = error.msg[:1].lower() + error.msg[1:].removesuffix(" at").removesuffix(
        " starting"
    )  # the place says where
    hint = "give JSON"
    if error.msg == "Extra data":
        problem = "something follows the JSON value"
        hint = "give one value, and nothing after it"
    elif error.msg.startswith("Unexpected UTF-8 BOM"):
        problem = "it begins with a byte order mark"
        hint = "save it as UTF-8 without one"
    return BadInput(problem, place=f"{name}:{error.lineno}:{error.colno}", hint=hint)
