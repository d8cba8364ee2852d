"""`lamina memory`: the files that models keep with the memory tool, their versions, and how to erase them.

`lamina.conversations.memory_files` does it. This module reads options and prints.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import anyio
import msgspec

from lamina.cli.output import emit, tell
from lamina.cli.parser import add_json
from lamina.cli.stored import add_store, open_named_store
from lamina.conversations.memory_commands import ROOT
from lamina.conversations.memory_files import erase_files, list_versions, load_files
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput, NotFound
from lamina.stores.port import Store

DATE = "%Y-%m-%d %H:%M"

_EXAMPLES = """\
actions: list; show PATH; versions PATH; delete PATH --yes; delete --yes

With `memory_tool = "lamina"` in the policy, the gateway, wrapped clients and sessions answer calls of the
memory tool from the store. A file that the model changed or deleted stays as a version. Delete erases a file,
or all files of a directory, with every version; without a PATH, everything of the workspace.

examples:
  lamina memory list
  lamina memory show /memories/notes.md
  lamina memory delete /memories/notes.md --yes

exit status: 0 done, 2 input that cannot be used, 4 the store refuses it or does not have it
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "lamina memory ACTION [PATH] [--store STORE] [--workspace NAME] [--key-file FILE] [--yes] [--json]"
    )
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("action", metavar="ACTION", choices=[*_ACTIONS], help=", ".join(_ACTIONS))
    add("path", metavar="PATH", nargs="?", default="", help=f"a file or directory, such as {ROOT}/notes.md")
    add_store(parser)
    add("--yes", action="store_true", help="delete without asking")
    add_json(parser, "what the action found")


def run(arguments: argparse.Namespace) -> int:
    if arguments.action in ("show", "versions") and not arguments.path:
        hint = "lamina memory list names the files"
        raise BadInput(f"{arguments.action} takes a path", place="memory", hint=hint)
    if arguments.action == "delete" and not arguments.yes:
        raise BadInput("it erases every version", place="memory delete", hint="add --yes")
    return anyio.run(_run_action, arguments)


async def _run_action(arguments: argparse.Namespace) -> int:
    async with open_named_store(arguments) as (store, workspace):
        return await _ACTIONS[arguments.action](store, workspace, arguments)


async def _list(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Print each file with its size in bytes."""
    files = await load_files(store, workspace)
    sizes = {path: len(text.encode()) for path, text in sorted(files.items())}
    if arguments.json:
        emit({"files": sizes})
        return 0
    if not sizes:
        tell("there are no files")
    for path, size in sizes.items():
        print(f"{size:>9,}  {path}")
    return 0


async def _show(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    files = await load_files(store, workspace)
    if arguments.path not in files:
        raise NotFound(arguments.path)
    if arguments.json:
        emit({"path": arguments.path, "text": files[arguments.path]})
        return 0
    sys.stdout.write(files[arguments.path])
    return 0


async def _versions(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Print when a file was changed, and how large it was then; with --json, the texts too."""
    versions = await list_versions(store, workspace, arguments.path)
    if arguments.json:
        emit({"versions": msgspec.to_builtins(versions)})
        return 0
    for version in versions:
        moment = datetime.fromtimestamp(version.at, tz=UTC).astimezone().strftime(DATE)
        size = "deleted"
        if version.text is not None:
            size = f"{len(version.text.encode()):,} bytes"
        print(f"{moment}  {size}")
    return 0


async def _delete(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    count = await erase_files(store, workspace, arguments.path.rstrip("/"))
    if arguments.json:
        emit({"erased": count})
        return 0
    tell(f"{count_noun(count, 'file')} erased, with all versions")
    return 0


_ACTIONS: dict[str, Callable[[Store, str, argparse.Namespace], Awaitable[int]]] = {
    "list": _list,
    "show": _show,
    "versions": _versions,
    "delete": _delete,
}
