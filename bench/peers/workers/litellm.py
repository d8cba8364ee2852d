"""LiteLLM: trim_messages, which keeps the newest messages and cuts one in its middle.

It sees the whole history at each call and keeps nothing, and counts with the tokenizer that comes with the
package. Run by the peer's own interpreter.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.peers.workers.serve import Given, Message


class Trim:
    outside = False

    def __init__(self, given: Given) -> None:
        self.limit = given.limit
        self.history: list[Message] = []
        self.trim = import_module("litellm.utils").trim_messages

    def add(self, messages: list[Message]) -> None:
        self.history += messages

    def cut(self) -> list[Message]:
        return list(self.trim(self.history, model="gpt-4o", max_tokens=self.limit))


PEERS = {"litellm": Trim}
