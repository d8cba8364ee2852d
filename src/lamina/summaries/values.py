"""What is asked, on what terms, how far asking goes, and what came of it. It decides nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from lamina.core.envelope import Envelope
from lamina.core.options import DEFAULT, Options
from lamina.core.tokens import ESTIMATE, Counter
from lamina.core.values import Budget, Head, Segment
from lamina.core.wording import text_of
from lamina.errors import BadInput

Purpose = Literal["summary", "part", "priorities"]
"""A whole summary; a part of what is too long to be read at once; priorities of attachments."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One question to a model. `envelope` is the request, for a dialect to render; its last message asks.

    `aligned`: it continues the conversation's own last request, so a provider has its beginning cached.
    `most` is how many tokens the answer may have. The answer is text: calls of tools are none.
    """

    envelope: Envelope
    purpose: Purpose
    most: int
    aligned: bool = False

    @property
    def text(self) -> str:
        """The request as one plain text, for models that take no messages."""
        return "\n\n".join(f"{entry.role.value}: {text_of(entry.parts)}" for entry in self.envelope.sent)


Summarizer = Callable[[Question], Awaitable[str]]
"""Asks a model, and gives back the words of its answer."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation is built with: the arguments of `build`, beside log and ledger."""

    budget: Budget | None = None
    head: Head = Head()
    counter: Counter = ESTIMATE
    options: Options = DEFAULT


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How far asking goes. `window` is the summarizer's, where it is not the conversation's own model.

    `tries` counts whole attempts, `seconds` is for each question, `parts` the most pieces that a text too
    long for the window is read in, `at_once` how many of them are asked at a time.
    """

    tries: int = 2
    seconds: float = 120
    window: int | None = None
    parts: int = 32
    at_once: int = 4

    def __post_init__(self) -> None:
        for name in ("tries", "seconds", "parts", "at_once"):
            if getattr(self, name) <= 0:
                hint = "give a number above 0"
                raise BadInput(f"{name} is {getattr(self, name)!r}", place="Bounds", hint=hint)


class SummaryOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: the segment to record, or None, and then `notes` say why.

    `by` says who wrote it; "earlier": a summary of the same content stands above. `before` and `after` are
    the tokens of what it stands for and of itself; `asked` counts the questions that a model was asked.
    """

    segment: Segment | None = None
    by: Literal["model", "digest", "earlier", ""] = ""
    before: int = 0
    after: int = 0
    asked: int = 0
    notes: tuple[str, ...] = ()
