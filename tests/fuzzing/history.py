"""What a client keeps: its messages, its head and its settings, in no provider's format.

`writing` makes a request of it, `moves` changes it. Nothing here knows lamina.
"""

from __future__ import annotations

import copy
from typing import Any, Literal

import msgspec

Sort = Literal["text", "image", "document", "thinking", "redacted", "call", "result", "item"]
Voice = Literal["user", "assistant", "tool", "system"]


class Piece(msgspec.Struct, kw_only=True):
    """A part of a message.

    `text` is what it says: of a call its arguments as JSON, of thinking what can be read of it. `id` pairs
    calls and results, even where the API has none. `data` is the content of an image, of redacted thinking,
    or a whole item of the API's own. `marker` is the lifetime of a cache marker on it, "-" for one without a
    lifetime.
    """

    sort: Sort
    text: str = ""
    id: str = ""
    name: str = ""
    data: Any = None
    failed: bool = False
    signature: str = ""
    marker: str = ""


class Message(msgspec.Struct, kw_only=True):
    """One message. `tool` messages hold results, perhaps with text of the user after them.

    `number` is its own in the conversation. `as_string`: content that is one text is written as a string.
    `apart`: each result stands in a message of its own, where the API has them in one. `bound_to` is the hash
    of the request that the model answered with it, "" if nobody knows. `wire` holds the objects that were
    made of it, for clients that keep them; `stale` says that they must be written anew.
    """

    voice: Voice
    pieces: list[Piece]
    number: int
    as_string: bool = True
    apart: bool = False
    bound_to: str = ""
    wire: list[dict[str, Any]] | None = None
    stale: bool = False

    def of(self, *sorts: Sort) -> list[Piece]:
        return [piece for piece in self.pieces if piece.sort in sorts]

    def changed(self) -> None:
        """To be called after every change of a piece."""
        self.stale = True


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str
    schema: dict[str, Any]


class Settings(msgspec.Struct, kw_only=True):
    """What a request is sent with, besides its messages. A client may change all of it at any time."""

    dialect: str
    model: str
    window: int
    reserve: int | None = None
    counter: str = ""
    system: str = ""
    system_in_blocks: bool = False
    tools: list[Tool] = []
    answer_schema: dict[str, Any] | None = None
    output: int = 200
    breakpoints: Literal["keep", "plan"] = "keep"
    keeps_objects: bool = False
    in_config: bool = False
    call_ids: bool = True


class History(msgspec.Struct, kw_only=True):
    """The messages of a client, and those of the branch that it has left, if it has one."""

    messages: list[Message] = []
    other: list[Message] | None = None
    numbers: int = 0

    def add(self, voice: Voice, pieces: list[Piece], **facts: Any) -> Message:
        self.numbers += 1
        message = Message(voice=voice, pieces=pieces, number=self.numbers, **facts)
        self.messages.append(message)
        return message

    def copied(self) -> list[Message]:
        """The messages, sharing nothing with these."""
        return [_copied(message) for message in self.messages]

    def steps(self) -> list[tuple[int, int]]:
        """Where each assistant message with calls begins, and where what belongs to it ends."""
        found = []
        for i, message in enumerate(self.messages):
            if not message.of("call"):
                continue
            end = i + 1
            while end < len(self.messages) and self.messages[end].voice == "tool":
                end += 1
            found.append((i, end))
        return found

    def prompts(self) -> list[int]:
        """Positions of messages in which the user says something."""
        return [i for i, message in enumerate(self.messages) if message.voice == "user"]

    @property
    def last_voice(self) -> str:
        return self.messages[-1].voice if self.messages else ""


def _copied(message: Message) -> Message:
    twin = copy.deepcopy(message)
    twin.wire = None
    twin.stale = False
    return twin
