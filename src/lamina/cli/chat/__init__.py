"""`lamina chat`: talk with a model in the terminal, and see what it sees. Start reading in `talk`.

This file only describes the command: what a chat needs is imported when one begins.
"""

from __future__ import annotations

import argparse

from lamina.cli.parser import window_size

_EXAMPLES = """\
Without --model: the conversation's own, that of your settings, the server in $OPENAI_BASE_URL, the key in
$ANTHROPIC_API_KEY, $OPENAI_API_KEY or $GEMINI_API_KEY, then a local Ollama. A message attaches files with
@path, notes with @#tag and pages with @https://...; /help lists the commands. Where standard input is no
terminal, each line is a message, and nothing is changed in DIR.

examples:
  lamina chat
  lamina chat --model claude-sonnet-5-5 --folder project --conversation review
  lamina chat --model ollama/llama3.2 --window 8192
  lamina chat --sealed --conversation diary
  echo "What is in @README.md?" | lamina chat

exit status: 0 done, 1 a piped line failed, 2 input that cannot be used or no model was
found, 4 the store refuses it
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument("--model", metavar="NAME", default="", help="a model, such as gpt-5 or ollama/NAME")
    parser.add_argument(
        "--folder", metavar="DIR", default=".", help="the folder of @path and of the tools (default: .)"
    )
    parser.add_argument("--conversation", metavar="NAME", default="", help="continue this one, or start it")
    parser.add_argument(
        "--window",
        metavar="N",
        type=window_size,
        default=0,
        help="the context window in tokens; default: the conversation's, or the model's",
    )
    parser.add_argument(
        "--tools",
        choices=("all", "read", "none"),
        default="all",
        help="what the model may do in DIR (default: all)",
    )
    parser.add_argument(
        "--store",
        metavar="STORE",
        default="",
        help="a path, files:FOLDER or postgresql://...; by default, yours",
    )
    parser.add_argument(
        "--sealed",
        action="store_true",
        help="encrypt everything stored, with a key that lamina makes and keeps for you",
    )
    parser.add_argument(
        "--key-file",
        metavar="FILE",
        help="the key of a sealed store; by default, the one in $LAMINA_KEY, if any",
    )


def run(arguments: argparse.Namespace) -> int:
    import anyio  # noqa: PLC0415 - help needs nothing of it

    from lamina.cli.chat.talk import talk  # noqa: PLC0415

    return anyio.run(talk, arguments)
