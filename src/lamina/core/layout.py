"""How a caller wants a request laid out: where attachments stand, what is sent, and how much of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from lamina.core.values import Entry, Form, Layer


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Chooses segments by kind, layer or key. An empty filter chooses nothing."""

    kinds: frozenset[str] = frozenset()
    layers: frozenset[Layer] = frozenset()
    keys: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.kinds or self.layers or self.keys)

    def matches(self, entry: Entry) -> str:
        """Which of the lists names the entry, such as "kind file"; "" if none does.

        The answer becomes the reason of an entry that is left out.
        """
        aspects = (
            ("kind", entry.segment.kind, self.kinds),
            ("layer", entry.layer, self.layers),
            ("key", entry.segment.key, self.keys),
        )
        for name, value, chosen in aspects:
            if value in chosen:
                return f"{name} {value}"
        return ""


NO_FILTER = Filter()


class Cap(msgspec.Struct, frozen=True, kw_only=True):
    """At most `tokens` of attachments, by priority; beyond it they are sent in `form`."""

    tokens: int
    form: Form = Form.STUB


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How a request is laid out. `context` says where a turn's attachments stand to its question.

    With `include`, only what it names is sent, besides the system text; `exclude` wins over it. In the
    hoisted library an attachment has at most `prior_limit` characters, or what `prior_limits` says for its
    kind. `results` says how long tool calls and their results are sent: "kept" from turn to turn, or only in
    their own "turn". By default they leave with their turn in the hoisted layout alone, which moves bytes at
    each turn anyway.
    """

    library: Literal["in_place", "hoisted"] = "in_place"
    context: Literal["before", "after", "logged"] = "before"
    include: Filter = NO_FILTER
    exclude: Filter = NO_FILTER
    attachments: Cap | None = None
    prior_limit: int = 5_000
    prior_limits: dict[str, int] = {}
    results: Literal["kept", "turn"] | None = None

    @property
    def drops_results(self) -> bool:
        """Whether tool calls and their results leave with their turn."""
        if self.results is None:
            return self.library == "hoisted"
        return self.results == "turn"

    def prior_limit_of(self, kind: str) -> int:
        """Characters of an attachment of this kind in the library; longer ones are shortened."""
        return self.prior_limits.get(kind, self.prior_limit)


def moves_sent_text(layout: Layout) -> bool:
    """Whether the end of a turn moves or leaves out what was sent, so that each turn begins an epoch."""
    return layout.library == "hoisted" or layout.drops_results
