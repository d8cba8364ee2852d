"""`lamina inspect`: opens recorded sessions and stored conversations in a browser.

`lamina.inspector` reads the sessions and serves the pages. This module reads the options.
"""

from __future__ import annotations

import argparse
import webbrowser
from contextlib import suppress
from pathlib import Path

from lamina.cli.demo_session import SEED, make_demo
from lamina.cli.files import check_folder, refuse_databases, write_file
from lamina.cli.output import progress, show, tell, write_result
from lamina.cli.parser import seed_number, whole_number
from lamina.cli.serve import require_gateway
from lamina.cli.stored import add_store, ask_store
from lamina.cli.stored_sessions import LogSource, open_recorded
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput, LaminaError
from lamina.inspector.one_file import write_page
from lamina.inspector.recorded_sessions import ListedSession, make_line
from lamina.inspector.redaction import Redaction
from lamina.inspector.sessions import Sessions, TraceSource
from lamina.inspector.views import Inspector
from lamina.settings import load_settings
from lamina.stores.address import may_be_there

USUAL_PLACES = ("~/.claude/projects", "~/.codex/sessions")
"""Where coding agents keep their sessions: opened if no path is given."""

MOST_PROBLEMS = 3
"""Files and records that could not be read, as far as the terminal names them."""

_EXAMPLES = """\
PATH is what `lamina cost` reads: sessions of Claude Code, rollouts of Codex, requests as JSON lines, and
what `lamina store export` wrote. Without a path, everything of yours is opened: what went through
`lamina run` and `lamina chat`, as it was sent, and the sessions of Claude Code and Codex on this machine.
With --store it is one store only; --store alone is your own. Nothing is sent anywhere.

examples:
  lamina inspect --open
  lamina inspect logs/ --port 8123
  lamina inspect --store --open
  lamina inspect --store chats.db
  lamina inspect session.jsonl --html session.html
  lamina inspect --demo --open

exit status: 0 done, 2 there is no session to write, and none in the usual places
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("paths", metavar="PATH", nargs="*", help="files, folders or globs of recorded sessions")
    add_store(parser, alone=True)
    parser.add_argument(
        "--conversation", metavar="NAME", default="", help="only this one of the store, by its whole name"
    )
    add(
        "--demo",
        metavar="SEED",
        nargs="?",
        type=seed_number,
        const=SEED,
        help="a made-up session",
    )
    add("--open", action="store_true", help="open the page in a browser")
    add("--port", metavar="N", type=whole_number, default=0, help="the port; by default, a free one")
    add("--host", metavar="H", default="127.0.0.1", help="the address; one that others can reach has a token")
    add("--html", metavar="FILE", help="write one self-contained page instead of serving it; - is stdout")
    add(
        "--redact",
        action="store_true",
        help="with --html: names, sizes, reasons, and a mark for each text",
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.redact and not arguments.html:
        raise BadInput("only a file can be redacted", place="--redact", hint="give --html FILE, too")
    if arguments.html and (arguments.open or arguments.port):
        raise BadInput(
            "a file is written, and no page served", place="--html", hint="leave out --open and --port"
        )
    check_folder(arguments.html)
    refuse_databases(arguments.paths, hint="a store is opened with --store")
    inspector = Inspector(_find_sessions(arguments))
    with progress("reading the list of sessions"):
        _tell_problems(inspector)
    if not arguments.html:
        return _serve(inspector, arguments)
    if not inspector.sessions.summaries():
        raise BadInput(
            "there is no session to write",
            place="PATH",
            hint="name files or folders with recorded sessions, or a store with --store",
        )
    return _write_html(inspector, arguments)


def _serve(inspector: Inspector, arguments: argparse.Namespace) -> int:
    """Serve the pages until Ctrl-C. An address that others can reach gets a token."""
    require_gateway("inspect")
    from lamina.gateway.inspection import PageServer  # noqa: PLC0415 - it needs the extra `run`

    count = len(inspector.sessions.summaries())
    if not count:
        tell("there is no session yet; the page shows one as soon as it is recorded")
    server = PageServer(inspector, host=arguments.host, port=arguments.port)
    show(f"{count_noun(count, 'session')} at {server.address}  (Ctrl-C ends it)")
    if arguments.open:
        webbrowser.open(server.address)
    with suppress(KeyboardInterrupt):
        server.run()
    return 0


def _tell_problems(inspector: Inspector) -> None:
    """Say what could not be read: the first few, and how many more."""
    problems = inspector.sessions.problems()
    for problem in problems[:MOST_PROBLEMS]:
        tell(f"{problem.place}: {problem.reason}")
    if len(problems) > MOST_PROBLEMS:
        tell(f"and {len(problems) - MOST_PROBLEMS} more; the page lists all of them")


def _find_sessions(arguments: argparse.Namespace) -> Sessions:
    """What there is to inspect: a store, a made-up session, the paths that are named, or the usual places."""
    sources: list[TraceSource] = []
    if arguments.conversation and arguments.store is None:
        arguments.store = ""
    if arguments.store is not None:
        only = arguments.conversation
        sources.append(LogSource(arguments, only=only))
        sources.append(open_recorded(arguments, only=only))
    if arguments.demo is not None:
        sources.append(DemoSource(arguments.demo))
    if sources:
        return Sessions(arguments.paths, sources)
    if arguments.paths:
        return Sessions(arguments.paths)
    return _find_usual_sessions(arguments)


def _find_usual_sessions(arguments: argparse.Namespace) -> Sessions:
    """Everything that this user has: what went through lamina, and the sessions of coding agents."""
    places = [Path(place).expanduser() for place in USUAL_PLACES]
    existing = [str(place) for place in places if place.exists()]
    sources: list[TraceSource] = []
    if _can_open_own_store(arguments):
        arguments.store = ""
        sources = [LogSource(arguments), open_recorded(arguments)]
    if not existing and not sources:
        raise BadInput(
            "nothing went through lamina yet, and there are no sessions of Claude Code or Codex here",
            place="PATH",
            hint="run a client first (lamina run -- claude), look at lamina inspect --demo, or name files, "
            "folders or a store with --store",
        )
    return Sessions(existing, sources)


def _can_open_own_store(arguments: argparse.Namespace) -> bool:
    """Whether the user's own store is there. One that cannot be opened is told, and the rest is shown."""
    if not may_be_there(load_settings().store_address()):
        return False
    try:
        ask_store(arguments, lambda store: store.list(load_settings().workspace, limit=1))
    except LaminaError as error:
        tell(f"lamina: your own store is left out: {error}")
        return False
    return True


class DemoSource:
    """The made-up session of the demo, with that of its sub-agent."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def state(self) -> int:
        return self._seed

    def read(self) -> list[ListedSession]:
        return [make_line(conversation) for conversation in make_demo(self._seed)]


def _write_html(inspector: Inspector, arguments: argparse.Namespace) -> int:
    redaction = None
    if arguments.redact:
        redaction = Redaction()
    page = write_page(inspector, redaction=redaction)
    if arguments.html == "-":
        write_result(page)
        return 0
    write_file(arguments.html, page)
    tell(f"wrote {arguments.html}: {len(page) / 1e6:.1f} MB, with everything in it")
    if redaction is not None:
        tell(redaction.describe())
    return 0
