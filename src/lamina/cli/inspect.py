"""`lamina inspect`: opens recorded sessions and stored conversations in a browser.

`lamina.inspector` reads the sessions and serves the pages. This module reads the options.
"""

from __future__ import annotations

import argparse
import math
import secrets
import sys
import time
import webbrowser
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio

from lamina.cli.demo import SEED, make_demo_trace
from lamina.cli.files import check_folder, refuse_databases, write_file
from lamina.cli.output import tell
from lamina.cli.parser import whole_number
from lamina.cli.stored import add_store, open_existing, open_named_store
from lamina.conversations.store import read_record
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput, LaminaError
from lamina.inspector.one_file import write_page
from lamina.inspector.server import LOOPBACK, make_server, wait_until_stopped
from lamina.inspector.sessions import Sessions, TraceSource
from lamina.inspector.stored_sessions import StoredSessions
from lamina.inspector.views import Inspector
from lamina.replay.traces.lamina_exports import log_to_trace
from lamina.replay.traces.recorded_conversations import add_reported
from lamina.replay.values import Trace, UnreadableLine
from lamina.settings import load_settings
from lamina.stores.paging import every_conversation
from lamina.stores.port import Store

USUAL_PLACES = ("~/.claude/projects", "~/.codex/sessions")
"""Where coding agents keep their sessions: opened if no path is given."""

GATEWAY_WORKSPACE = "default"
"""The workspace of a gateway's conversations, if nobody named another."""

MOST_PROBLEMS = 3
"""Files and records that could not be read, as far as the terminal names them."""

_Value = TypeVar("_Value")

_EXAMPLES = """\
PATH is what `lamina replay` reads: sessions of Claude Code, rollouts of Codex, requests as JSON lines, and
what `lamina sessions export` wrote. Without a path, the sessions of Claude Code and Codex on this machine are
opened. With --store, the conversations of a store are: sessions, and what lamina recorded of the requests
that went through it, as they were sent. Nothing is sent anywhere. --store alone opens your own store: that of
`lamina chat` and of `lamina run`.

examples:
  lamina inspect --open
  lamina inspect logs/ --port 8123
  lamina inspect --store --open
  lamina inspect --store chats.db
  lamina inspect session.jsonl --html session.html
  lamina inspect --demo --open

exit status: 0 done, 2 no session is there to write, or none of the usual places
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "lamina inspect [PATH...] [--store [STORE]] [--demo [SEED]] [--open] [--port N] [--host H]\n"
        "                [--html FILE] [--redact]"
    )
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("paths", metavar="PATH", nargs="*", help="files, folders or globs of recorded sessions")
    add_store(parser, alone=True)
    add(
        "--demo",
        metavar="SEED",
        nargs="?",
        type=whole_number,
        const=SEED,
        help="the made-up session of `lamina demo`",
    )
    add("--open", action="store_true", help="open the page in a browser")
    add("--port", metavar="N", type=whole_number, default=0, help="the port; by default, a free one")
    add("--host", metavar="H", default="127.0.0.1", help="the address; one that others can reach has a token")
    add("--html", metavar="FILE", help="write one self-contained page instead of serving it; - is stdout")
    add("--redact", action="store_true", help="with --html: without the texts, only sizes, names and reasons")


def run(arguments: argparse.Namespace) -> int:
    if arguments.redact and not arguments.html:
        raise BadInput("only a file can be redacted", place="--redact", hint="give --html FILE, too")
    check_folder(arguments.html)
    refuse_databases(arguments.paths, hint="a store is opened with --store")
    inspector = Inspector(_find_sessions(arguments))
    sessions = inspector.sessions.summaries()
    _tell_problems(inspector)
    if arguments.html:
        if not sessions:
            raise BadInput(
                "there is no session to write",
                place="PATH",
                hint="name files or folders with recorded sessions, or a store with --store",
            )
        return _write_html(inspector, arguments)
    if not sessions:
        tell("there is no session yet; the page shows one as soon as it is recorded")
    token = ""
    if arguments.host not in LOOPBACK:
        token = secrets.token_urlsafe(24)
    server = make_server(inspector, host=arguments.host, port=arguments.port, token=token)
    print(f"{count_noun(len(sessions), 'session')} at {server.address}  (Ctrl-C ends it)", flush=True)
    if arguments.open:
        webbrowser.open(server.address)
    try:
        wait_until_stopped(server)
    except KeyboardInterrupt:
        return 0
    return 0


def _tell_problems(inspector: Inspector) -> None:
    """Says what could not be read: the first few, and how many more."""
    problems = inspector.sessions.problems()
    for problem in problems[:MOST_PROBLEMS]:
        tell(f"{problem.place}: {problem.reason}")
    if len(problems) > MOST_PROBLEMS:
        tell(f"and {len(problems) - MOST_PROBLEMS} more; the page lists all of them")


def _find_sessions(arguments: argparse.Namespace) -> Sessions:
    """What there is to inspect: a store, a made-up session, the paths that are named, or the usual places."""
    sources: list[TraceSource] = []
    if arguments.store is not None:
        only = getattr(arguments, "conversation", "")
        sources.append(LogSource(arguments, only=only))
        sources.append(open_recorded(arguments, only=only))
    if arguments.demo is not None:
        sources.append(DemoSource(arguments.demo))
    if sources:
        return Sessions(arguments.paths, sources)
    if arguments.paths:
        return Sessions(arguments.paths)
    places = [str(Path(place).expanduser()) for place in USUAL_PLACES]
    existing = [place for place in places if Path(place).exists()]
    if not existing:
        raise BadInput(
            "there are no sessions of Claude Code or Codex on this machine",
            place="PATH",
            hint="name files or folders with recorded sessions, or a store with --store",
        )
    return Sessions(existing)


class DemoSource:
    """The made-up session of `lamina demo`."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def state(self) -> int:
        return self._seed

    def read(self) -> list[Trace | UnreadableLine]:
        return [make_demo_trace(self._seed)]


class LogSource:
    """The logs of the sessions in a store. One that has grown is read again, the others are remembered.

    With `only`, no other conversation is shown. A live page asks often. So the store is not looked at again
    within `pause` seconds.
    """

    def __init__(self, arguments: argparse.Namespace, *, only: str = "", pause: float = 1.0) -> None:
        self._arguments = arguments
        self._only = only
        self._pause = pause
        self._counts: dict[str, int] = {}
        self._looked_at = -math.inf
        self._traces: dict[str, tuple[int, Trace | UnreadableLine]] = {}

    def state(self) -> dict[str, int]:
        """The number of records of each conversation."""
        if time.monotonic() - self._looked_at > self._pause:
            self._counts = anyio.run(self._count_records)
            self._looked_at = time.monotonic()
        return self._counts

    def read(self) -> list[Trace | UnreadableLine]:
        return anyio.run(self._read_conversations)

    async def _count_records(self) -> dict[str, int]:
        """How many records each conversation has: one that has more than before is read again."""
        async with open_named_store(self._arguments) as (store, workspace):
            counts: dict[str, int] = {}
            async for head in every_conversation(store, workspace):
                counts[head.conversation] = head.count
            return counts

    async def _read_conversations(self) -> list[Trace | UnreadableLine]:
        """All conversations of the store.

        Those that have not grown since the last time are not read again.
        """
        traces: dict[str, tuple[int, Trace | UnreadableLine]] = {}
        async with open_named_store(self._arguments) as (store, workspace):
            async for head in every_conversation(store, workspace):
                name = head.conversation
                if self._only and name != self._only:
                    continue
                traces[name] = self._traces.get(name, (-1, _NOTHING))
                if traces[name][0] != head.count:
                    traces[name] = (head.count, await _read_conversation(store, workspace, name))
        self._traces = traces
        return [trace for _, trace in traces.values()]


def open_recorded(arguments: argparse.Namespace, *, only: str = "") -> StoredSessions:
    """The conversations that lamina recorded in the store which the arguments name."""
    settings = load_settings()
    workspace = settings.workspace if arguments.workspace is None else arguments.workspace
    return StoredSessions(partial(_ask_store, arguments), workspace or GATEWAY_WORKSPACE, only=only)


def _ask_store(arguments: argparse.Namespace, operation: Callable[[Store], Awaitable[_Value]], /) -> _Value:
    """Open the store, do something with it, and close it again: others may write to it meanwhile."""

    async def ask() -> _Value:
        async with open_named_store(arguments) as (store, _):
            return await operation(store)

    return anyio.run(ask)


_NOTHING = UnreadableLine(place="", reason="it was not read yet")


async def _read_conversation(store: Store, workspace: str, name: str) -> Trace | UnreadableLine:
    """One conversation of a store as a trace. One that cannot be read is told with its reason."""
    try:
        async with open_existing(store, workspace, name) as session:
            trace = log_to_trace(session.log, name, model=session.setup.model or "")
        if isinstance(trace, UnreadableLine):
            return trace
        return add_reported(trace, await read_record(store, workspace, name))
    except LaminaError as error:
        return UnreadableLine(place=name, reason=str(error))


def _write_html(inspector: Inspector, arguments: argparse.Namespace) -> int:
    page = write_page(inspector, redact=arguments.redact)
    if arguments.html == "-":
        sys.stdout.write(page)
        return 0
    write_file(arguments.html, page)
    tell(f"wrote {arguments.html}: {len(page) / 1e6:.1f} MB, with everything in it")
    return 0
