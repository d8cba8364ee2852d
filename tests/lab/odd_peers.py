"""Peers for the tests of the port: well-behaved and otherwise. Run by the loop that runs the real ones."""

from __future__ import annotations

from typing import Any


class Newest:
    """Keeps the system text and the newest messages, and counts how often it was made."""

    outside = False
    made = 0

    def __init__(self, given: Any) -> None:
        type(self).made += 1
        self.given, self.kept = given, list[Any]()

    def add(self, messages: list[Any]) -> None:
        self.kept += messages

    def cut(self) -> list[Any]:
        while sum(map(self.given.tokens, self.kept)) > self.given.limit:
            del self.kept[1]
        return self.kept


class Apart(Newest):
    outside = True


class Told(Newest):
    """Answers with what it was told: the messages since the last call, and its limits."""

    outside = True

    def add(self, messages: list[Any]) -> None:
        self.kept = messages

    def cut(self) -> list[Any]:
        limits = {"made": self.made, "limit": self.given.limit, "goal": self.given.goal}
        return [{"role": "user", "content": [message["content"] for message in self.kept], **limits}]


class Reworded(Newest):
    """Passes each message through a library that knows texts and ids only, and clears a result."""

    def add(self, messages: list[Any]) -> None:
        for message in messages:
            ids = [call.id for call in self.given.calls(message)] if message["role"] == "assistant" else []
            if message["role"] == "tool":
                ids = [self.given.answered(message)[0]]
            elif not ids:
                self.given.remember(message)
            text = self.given.words(message).replace("secret", "[cleared]")
            self.kept.append((message["role"], text, ids))

    def cut(self) -> list[Any]:
        return [self.given.back(*each) for each in self.kept]


PEERS = {"newest": Newest, "apart": Apart, "told": Told, "reworded": Reworded}
