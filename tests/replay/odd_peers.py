"""Peers for the tests of the port: well-behaved and otherwise. Run by the loop that runs the real ones."""

from __future__ import annotations

import os
import sys
import time
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


class Faulty(Newest):
    """Does what the last message says."""

    def cut(self) -> list[Any]:
        order = self.kept[-1]["content"]
        if order == "sleep":
            time.sleep(60)
        if order == "die":
            sys.stderr.write("no more memory\n")
            sys.stderr.flush()
            os._exit(3)
        if order == "print":
            print("a library's banner", flush=True)
            os.write(1, b"and one past Python\n")
        if order == "raise":
            raise ValueError("cannot count")
        return self.kept


class Broken(Newest):
    def __init__(self, given: Any) -> None:
        del given
        raise ImportError("no module of that name")


PEERS = {
    "newest": Newest, "apart": Apart, "told": Told, "reworded": Reworded, "faulty": Faulty, "broken": Broken,
}  # fmt: skip
