"""`lamina key new`: makes a key for a sealed store, in a file that only its owner can read."""

from __future__ import annotations

import argparse
from pathlib import Path

from lamina.cli.output import emit, tell
from lamina.cli.parser import add_json
from lamina.settings import config_folder
from lamina.stores.address import import_sealed

KEY_FILE = "store.key"

_EXAMPLES = """\
The key has 256 random bits. An existing file is never written to: without its key, a sealed store cannot be
read by anybody. Keep a copy of it in another place than the store.

examples:
  lamina key new                        # in the folder of the settings
  lamina key new ~/keys/chats.key
  lamina conversations copy sealed.db --store chats.db --new-key-file chats.key

exit status: 0 done, 2 input that cannot be used
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lamina key new [FILE] [--json]"
    parser.epilog = _EXAMPLES
    parser.add_argument("action", choices=("new",), help="new: make a key")
    parser.add_argument("file", metavar="FILE", nargs="?", help="where the key is kept")
    add_json(parser, "the path of the key file")


def run(arguments: argparse.Namespace) -> int:
    sealing = import_sealed()
    path = config_folder() / KEY_FILE
    if arguments.file:
        path = Path(arguments.file).expanduser()
    sealing.init_file(path)
    if arguments.json:
        emit({"file": str(path)})
        return 0
    tell(f"the key is in {path}; keep a copy of it in another place")
    tell(f'use it with --key-file {path}, or with key_file = "{path}" in the settings')
    return 0
