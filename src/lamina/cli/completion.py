"""`lamina completion`: a completion script for bash, zsh or fish, which shtab writes from the parsers.

The script has the names of all commands and of their options, so that a shell needs no Python to complete.
"""

from __future__ import annotations

import argparse
from types import ModuleType

from lamina.cli.parser import Parser
from lamina.errors import BadInput

_EXAMPLES = """\
examples:
  lamina completion bash > ~/.local/share/bash-completion/completions/lamina
  lamina completion zsh > ~/.zfunc/_lamina          (a folder of your fpath)
  lamina completion fish > ~/.config/fish/completions/lamina.fish
"""

SHELLS = ("bash", "zsh", "fish")

_FILES = ("FILE", "PATH", "STORE", "REQUEST", "BEFORE", "AFTER")
_FOLDERS = ("FOLDER", "DIR")


def describe(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")


def run(arguments: argparse.Namespace) -> int:
    print(write_completion(arguments.shell), end="")
    return 0


def write_completion(shell: str) -> str:
    """The script for one shell. Raises `BadInput` if shtab, which writes it, is not installed."""
    from lamina.cli import COMMANDS, describe_command  # noqa: PLC0415 - it imports this module to run it

    try:
        import shtab  # noqa: PLC0415 - only this command needs it
    except ImportError as error:
        raise BadInput("shtab is not installed", place="completion", hint="pip install shtab") from error
    parser = Parser(prog="lamina")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers()
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        describe_command(command, name)
        _complete_files(command, shtab)
    script: str = shtab.complete(parser, shell=shell)
    return script


def _complete_files(parser: argparse.ArgumentParser, shtab: ModuleType) -> None:
    """Mark the arguments that name a file or a folder, which shtab cannot know."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other list of them
        if action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks for it
        elif action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
