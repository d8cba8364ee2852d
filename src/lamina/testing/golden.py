"""Sessions whose requests are kept byte for byte, in every dialect: a change of a byte is a change of mind.

Each is a growing log, built at every turn with the ledger passed on, as an application would. Nothing here
reads or writes files: whoever keeps the requests compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from lamina import segments
from lamina.core.arrange import Cap, Layout
from lamina.core.build import build
from lamina.core.values import Budget, Form, Ledger, Segment
from lamina.dialects.port import Dialect
from lamina.dialects.translate import options_for
from lamina.replay.generated_sessions import calls, session
from lamina.testing.conformance import MODELS, plain_head
from lamina.testing.gallery import gallery
from lamina.testing.scripts import scripts

SPEC = "".join(
    f"## {title}\n\n{body}\n\n"
    for title, body in (
        ("Purpose", "The importer reads one file of orders and writes one table of parcels. " * 12),
        ("Sign-in", "A client sends its name and a code; the code lives for one hour. " * 12),
        ("Errors", "A line that cannot be read is kept in a second table, with the reason. " * 12),
    )
)
API = "".join(
    f"## {verb} /{noun}\n\nAnswers with one {noun} as JSON. " + "Needs a code of the client.\n\n" * 8
    for verb, noun in (("GET", "order"), ("POST", "order"), ("GET", "parcel"), ("DELETE", "parcel"))
)


COMPACT = Layout(attachments=Cap(tokens=0, form=Form.COMPACT))
"""Attachments by their outlines."""


class Golden(msgspec.Struct, frozen=True, kw_only=True):
    """One session: its log at each call, how it is laid out, and its budget."""

    name: str
    logs: tuple[tuple[Segment, ...], ...]
    layout: Layout = Layout()
    budget: Budget | None = None


def requests(golden: Golden, dialect: Dialect) -> Iterator[dict[str, Any]]:
    """The request of each call of a session, in the words of one dialect."""
    ledger, head = Ledger(), dialect.own_head(plain_head(MODELS[dialect.name])).head
    options = options_for(dialect, head, layout=golden.layout)
    for log in golden.logs:
        envelope = build(log, head=head, budget=golden.budget, ledger=ledger, options=options)
        ledger = envelope.ledger
        yield dialect.render(envelope)


def walkthrough() -> tuple[tuple[Segment, ...], ...]:
    """Three turns: a note is attached, kept beside a second one, and kept alone."""
    spec, api = segments.note("project-spec.md", SPEC), segments.note("docs/api-docs.md", API)
    one = (segments.system("You help with one project."), spec, segments.user("Summarize this"))
    two = (
        *one,
        segments.assistant("It imports orders and keeps what it cannot read."),
        spec,
        api,
        segments.user("What endpoints does the API support?"),
    )
    three = (
        *two,
        segments.assistant("Four: two for orders and two for parcels."),
        spec,
        segments.user("Explain the auth flow from the spec"),
    )
    return one, two, three


def _worked() -> tuple[tuple[Segment, ...], ...]:
    return tuple(calls(session(5, turns=3, steps=3)))


def _written() -> tuple[tuple[Segment, ...], ...]:
    return tuple(calls(scripts()))


_SESSIONS: tuple[Callable[[], Golden], ...] = (
    lambda: Golden(name="walkthrough-in-place", logs=walkthrough()),
    lambda: Golden(name="walkthrough-hoisted", logs=walkthrough(), layout=Layout(library="hoisted")),
    lambda: Golden(name="gallery", logs=(gallery(),)),
    lambda: Golden(name="cut", logs=_worked()[-4:], budget=Budget(window=4_000, reserve=0)),
    lambda: Golden(
        name="scripts", logs=_written()[8::14], layout=COMPACT, budget=Budget(window=5_000, reserve=0)
    ),
)


def sessions() -> list[Golden]:
    return [make() for make in _SESSIONS]
