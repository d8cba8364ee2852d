"""The loop that runs inside a peer's own environment: a line of JSON in, a line of JSON out.

    python -P serve.py FILE NAME     FILE has the peer's code, NAME is its entry in that file's PEERS

`{"new": true, "window": N, "room": N, "trigger": N, "target": N}` starts a conversation; every other line is
`{"keep": n, "messages": [...], "tools": [...]}`, where the conversation is the first `n` messages that are
known here and then those given. The answer is `{"messages": [...], "seconds": CPU}` or `{"error": "..."}`.
A peer that keeps state gets its own last output and what is new since. Imports nothing of lamina: it is run
by an interpreter that does not have it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any, NamedTuple, Protocol

Message = dict[str, Any]

FRAMING = 4
"""Tokens of a message besides its text, as the lab counts."""


class Call(NamedTuple):
    id: str
    name: str
    arguments: dict[str, Any]
    raw: str


class Peer(Protocol):
    """What a file of workers has for each peer. `outside`: the library holds the system text apart."""

    outside: bool

    def add(self, messages: list[Message]) -> None: ...

    def cut(self) -> list[Message]: ...


class Given:
    """What a peer is made with: sizes in tokens, a counter, and the way back to the messages as they were.

    `limit` and `goal` are trigger and target less what the library never sees: tools, and the system text
    where it is held apart.
    """

    def __init__(self, sizes: dict[str, int], tools: list[Any], head: list[Message]) -> None:
        self.count = counted()
        self.window, self.room = sizes["window"], sizes["room"]
        self._names: dict[str, str] = {}
        self._current: dict[str, str] = {}
        self._known: dict[tuple[str, str, tuple[str, ...]], Message] = {}
        self._by_ids: dict[tuple[str, tuple[str, ...]], Message] = {}
        fixed = self.count(json.dumps(tools)) if tools else 0
        fixed += sum(self.tokens(message) for message in head)
        self.limit = max(sizes["trigger"] - fixed, 2)
        self.goal = max(min(sizes["target"] - fixed, self.limit - 1), 1)
        self.spare = max(sizes["room"] - fixed, 1)

    def words(self, message: Message) -> str:
        return words(message)

    def tokens(self, message: Message) -> int:
        calls = ((call.get("function") or {}) for call in message.get("tool_calls") or ())
        asked = sum(self.count(f"{call.get('name')} {call.get('arguments')}") for call in calls)
        return FRAMING + self.count(words(message)) + asked

    def calls(self, message: Message) -> list[Call]:
        """The calls of a message, once for each message; an id that was used before is made another."""
        found = []
        for call in message.get("tool_calls") or ():
            function, known = call.get("function") or {}, str(call.get("id"))
            own = known if known not in self._names else f"{known}~{len(self._names)}"
            self._current[known], self._names[own] = own, str(function.get("name"))
            raw = function.get("arguments") or "{}"
            found.append(Call(own, self._names[own], as_object(raw), raw))
        self.remember(message, tuple(call.id for call in found))
        return found

    def answered(self, message: Message) -> tuple[str, str]:
        """The id and the name of the call that a result answers, once for each message."""
        known = str(message.get("tool_call_id"))
        own = self._current.get(known, known)
        self.remember(message, (own,))
        return own, self._names.get(own, "unknown")

    def remember(self, message: Message, ids: tuple[str, ...] = ()) -> None:
        role = role_of(message)
        self._known.setdefault((role, words(message), ids), message)
        if ids:
            self._by_ids[role, ids] = message

    def back(self, role: str, text: str, ids: Iterable[str] = ()) -> Message:
        """The message as it was, where the peer left it alone; the same with other text where it did not."""
        own = tuple(ids)
        if (known := self._known.get((role, text, own))) is not None:
            return known
        return {**self._by_ids.get((role, own), {"role": role}), "content": text}


class Desk:
    """One conversation at a time."""

    def __init__(self, make: Callable[[Given], Peer], *, outside: bool) -> None:
        self.make, self.outside, self.warm = make, outside, False
        self.peer: Peer | None = None
        self.head: list[Message] = []
        self.history: list[Message] = []

    def start(self, sizes: dict[str, int]) -> None:
        self.sizes, self.peer, self.history, self.head = sizes, None, [], []
        if not self.warm:  # what a library loads at its first use is no part of a call
            peer = self.make(Given(sizes, [], []))
            peer.add([{"role": "user", "content": "hello"}])
            peer.cut()
            self.warm = True

    def answer(self, line: bytes) -> dict[str, Any]:
        asked = json.loads(line)
        if asked.get("new"):
            self.start(asked)
            return {"ready": True}
        kept, new = asked.get("keep", 0), asked["messages"]
        if self.peer is None or kept != len(self.history):
            new, self.history, self.peer = self.history[:kept] + new, [], None
        self.history += new
        peer = self.peer or self._begin(new, asked.get("tools") or [])
        peer.add(new if self.peer else new[len(self.head) :])
        self.peer, began = peer, time.process_time()
        cut = peer.cut()
        return {"seconds": time.process_time() - began, "messages": [*self.head, *cut]}

    def _begin(self, messages: list[Message], tools: list[Any]) -> Peer:
        first = next((at for at, m in enumerate(messages) if role_of(m) != "system"), len(messages))
        self.head = messages[:first] if self.outside else []
        return self.make(Given(self.sizes, tools, self.head))


def main(file: str, name: str) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not stand between the answers
    make = loaded(file)[name]
    desk = Desk(make, outside=make.outside)
    for line in sys.stdin.buffer:
        try:
            answer = desk.answer(line)
        except Exception as error:  # noqa: BLE001 - whatever a library raises is its answer
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def loaded(file: str) -> dict[str, Any]:
    spec = spec_from_file_location("peer", file)
    assert spec is not None, file  # noqa: S101 - the caller names one of our own files
    assert spec.loader is not None, file  # noqa: S101 - as above
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    peers: dict[str, Any] = module.PEERS
    return peers


def counted() -> Callable[[str], int]:
    """Tokens of a text by OpenAI's o200k, each text counted once; four characters to one without splintr."""
    known: dict[str, int] = {}
    encode = tokenizer()

    def count(text: str) -> int:
        if (found := known.get(text)) is None:
            found = known[text] = len(
                encode(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
            )
        return found

    return count


@cache
def tokenizer() -> Callable[[str], Any]:
    try:
        encode: Callable[[str], Any] = (
            import_module("splintr").Tokenizer.from_pretrained("o200k_base").encode_ordinary
        )
    except ImportError:
        return lambda text: range(-(-len(text) // 4))
    return encode


def words(message: Message) -> str:
    """The text of a message; what is no text is left out."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def role_of(message: Message) -> str:
    role = str(message.get("role"))
    return "system" if role == "developer" else role


def as_object(raw: str) -> dict[str, Any]:
    """A call's arguments; those that are no JSON object become one."""
    try:
        found = json.loads(raw)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"arguments": raw}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
