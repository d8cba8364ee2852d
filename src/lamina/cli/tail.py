"""The requests of a gateway as they come: tokens, cache, cuts, causes of misses, money."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import msgspec

from lamina.cli.output import Tone, emit, paint, tell
from lamina.cli.serve import settings_path
from lamina.core.text.characters import make_printable
from lamina.errors import BadInput

if TYPE_CHECKING:
    from lamina.gateway.account import GatewayAccount

PAUSE = 0.2
"""Seconds between two looks at a file that has not grown."""

LONGEST_LINE = 1 << 20
"""Bytes of a line at most. What is longer was not written by a gateway."""


LAST_LINES = 20


def follow(arguments: argparse.Namespace) -> int:
    """Print the events of a gateway as they come, and at the end what they add up to."""
    try:
        from lamina.gateway.account import GatewayAccount  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise BadInput(str(error), place="log", hint="pip install 'lamina-context[run]'") from None
    account = GatewayAccount()
    print_event: Callable[[Mapping[str, Any]], None] = _Printer(sys.stdout).print_event
    if arguments.json:
        print_event = _print_json
    with suppress(KeyboardInterrupt):
        _follow(arguments, account, print_event)
    return _end(account, arguments)


def _follow(
    arguments: argparse.Namespace, account: GatewayAccount, print_event: Callable[[Mapping[str, Any]], None]
) -> None:
    """Print the last events that are there, and then each that comes."""
    for line in _read_lines(arguments, account.learn_line):
        event = account.read_line(line)
        if event is not None:  # a warning of a server, say, is no event
            print_event(event)


def _read_lines(arguments: argparse.Namespace, learn: Callable[[bytes], None]) -> Iterator[bytes]:
    """The last lines that are there, and then each that comes; without an end, unless with --once.

    What stands before the last lines is only learnt.
    """
    if arguments.name == "-":
        yield from _read_stdin()
        return
    path = _find_file(arguments)
    with JournalReader(path) as reader:
        last_lines: deque[bytes] = deque()
        last = LAST_LINES
        if arguments.last is not None:
            last = arguments.last
        for line in chain(reader.read_older(), reader.read_new()):
            last_lines.append(line)
            if len(last_lines) > last:
                learn(last_lines.popleft())
        yield from last_lines
        if arguments.once:
            return
        if not path.exists():
            tell(f"lamina: {path} is not there yet; the first request makes it")
        tell("lamina: waiting for requests; Ctrl-C ends")
        while True:
            time.sleep(PAUSE)
            yield from reader.read_new()


def _end(account: GatewayAccount, arguments: argparse.Namespace) -> int:
    sys.stdout.flush()
    if account.calls and not arguments.json:
        for line in account.write_lines():
            tell(f"lamina: {line}")
    return 0


def _find_file(arguments: argparse.Namespace) -> Path:
    """The file of the gateway that the arguments name. Raises BadInput if it writes none."""
    from lamina.relay.config import load_gateway_settings  # noqa: PLC0415 - an extra
    from lamina.relay.journal import find_journal  # noqa: PLC0415 - an extra

    if arguments.name:
        path = Path(arguments.name).expanduser()
        if not path.is_file():
            raise BadInput("there is no such file", place=arguments.name, hint="check the path")
        return path
    settings = load_gateway_settings(settings_path(arguments), os.environ)
    if arguments.store:
        settings = msgspec.structs.replace(settings, store=arguments.store)
    journal_path = find_journal(settings, os.environ)
    if journal_path is None:
        raise BadInput(
            "a gateway with these settings writes no file of its requests",
            place="journal",
            hint='set `journal = "FILE"` in its settings, or pipe its standard error: lamina log -f -',
        )
    if arguments.once and not journal_path.exists():
        hint = "run a client first: lamina run -- claude"
        raise BadInput("there is no such file yet", place=str(journal_path), hint=hint)
    return journal_path


class JournalReader:
    """Reads whole lines of a file that grows, also if it is renamed and begun anew. Use it as a context."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._unfinished = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def read_older(self) -> Iterator[bytes]:
        """The lines before the last renaming."""
        from lamina.relay.journal import older_file  # noqa: PLC0415 - an extra

        try:
            with older_file(self._path).open("rb") as file:
                yield from file
        except OSError:
            return

    def read_new(self) -> Iterator[bytes]:
        """The lines that were added since the last call. A half-written one waits for its end."""
        if self._file is None:
            self._open()
        if self._file is None:  # it is not there yet
            return
        yield from self._read_lines()
        if self._was_replaced():
            self._open()
            yield from self._read_lines()

    def _open(self) -> None:
        """Open the file that the path names now. If there is none, the last one stays open."""
        try:
            opened = self._path.open("rb")
        except OSError:
            return
        if self._file is not None:
            self._file.close()
        self._file = opened
        self._unfinished = b""

    def _read_lines(self) -> Iterator[bytes]:
        assert self._file is not None  # noqa: S101 - for the type checker
        while piece := self._file.readline(LONGEST_LINE):
            self._unfinished += piece
            if not piece.endswith(b"\n"):
                if len(self._unfinished) > LONGEST_LINE:
                    self._unfinished = b""
                continue
            line = self._unfinished
            self._unfinished = b""
            yield line

    def _was_replaced(self) -> bool:
        """Whether the path names another file now, or the same one after it was emptied."""
        assert self._file is not None  # noqa: S101 - for the type checker
        try:
            current = self._path.stat()
        except OSError:
            return False
        opened = os.fstat(self._file.fileno())
        return not os.path.samestat(current, opened) or current.st_size < self._file.tell()


class _Printer:
    """Prints events as lines for a person, 80 columns wide.

    The model and the conversation stand in a line of their own whenever they change, and so does the day. A
    cut is printed with the request that it made room for.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._cuts: dict[str, str] = {}
        self._day = ""
        self._talk = ""

    def print_event(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "cut":
                number, reason = event.get("cut", ""), event.get("reason", "")
                sizes = f"{_number(event, 'before')} to {_number(event, 'after')} tokens"
                self._cuts[str(event.get("conversation"))] = f"cut {number}, {reason}: {sizes}"
            case "sent":
                pass  # its answer is printed
            case "answered":
                self._print_answer(event)
            case "miss":
                self._print(event, _describe_miss(event), "bad")
            case "refused" | "unanswered":
                self._print(event, _describe_refusal(event), "bad")
            case _:
                self._print(event, _describe_other(event))

    def _print_answer(self, event: Mapping[str, Any]) -> None:
        """Print a request with its tokens and its price, and what was cut or left out for it."""
        conversation = str(event.get("conversation", ""))
        talk = f"{event.get('model', '')}  {conversation}".strip()
        if talk != self._talk:
            self._talk = talk
            self._print(event, talk, "faint", has_time=False)
        cut = self._cuts.pop(conversation, "")
        if cut:
            self._print(event, f"  {cut}", "remark")
        self._print(event, _describe_answer(event))
        if event.get("left_out"):
            names = ", ".join(map(str, event["left_out"]))
            self._print(event, f"  left out for this upstream: {names}")
        provider_cause = event.get("provider_cause")
        if provider_cause and provider_cause != "hit":
            self._print(event, f"  the provider says {provider_cause}")

    def _print(
        self, event: Mapping[str, Any], text: str, tone: Tone | None = None, *, has_time: bool = True
    ) -> None:
        moment = ""
        if isinstance(event.get("at"), int | float):
            then = datetime.fromtimestamp(event["at"]).astimezone()
            self._print_day(then.strftime("%Y-%m-%d"))
            if has_time:
                moment = then.strftime("%H:%M:%S")
        line = make_printable(text)
        if tone is not None:
            line = paint(line, tone, self._stream)
        self._stream.write(f"{moment:<8}  {line}\n")
        self._stream.flush()

    def _print_day(self, day: str) -> None:
        """Print the day where it changes: the file may begin weeks ago."""
        if day != self._day:
            self._day = day
            self._stream.write(paint(day, "faint", self._stream) + "\n")


def _describe_answer(event: Mapping[str, Any]) -> str:
    from lamina.conversations.costs import price_usage  # noqa: PLC0415 - only for those who print
    from lamina.dialects.usage import Usage  # noqa: PLC0415 - as above

    usage = Usage(
        input=event.get("input", 0),
        cached=event.get("cached", 0),
        written=event.get("written", 0),
        written_long=event.get("written_long", 0),
        output=event.get("output", 0),
        tier=str(event.get("tier", "")),
    )
    amount = price_usage(
        usage, str(event.get("model", "")), dialect=str(event.get("dialect", "")), at=event.get("at")
    )
    money = "price ?"
    if amount is not None:
        money = f"${amount:.4f}"
    return (
        f"{usage.input:>9,} in {usage.cached:>9,} read {usage.written:>8,} written "
        f"{usage.output:>6,} out {money:>9}"
    )


def _describe_miss(event: Mapping[str, Any]) -> str:
    lost = ""
    if event.get("lost"):
        lost = f", {_number(event, 'lost')} tokens paid again"
    place = event.get("place") or "no place"
    return f"  cache lost: {event.get('cause')} at {place}{lost}; {event.get('advice', '')}"


def _describe_refusal(event: Mapping[str, Any]) -> str:
    """A request that the gateway or the upstream refused."""
    status = event.get("status")
    if event["event"] == "refused":
        return f"  refused by the gateway ({status}): {event.get('reason', '')}"
    if not status:
        return "  no answer came from the upstream"
    return f"  refused by the upstream: status {status}"


def _describe_other(event: Mapping[str, Any]) -> str:
    """An event without tokens: its name and its facts."""
    match event["event"]:
        case "stopped" if event.get("cut_off"):
            return f"  the gateway stopped, and broke off answers ({event['cut_off']})"
        case "stopped":
            return "  the gateway stopped"
    fields = {name: value for name, value in event.items() if value != ""}
    for name in ("at", "event"):
        fields.pop(name, None)
    facts = ", ".join(f"{name} {value}" for name, value in fields.items())
    return f"  {event['event']}: {facts or 'no more is known'}"


def _number(event: Mapping[str, Any], name: str) -> str:
    value = event.get(name)
    if not isinstance(value, int):
        return "?"
    return f"{value:,}"


def _print_json(event: Mapping[str, Any]) -> None:
    emit(event)


def _read_stdin() -> Iterator[bytes]:
    if sys.stdin is None:
        raise BadInput("it is closed", place="stdin", hint="pipe the lines of a gateway into the command")
    yield from sys.stdin.buffer
