"""`lamina sessions`: the old name of `lamina conversations`, for one more release."""

from __future__ import annotations

import argparse

from lamina.cli import conversations
from lamina.cli.output import tell

NOTE = "lamina sessions is called lamina conversations now; the old name goes with the next release"


def describe(parser: argparse.ArgumentParser) -> None:
    conversations.describe(parser)


def run(arguments: argparse.Namespace) -> int:
    tell(NOTE)
    return conversations.run(arguments)
