"""Headroom: compresses what the tools returned. It has no budget and drops no message.

It sees the whole history at each call. What it leaves out of a result stands in its own store, with a marker
that a tool of its own takes. Its model for prose is off, since it has to be downloaded. Run by the peer's own
interpreter.
"""

from __future__ import annotations

from copy import deepcopy
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.peers.workers.serve import Given, Message


class Compress:
    outside = False

    def __init__(self, given: Given) -> None:
        self.room = given.room
        self.history: list[Message] = []
        self.compress = import_module("headroom").compress

    def add(self, messages: list[Message]) -> None:
        self.history += messages

    def cut(self) -> list[Message]:
        done = self.compress(
            deepcopy(self.history), model="gpt-4o", model_limit=self.room, kompress_model="disabled"
        )
        return list(done.messages)


PEERS = {"headroom": Compress}
