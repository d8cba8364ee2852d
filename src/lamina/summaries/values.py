"""The values of this package: a question to a model, its terms and bounds, and the outcome."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.options import DEFAULT_OPTIONS, Options
from lamina.core.tokens import ESTIMATE, Counter
from lamina.core.values import Budget, Ledger, RequestHead, Segment
from lamina.core.wording import text_of
from lamina.errors import BadInput

Purpose = Literal["summary", "part"]
"""A whole summary, or a part of a text that is too long to be read at once."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One question to a model. `envelope` is the request, for a dialect to render; its last message asks.

    `aligned`: it continues the conversation's own last request, so a provider has its beginning cached.
    `most` is how many tokens the answer may have. The answer has to be text, without calls of tools.
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
"""Asks a model, and returns the text of its answer."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation is built with: the arguments of `build`, besides log and ledger."""

    budget: Budget | None = None
    head: RequestHead = RequestHead()
    counter: Counter = ESTIMATE
    options: Options = DEFAULT_OPTIONS


def build_log(log: Sequence[Segment], terms: Terms, ledger: Ledger) -> Envelope:
    """The request for a log, however long it is."""
    return build(log, head=terms.head, ledger=ledger, counter=terms.counter, options=terms.options)


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much a summarizer may be asked.

    `tries` counts whole attempts, and `seconds` is the time for each question. A text that is too long for
    the window is read in at most `parts` pieces, `at_once` of them at a time. `window` is the summarizer's,
    if it is not the conversation's own model.
    """

    tries: int = 2
    seconds: float = 120
    window: int | None = None
    parts: int = 32
    at_once: int = 4

    def __post_init__(self) -> None:
        """Raise BadInput for a bound that would allow nothing."""
        for name in ("tries", "seconds", "parts", "at_once"):
            value = getattr(self, name)
            if value <= 0:
                raise BadInput(f"{name} is {value!r}", place="Bounds", hint="give a number above 0")


class SummaryOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The segment to record. If it is None, `notes` say why.

    `by` says who wrote it; "earlier" means that an older summary covers the same content. `before` and
    `after` are the tokens of what it covers and of itself. `questions` counts those to a model.
    """

    segment: Segment | None = None
    by: Literal["model", "digest", "earlier", ""] = ""
    before: int = 0
    after: int = 0
    questions: int = 0
    notes: tuple[str, ...] = ()
