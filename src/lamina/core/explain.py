"""The account of a request: every segment with its layer, form, tokens and reason, as rows."""

from __future__ import annotations

from collections import Counter as Tally

import msgspec

from lamina.core.envelope import Envelope
from lamina.core.hashing import handle
from lamina.core.tokens import Basis
from lamina.core.values import Cut, Form, Layer
from lamina.core.wording import described


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the manifest."""

    key: str
    ref: str
    what: str
    layer: Layer
    form: Form
    tokens: int
    why: str
    recall: str = ""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was decided about one request. `rows` and the other amounts sum to `tokens`."""

    rows: tuple[Row, ...]
    tokens: int
    exact: bool
    basis: Basis
    tools: int
    request: int
    margin: int
    room: int | None
    cut: Cut | None
    notes: tuple[str, ...]

    @property
    def layers(self) -> dict[Layer, int]:
        """Tokens by layer."""
        sums: Tally[Layer] = Tally()
        for row in self.rows:
            sums[row.layer] += row.tokens
        return {layer: sums[layer] for layer in Layer if sums[layer]}


def explain(envelope: Envelope) -> Manifest:
    account = envelope.account
    return Manifest(
        rows=tuple(_row(envelope, i) for i in range(len(envelope.entries))), tokens=account.total,
        exact=account.exact, basis=account.basis, tools=account.tools, request=account.request,
        margin=account.margin, room=envelope.room, cut=envelope.cut, notes=envelope.notes,
    )  # fmt: skip


def _row(envelope: Envelope, index: int) -> Row:
    entry = envelope.entries[index]
    return Row(
        key=entry.segment.key or handle(entry.content), ref=entry.ref, what=described(entry.segment),
        layer=entry.layer, form=entry.form, tokens=entry.tokens, why=entry.why,
        recall=handle(entry.content) if entry.form is not Form.FULL else "",
    )  # fmt: skip
