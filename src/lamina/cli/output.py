"""Prints results on standard output, remarks on standard error, and progress for people who wait.

Clients, models and files choose names and texts that are printed here, so nothing that a terminal would obey
leaves this module. No other command prints by itself.

Nothing is coloured where nobody looks at a terminal (a pipe, a file), with `NO_COLOR`, or on a terminal that
calls itself dumb. `FORCE_COLOR` colours all the same. The words say everything without colour, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import IO, Any, Literal, Self

from lamina.core.text.characters import escape_json, make_printable

SECONDS_BETWEEN_DRAWINGS = 0.1

PATIENCE = 1.0
"""Seconds after which somebody at a terminal is told what takes so long."""

Tone = Literal["good", "bad", "remark", "faint", "strong"]

_CODES: dict[Tone, str] = {"good": "32", "bad": "31", "remark": "33", "faint": "2", "strong": "1"}


def emit(value: Any) -> None:
    """One JSON value on a line of standard output, in UTF-8 whatever the terminal speaks."""
    text = escape_json(json.dumps(value, ensure_ascii=False, allow_nan=False))
    plain = f"{text}\n".encode()
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(plain.decode())
        return
    sys.stdout.flush()
    binary.write(plain)
    binary.flush()


def show(*lines: str, mark: str = "") -> None:
    """Print lines for a person. A line stays one, whatever is in it. The `mark` before them is ours."""
    for line in lines:
        print(mark + make_printable(line))
        mark = ""
    sys.stdout.flush()


def shorten(text: str, width: int) -> str:
    """The text, cut off where it is longer than `width`."""
    if len(text) <= width:
        return text
    return f"{text[: width - 1]}…"


def write_result(text: str) -> None:
    """Write a text for a program, as it is; on a terminal without what that would obey."""
    if sys.stdout.isatty():
        text = make_printable(text, lines=True)
    sys.stdout.write(text)


def tell(text: str) -> None:
    """A remark, beside the result."""
    with contextlib.suppress(OSError):  # nobody listens; the result still counts
        print(make_printable(text), file=sys.stderr, flush=True)


@contextlib.contextmanager
def progress(what: str) -> Iterator[None]:
    """Say on a terminal what is being done, once it takes long."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    watch = threading.Thread(target=_report, args=(what, done), daemon=True)
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()


def _report(what: str, done: threading.Event) -> None:
    """Write the seconds that something takes, while it takes them, and wipe the line at the end."""
    seconds = 0
    while not done.wait(PATIENCE):
        seconds += 1
        sys.stderr.write(f"\r{what}, {seconds} s")
        sys.stderr.flush()
    if seconds:
        sys.stderr.write(f"\r{' ' * (len(what) + 12)}\r")
        sys.stderr.flush()


class ProgressLine:
    """One line on a terminal, drawn again and again; nothing if standard error is no terminal."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._last = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Erase the line."""
        if self._is_terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def draw(self, text: str) -> None:
        """Draw the text in place of the last one, unless that was drawn a moment ago."""
        now = time.monotonic()
        if not self._is_terminal or now - self._last < SECONDS_BETWEEN_DRAWINGS:
            return
        self._last = now
        # A line that wraps cannot be drawn over: only the last row of it would be erased.
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{shorten(make_printable(text), max(width, 1))}")
        sys.stderr.flush()


def paint(text: str, tone: Tone, stream: IO[str] | None = None) -> str:
    """The text in a tone, if the stream (standard output unless told) shows colours; else the text."""
    if not text or not shows_colour(stream or sys.stdout, os.environ):
        return text
    return f"\x1b[{_CODES[tone]}m{text}\x1b[0m"


def shows_colour(stream: IO[str], environment: Mapping[str, str]) -> bool:
    """Whether what is written to a stream may have colours."""
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return True
    if not stream.isatty() or environment.get("TERM") == "dumb":
        return False
    return sys.platform != "win32" or _windows_shows_colour(environment)


def _windows_shows_colour(environment: Mapping[str, str]) -> bool:
    """Windows Terminal, ConEmu and terminals with a TERM understand the codes; the old console need not."""
    return any(environment.get(name) for name in ("WT_SESSION", "ANSICON", "TERM"))
