"""`lamina recall`: the full text behind a handle, a slice of it, or where a text occurs in it."""

from __future__ import annotations

import argparse

import anyio
import msgspec

from lamina.cli.output import emit, tell
from lamina.cli.parser import add_json
from lamina.cli.stored import add_store, open_existing, open_named_store

_EXAMPLES = """\
KEY is what a handle in a request says: recall("k7f3..."). It never expires.

examples:
  lamina recall support-42 k7f3c0a1b2d4
  lamina recall support-42 k7f3c0a1b2d4 --part 0:2000
  lamina recall support-42 docs/spec.md --find "retry"

exit status: 0 found, 2 input that cannot be used, 4 there is no such conversation
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "lamina recall CONVERSATION KEY [--part START:LENGTH] [--find TEXT] [--store STORE]\n"
        "              [--workspace NAME] [--key-file FILE] [--json]"
    )
    parser.epilog = _EXAMPLES
    parser.add_argument("conversation", metavar="CONVERSATION", help="its name")
    parser.add_argument("key", metavar="KEY", help="a handle, or the key of a segment")
    parser.add_argument("--part", metavar="START:LENGTH", type=_part, help="only these characters, from 0")
    parser.add_argument("--find", metavar="TEXT", default="", help="only where this occurs")
    add_store(parser)
    add_json(parser, "text, start, total and matches")


def run(arguments: argparse.Namespace) -> int:
    return anyio.run(_recall, arguments)


async def _recall(arguments: argparse.Namespace) -> int:
    """Print what a key stands for, a part of it, or the places in it that have a text."""
    async with (
        open_named_store(arguments) as (store, workspace),
        open_existing(store, workspace, arguments.conversation) as session,
    ):
        recalled = session.recall(arguments.key, part=arguments.part, find=arguments.find)
    if arguments.json:
        emit(msgspec.to_builtins(recalled))
        return 0
    if not arguments.find:
        print(recalled.text)
        return 0
    for match in recalled.matches:
        print(f"{match.at}: {match.text}")
    if recalled.more:
        tell(f"and {recalled.more} more")
    return 0


def _part(text: str) -> tuple[int, int]:
    """`100:500` as a start and a length, in characters."""
    start, colon, length = text.partition(":")
    if not (colon and start.isdigit() and length.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not START:LENGTH")
    return int(start), int(length)
