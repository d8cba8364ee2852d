"""`lamina tools advise`: which tools to load and which to defer, from recorded sessions.

`lamina.replay.tool_advice` reads and prices the sessions. This module reads the options and prints.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from lamina.cli.files import read_request, refuse_databases
from lamina.cli.output import emit, progress, show
from lamina.cli.parser import add_json
from lamina.cli.stored import add_store
from lamina.cli.stored_sessions import read_named_traces
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput
from lamina.replay.account_columns import Column, align_columns, format_percent, format_whole
from lamina.replay.tool_advice import ToolAdvice, ToolRow, advise_tools, find_definitions

_EXAMPLES = """\
PATH is what `lamina replay` reads. A tool whose definition is in every request costs its tokens each time. A
deferred one costs nothing until the model searches for it, and then one search. The advice is the set that
would have cost least in these sessions; it ends with the lines for a settings file. Tokens are counted at
full price: a token that a cache has costs less, as the rules of the session's provider say.

Some clients record no definitions, Claude Code for one. Give a request of that client with --request then.

examples:
  lamina tools advise logs/
  lamina tools advise --store
  lamina tools advise ~/.claude/projects --request request.json --json

exit status: 0 done, 2 there are no sessions, or none with definitions of tools
"""

_COLUMNS = (
    Column("name", "tool", "", str),
    Column("tokens", "tokens", "", format_whole),
    Column("sessions", "sessions", "", format_whole),
    Column("used_in", "used in", "", format_whole),
    Column("calls", "calls", "", format_whole),
    Column("saves", "deferring it saves", "", format_whole),
)


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "lamina tools advise [PATH...] [--store [STORE]] [--workspace NAME] [--key-file FILE]\n"
        "                [--request FILE] [--json]"
    )
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("action", metavar="ACTION", choices=("advise",), help="advise: say which tools to defer")
    add("paths", metavar="PATH", nargs="*", help="files, folders, globs or URLs of recorded sessions")
    add_store(parser, alone=True)
    add(
        "--request",
        metavar="FILE",
        default="",
        help="a request as JSON, with the tools of sessions whose records have none",
    )
    add_json(parser, "every figure, and the names to load and to defer")


def run(arguments: argparse.Namespace) -> int:
    refuse_databases(arguments.paths, hint="a store is read with --store")
    if not arguments.paths and arguments.store is None:
        hint = "name files or folders with recorded sessions, or a store with --store"
        raise BadInput("there are no sessions to read", place="PATH", hint=hint)
    definitions: list[Any] = []
    if arguments.request:
        definitions = find_definitions(read_request(arguments.request), arguments.request)
    with progress("reading the sessions"):
        advice = advise_tools(read_named_traces(arguments), definitions=definitions)
    _refuse_empty(advice, arguments)
    if arguments.json:
        emit({**msgspec.to_builtins(advice), "load": advice.load, "defer": advice.defer})
        return 0
    show(*_list_lines(advice))
    return 0


def _refuse_empty(advice: ToolAdvice, arguments: argparse.Namespace) -> None:
    """Raise BadInput if there is nothing to advise about."""
    place = ", ".join(arguments.paths) or arguments.store or "your store"
    if not advice.sessions:
        raise BadInput(
            "it holds no session", place=place, hint="name recorded sessions, or see lamina replay"
        )
    if not advice.tools:
        hint = "give a request of the client, as it sends it, with --request"
        raise BadInput("its sessions have no definitions of tools", place=place, hint=hint)


def _list_lines(advice: ToolAdvice) -> Iterator[str]:
    """The advice for a terminal: the tools, what changes, and the lines for a settings file."""
    requests = count_noun(advice.requests, "request")
    yield f"{count_noun(advice.sessions, 'session')}, {requests}, {count_noun(len(advice.tools), 'tool')}"
    yield ""
    lines = align_columns(_COLUMNS, advice.tools)
    yield f"  {lines[0]}"
    yield from _list_group("load, in this order", advice.tools, lines, load=True)
    yield from _list_group("defer", advice.tools, lines, load=False)
    yield ""
    yield from _list_changes(advice)
    yield ""
    if not advice.defer:
        yield "nothing to defer: every tool costs less if it is loaded"
        return
    yield "[policy]"
    yield f"load_tools = {json.dumps(advice.load, ensure_ascii=False)}"


def _list_group(title: str, tools: tuple[ToolRow, ...], lines: list[str], *, load: bool) -> Iterator[str]:
    """A title and the lines of the tools under it. Without tools there is no title."""
    own_lines = [line for tool, line in zip(tools, lines[1:], strict=True) if tool.load is load]
    if own_lines:
        yield title
    for line in own_lines:
        yield f"  {line}"


def _list_changes(advice: ToolAdvice) -> Iterator[str]:
    """What the advice changes, and what the records do not say."""
    sessions = advice.sessions
    before = format_whole(advice.first_tokens / sessions)
    after = format_whole(advice.first_tokens_advised / sessions)
    yield f"definitions in a first request: {after} instead of {before} tokens"
    loaded = format_whole(advice.loaded_price)
    deferred = format_whole(advice.deferred_price)
    saved = 0.0
    if advice.loaded_price:
        saved = 1 - advice.deferred_price / advice.loaded_price
    yield f"definitions and searches cost {deferred} instead of {loaded} tokens: {format_percent(saved)} less"
    searches = "1 search" if advice.searches == 1 else f"{advice.searches:,} searches"
    yield f"{searches} more in these sessions"
    if advice.already_deferred:
        yield f"deferred already: {count_noun(len(advice.already_deferred), 'tool')}"
    if advice.unknown:
        yield f"called, and defined in no session: {', '.join(advice.unknown)}"
    if advice.damaged:
        yield f"{advice.damaged:,} damaged, and skipped"
