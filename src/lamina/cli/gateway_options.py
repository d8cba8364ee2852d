"""The options of a gateway that `lamina serve` and `lamina run` share."""

from __future__ import annotations

import argparse

from lamina.cli.parser import whole_number


def add_gateway_options(parser: argparse.ArgumentParser) -> None:
    """Where the gateway sends requests, in which window they must fit, and what it keeps of them."""
    add = parser.add_argument
    add("--settings", metavar="FILE", help="a TOML file with the settings of the gateway")
    add("--upstream", metavar="URL", help="send everything to this one server")
    add("--profile", metavar="NAME", help="what kind of server that is (default: openai)")
    add("--window", metavar="N", type=whole_number, help="the window of every upstream, in tokens")
    add("--store", metavar="STORE", help="a path, files:FOLDER or postgresql://...; by default, yours")
    add("--key-file", metavar="FILE", help="the key of the store: with it the store is sealed")
    add(
        "--keep",
        choices=("all", "lowered", "nothing"),
        help="what is stored of the contents of conversations (default: lowered)",
    )
